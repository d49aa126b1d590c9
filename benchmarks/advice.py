"""What the doctor says of faults made on purpose in a lab, and of a healthy one: found, missed, false alarms.

make bench NAME=advice
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from benchmarks.labs import BenchLab, lab
from benchmarks.record import Bar, record
from runners.lab import kernel, sshd
from runners.lab.state import LabState

_ROUNDS = 5
_RACKS, _HOSTS_PER_RACK, _HOST_RATE = 3, 3, "200mbit"


@dataclass(frozen=True)
class Fault:
    """A fault: how it is made, which kinds of findings name it, and with which hosts."""

    make: Callable[[BenchLab], contextlib.AbstractContextManager[str]]
    kinds: tuple[str, ...]
    hosts: Callable[[BenchLab], set[str]]


def suspect(bench: BenchLab) -> str:
    """Return the host that every fault of one host has."""
    return bench.names[4]


def suspects_rack(bench: BenchLab) -> set[str]:
    """Return the hosts of the suspect's rack."""
    rack = bench.racks[bench.names.index(suspect(bench))]
    return {name for name, number in zip(bench.names, bench.racks, strict=True) if number == rack}


@contextlib.contextmanager
def healthy_lab(bench: BenchLab) -> Iterator[str]:
    yield bench.hosts_file


@contextlib.contextmanager
def shaped(bench: BenchLab, target: str, rate: str) -> Iterator[str]:
    if bench.plink("lab", "shape", target, "--rate", rate, "--name", bench.name).code:
        raise SystemExit(f"{target} could not be shaped")
    try:
        yield bench.hosts_file
    finally:
        bench.plink("lab", "heal", "--name", bench.name)


@contextlib.contextmanager
def _changed(bench: BenchLab, commands: list[str], back: list[str], ip: bool = False) -> Iterator[str]:
    """Run commands of tc (or ip) in the suspect's namespace, and undo them."""
    namespace = bench.blueprint.namespace(suspect(bench))
    run = kernel.ip if ip else kernel.tc
    run(commands, namespace)
    try:
        yield bench.hosts_file
    finally:
        run(back, namespace)


@contextlib.contextmanager
def _lossy(bench: BenchLab) -> Iterator[str]:
    """Drop one in 32 of the probes and answers that the suspect sends.

    The 125th byte of a packet is of its signature, so it is random; a device that is down drops what it gets.
    """
    namespace = bench.blueprint.namespace(suspect(bench))
    kernel.ip(["link add sink0 type ifb"], namespace)
    one_in_32_of_udp = "u32 match ip protocol 17 0xff match u32 0x0 0x1f000000 at 124"
    redirect = "action mirred egress redirect dev sink0"
    commands = ["qdisc add dev eth0 clsact", f"filter add dev eth0 egress protocol ip {one_in_32_of_udp} {redirect}"]
    with _changed(bench, commands, ["qdisc del dev eth0 clsact"]) as hosts:
        yield hosts
    kernel.ip(["link del sink0"], namespace)


@contextlib.contextmanager
def _half_duplex(bench: BenchLab) -> Iterator[str]:
    """Send both directions of the suspect through one shaper of its rate."""
    namespace = bench.blueprint.namespace(suspect(bench))
    kernel.ip(["link add ifb0 type ifb", "link set ifb0 mtu 9000 up"], namespace)
    redirect = "protocol all u32 match u32 0 0 action mirred egress redirect dev ifb0"
    shaper = f"qdisc add dev ifb0 root tbf rate {_HOST_RATE} burst 64kb limit 1mb"
    filters = [f"filter add dev eth0 {way} {redirect}" for way in ("egress", "ingress")]
    with _changed(bench, [shaper, "qdisc add dev eth0 clsact", *filters], ["qdisc del dev eth0 clsact"]) as hosts:
        yield hosts
    kernel.ip(["link del ifb0"], namespace)


@contextlib.contextmanager
def _skewed(bench: BenchLab) -> Iterator[str]:
    """Put the clock of the suspect's Python 90 s ahead: hosts of a lab share the kernel's clock."""
    (bench.folder / "sitecustomize.py").write_text("import time\n_now = time.time\ntime.time = lambda: _now() + 90\n")
    state = LabState(bench.name)
    configuration = state.file(suspect(bench), "sshd.conf")
    text = configuration.read_text()
    _configure(bench, text.replace("SetEnv ", f"SetEnv PYTHONPATH={bench.folder} "))
    try:
        yield bench.hosts_file
    finally:
        _configure(bench, text)


