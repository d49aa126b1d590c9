"""Faults of a lab, and their repair: slow, lossy, late and cut links, dead hosts, cross traffic."""

import contextlib
import json
import os
import signal
import subprocess
import time
from dataclasses import asdict
from typing import Any

from plink.errors import PlinkError, UsageError
from plink.model.lab import HostStatus, LabStatus, LinkStatus
from runners.lab import impairments, kernel, links, sshd
from runners.lab.blueprint import Blueprint, Place
from runners.lab.links import Cable
from runners.lab.state import LabState

MAX_LOAD_S = 600
_LOAD_PORT = 5990


def _find(blueprint: Blueprint, target: str) -> list[Cable]:
    """Return the cables of a host, an interface (``node-03/eth1``), a switch, or the uplink of a rack or pod.

    :raises UsageError: when the lab has no such part.
    """
    by_target = links.cables(blueprint)
    if cables := by_target.get(target):
        return cables
    kinds = [f"hosts are {blueprint.places[0].name} to {blueprint.places[-1].name}"]
    interfaces = [name for name in by_target if "/" in name]
    parts = {"racks": blueprint.racks, "pods": blueprint.pods, "switches": blueprint.switches, "interfaces": interfaces}
    for kind, names in parts.items():
        kinds += [f"{kind} {names[0]} to {names[-1]}"] if names else []
    raise UsageError(f"lab {blueprint.settings.name!r} has no {target!r}; {', '.join(kinds)}")


def _place(blueprint: Blueprint, target: str) -> Place | None:
    """Return a host, None for another part of the lab.

    :raises UsageError: when the lab has no such part.
    """
    _find(blueprint, target)
    return next((place for place in blueprint.places if place.name == target), None)


def shape(blueprint: Blueprint, target: str, rate: int) -> None:
    """Limit what a host, an interface of it, a switch, or the uplink of a rack or pod, can send and receive."""
    for cable in _find(blueprint, target):
        links.limit(cable, rate)


def impair(
    blueprint: Blueprint, state: LabState, target: str, loss: float | None = None, delay_us: int | None = None
) -> str:
    """Lose a share of the packets of a target each way, or delay what it sends; return what does it.

    :param loss: 0 to 1; None: as it was; so ``delay_us``.
    :raises UsageError: as :func:`runners.lab.impairments.impair`.
    """
    cables, planted = _find(blueprint, target), impairments.impairments(state).get(target, impairments.Impairment())
    wanted = impairments.Impairment(
        planted.loss if loss is None else loss, planted.delay_us if delay_us is None else delay_us
    )
    return impairments.impair(blueprint, state, target, cables, wanted)


def cut(blueprint: Blueprint, target: str) -> None:
    """Unplug a host, an interface of it, a switch, or the uplink of a rack or pod: packets vanish without an error."""
    for cable in _find(blueprint, target):
        kernel.ip([f"link set {cable.far[1]} down"], cable.far[0])


def part(blueprint: Blueprint, first: str, second: str) -> None:
    """Partition two racks from each other only: packets between them vanish without an error."""
    for target in (first, second):
        _find(blueprint, target)
    if not {first, second} <= set(blueprint.racks) or first == second:
        raise UsageError(f"only two racks can be partitioned: not {first} and {second}")
    numbers = [blueprint.racks.index(first), blueprint.racks.index(second)]
    for here, there in (numbers, numbers[::-1]):
        away = [*(place.address for place in blueprint.in_rack(there)), blueprint.gateway(there)]
        lines = [f"route replace blackhole {address}/32" for address in away]
        kernel.ip(lines, blueprint.namespace(blueprint.racks[here]))


def kill(blueprint: Blueprint, target: str) -> None:
    """Power a host off: unplug it first, so that its connections do not end visibly, then kill every process."""
    if _place(blueprint, target) is None:
        raise UsageError(f"{target} is no host: kill hosts, or `cut {target}`")
    for name in (target, f"{target}/mgmt0"):
        if name in links.cables(blueprint):
            cut(blueprint, name)
    kernel.kill_all(blueprint.namespace(target))


def heal(blueprint: Blueprint, state: LabState) -> None:
    """Undo every fault: plug links in, reset rates, start dead hosts, end cross traffic."""
    all_cables = {cable for cables in links.cables(blueprint).values() for cable in cables}
    impairments.remove_all(state, list(all_cables))
    for cable in all_cables:
        namespace, device = cable.far
        kernel.ip([f"link set {device} up", *cable.routes], namespace)
        if cable.rate != links.NO_LIMIT:
            links.limit(cable, cable.rate)
    for name in blueprint.racks:
        kernel.ip(["route flush type blackhole"], blueprint.namespace(name))
    for place in blueprint.places:
        _end_load(state, place)
        if sshd.process(blueprint, place.name, state) is None:
            kernel.kill_all(blueprint.namespace(place.name))
            sshd.start(blueprint, place, state)