def _configure(bench: BenchLab, text: str) -> None:
    """Restart the suspect's sshd with another configuration."""
    state = LabState(bench.name)
    state.file(suspect(bench), "sshd.conf").write_text(text)
    pid = sshd.required_process(bench.blueprint, suspect(bench), state)
    os.kill(pid, signal.SIGHUP)
    time.sleep(1)


FAULTS = {
    "healthy": Fault(healthy_lab, (), lambda bench: set()),
    "slow host": Fault(
        lambda bench: shaped(bench, suspect(bench), "20mbit"), ("slow host (bandwidth)",), lambda b: {suspect(b)}
    ),
    "slow uplink": Fault(
        lambda bench: shaped(bench, f"rack{bench.racks[bench.names.index(suspect(bench))]}", "40mbit"),
        ("slow shared link",),
        suspects_rack,
    ),
    "lossy link": Fault(_lossy, ("loss",), lambda bench: {suspect(bench)}),
    "small MTU": Fault(
        lambda bench: _changed(bench, ["link set eth0 mtu 1400"], ["link set eth0 mtu 9000"], ip=True),
        ("MTU mismatch",),
        lambda bench: {suspect(bench)},
    ),
    "half duplex": Fault(_half_duplex, ("half duplex",), lambda bench: {suspect(bench)}),
    "skewed clock": Fault(_skewed, ("clock offset",), lambda bench: {suspect(bench)}),
}


def _findings(bench: BenchLab, hosts: str) -> list[dict[str, Any]]:
    """Return what the doctor finds as typed."""
    done = subprocess.run(
        [sys.executable, "-m", "plink", "doctor", hosts, "--json"],
        capture_output=True, text=True, cwd=bench.folder, check=False,
    )  # fmt: skip
    if done.returncode not in (0, 1):
        raise SystemExit(done.stderr)
    findings: list[dict[str, Any]] = json.loads(done.stdout)["findings"]
    return findings


def _score(fault: Fault, bench: BenchLab, findings: list[dict[str, Any]]) -> dict[str, Any]:
    """Return whether the fault is named, and what else is said."""
    hosts = fault.hosts(bench)
    named = [row for row in findings if row["kind"] in fault.kinds and set(row["hosts"]) == hosts]
    others = [row for row in findings if row not in named and row["severity"] != "info"]
    return {
        "found": bool(named) or not fault.kinds,
        "others": [f"{row['severity']}: {row['kind']}: {', '.join(row['hosts'])}: {row['evidence']}" for row in others],
    }


def _figures(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Return how often a fault was named, all false errors, and the most false warnings of a run."""
    false = {severity: [sum(text.startswith(severity) for text in run["others"]) for run in runs]
             for severity in ("error", "warning")}  # fmt: skip
    return {
        "runs": len(runs),
        "found": sum(run["found"] for run in runs),
        "false_errors": sum(false["error"]),
        "false_warnings": max(false["warning"], default=0),
        "others": [run["others"] for run in runs],
    }


def main() -> int:
    """Run and record; the exit code."""
    rounds: dict[str, list[dict[str, Any]]] = {name: [] for name in FAULTS}
    size = ("--racks", str(_RACKS), "--hosts-per-rack", str(_HOSTS_PER_RACK), "--host-rate", _HOST_RATE, "--seed", "7")
    with lab(*size) as bench:
        for _ in range(_ROUNDS):
            for name, fault in FAULTS.items():
                with fault.make(bench) as hosts:
                    rounds[name].append(_score(fault, bench, _findings(bench, hosts)))
                print(name, rounds[name][-1], flush=True)
    figures = {name: _figures(runs) for name, runs in rounds.items()}
    configuration = {"racks": _RACKS, "hosts_per_rack": _HOSTS_PER_RACK, "host_rate": _HOST_RATE, "rounds": _ROUNDS}
    return record("advice", configuration, figures, bars_of(figures))


def bars_of(figures: dict[str, Any]) -> list[Bar]:
    """Return what is wanted: each fault named every time; a healthy lab without errors and with one warning at most."""
    healthy = figures["healthy"]
    return [
        Bar("healthy lab, errors in all probes", healthy["false_errors"], at_most=0),
        Bar("healthy lab, warnings in a probe", healthy["false_warnings"], at_most=1),
        *(
            Bar(f"{name}, probes that name it", row["found"], at_least=max(1, row["runs"]))
            for name, row in figures.items()
            if name != "healthy"
        ),
    ]


if __name__ == "__main__":
    sys.exit(main())