def load(blueprint: Blueprint, state: LabState, source: str, sink: str, rate: int, seconds: int) -> None:
    """UDP cross traffic from one host to another, ended by itself after ``seconds`` (at most ten minutes).

    :raises UsageError: for two that are not hosts. :raises PlinkError: when one of them is dead.
    """
    if not 1 <= seconds <= MAX_LOAD_S:
        raise UsageError(f"--duration: give 1 s to {MAX_LOAD_S} s")
    here, there = (_place(blueprint, name) for name in (source, sink))
    if here is None or there is None or here == there:
        raise UsageError("load runs from one host to another host")
    for place in (here, there):
        sshd.required_process(blueprint, place.name, state)
    _end_load(state, here)
    _end_load(state, there)
    client = ["-c", there.address, "-p", str(_LOAD_PORT), "-u", "-b", str(rate), "-t", str(seconds)]
    server = ["-s", "-1", "-B", there.address, "-p", str(_LOAD_PORT)]
    for place, words in ((there, server), (here, client)):
        pid_file = state.file(place.name, "load.pid")
        # The shell's script is fixed; it notes its own process id, which is timeout's after exec.
        script = 'echo $$ > "$1"; shift; exec timeout "$@"'
        argv = ["setsid", "--fork", "ip", "netns", "exec", blueprint.namespace(place.name), "sh", "-c", script, "sh"]
        try:
            nothing = subprocess.DEVNULL
            words = [*argv, str(pid_file), str(seconds + 5), "iperf3", *words]
            subprocess.run(words, check=True, stdin=nothing, stdout=nothing, stderr=nothing, timeout=10)
        except (OSError, subprocess.SubprocessError) as error:
            raise PlinkError(f"cannot start iperf3 on {place.name}: {error}") from None
        if place is there:
            _await_listener(blueprint, place)


def _await_listener(blueprint: Blueprint, place: Place) -> None:
    for _ in range(200):
        listening = kernel.query(
            ["ip", "netns", "exec", blueprint.namespace(place.name), "ss", "-Hltn", f"sport = :{_LOAD_PORT}"]
        )
        if listening.strip():
            return
        time.sleep(0.02)
    raise PlinkError(f"iperf3 does not listen on {place.name}; is it installed?")


def _end_load(state: LabState, place: Place) -> None:
    pid_file = state.file(place.name, "load.pid")
    if pid_file.exists():
        pid = int(pid_file.read_text().strip() or 0)
        with contextlib.suppress(ProcessLookupError, FileNotFoundError):
            if pid and "timeout" in _command(pid):
                os.kill(pid, signal.SIGTERM)
        pid_file.unlink()


def _command(pid: int) -> str:
    with open(f"/proc/{pid}/cmdline") as file:
        return file.read()


def status(blueprint: Blueprint, state: LabState) -> LabStatus:
    """Return the status of links (racks, pods, switches, then interfaces of hosts) and of hosts, as the kernel reports
    it."""
    by_target = links.cables(blueprint)
    namespaces = {cable.far[0] for cables in by_target.values() for cable in cables}
    devices, wrong = {namespace: _devices(namespace) for namespace in namespaces}, impairments.impairments(state)

    def seen(target: str) -> dict[str, Any]:
        ports, planted = [cable.far for cable in by_target[target]], wrong.get(target, impairments.Impairment())
        return {
            "name": target,
            "connected": any(device in devices[namespace][0] for namespace, device in ports),
            "rate": min(devices[namespace][1].get(device, 0) for namespace, device in ports),
            **asdict(planted),
        }

    hosts = tuple(
        HostStatus(
            address=place.address, alive=sshd.process(blueprint, place.name, state) is not None, **seen(place.name)
        )
        for place in blueprint.places
    )
    names = {place.name for place in blueprint.places}
    targets = [target for target in by_target if target not in names and not target.endswith("/mgmt0")]
    parts = tuple(LinkStatus(**seen(target)) for target in sorted(targets, key=lambda target: "/" in target))
    return LabStatus(name=state.name, links=parts, hosts=tuple(hosts))


def _devices(namespace: str) -> tuple[set[str], dict[str, int]]:
    """Return the devices that are up, and the rate (bit/s) of each one's tbf."""
    shown = json.loads(kernel.query(["ip", "-n", namespace, "-json", "link", "show"]))
    disciplines = json.loads(kernel.query(["tc", "-n", namespace, "-json", "qdisc", "show"]))
    up = {link["ifname"] for link in shown if "UP" in link["flags"]}
    # tc reports bytes per second
    return up, {q["dev"]: 8 * q["options"]["rate"] for q in disciplines if q["kind"] == "tbf"}
