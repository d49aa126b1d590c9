"""Probes of lab hosts for the tests: a hosts file, what a probe wrote, agents at work, firewalls on a host."""

import contextlib
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from plink.model.hosts import Hosts, render_hosts
from plink.model.network import Network, network_from_json
from runners.lab import kernel
from tests.conftest import Lab, plink
from tests.lab.traces import command_line, inside
from tests.lab.waiting import until

QUICK = ("--count", "60", "--no-shared-links")
Done = subprocess.CompletedProcess[str]


def hosts_file(lab: Lab, folder: Path, names: list[str] | None = None) -> Path:
    """The lab's hosts, or those named in that order."""
    hosts_by_name = lab.hosts.by_name()
    path = folder / "hosts.txt"
    path.write_text(render_hosts(Hosts(tuple(hosts_by_name[name] for name in names or hosts_by_name), lab.name)))
    return path


def probe(lab: Lab, folder: Path, *words: str, names: list[str] | None = None, timeout: float = 120) -> Done:
    """``plink probe`` of the lab's hosts into ``n.json``."""
    return plink("probe", str(hosts_file(lab, folder, names)), "-o", "n.json", *words, cwd=folder, timeout=timeout)


def document(folder: Path) -> dict[str, Any]:
    """What the probe wrote."""
    document_: dict[str, Any] = json.loads((folder / "n.json").read_text())
    return document_


def network(folder: Path) -> Network:
    """The same, as other commands read it."""
    return network_from_json(document(folder), "n.json")


def holes(document_: dict[str, Any]) -> set[tuple[str, str]]:
    """The pairs (from, to) without a round trip; each must have a reason in the file, and nothing else may have one."""
    names = [host["name"] for host in document_["hosts"]]
    rows = document_["latency_us"]
    missing = {
        (a, b) for a, row in zip(names, rows, strict=True) for b, us in zip(names, row, strict=True) if us is None
    }
    assert {(error["from"], error["to"]) for error in document_["errors"]} == missing
    assert all(error["why"] for error in document_["errors"])
    return missing


def of(names: set[str] | list[str], everybody: list[str]) -> set[tuple[str, str]]:
    """All pairs, both ways, with one of these hosts."""
    return {(a, b) for a in everybody for b in everybody if a != b and (a in names or b in names)}


def reasons(document_: dict[str, Any]) -> set[str]:
    """Why round trips are missing."""
    return {error["why"] for error in document_["errors"]}


def used(document_: dict[str, Any], what: str) -> dict[tuple[str, str], str]:
    """The ``method`` or the ``clock`` by which each round trip was measured."""
    names, words = [host["name"] for host in document_["hosts"]], document_[f"{what}s"]
    rows = document_[f"{what}_used"]
    return {
        (a, b): words[rows[i][j]] for i, a in enumerate(names) for j, b in enumerate(names) if a != b and rows[i][j]
    }


def agents(lab: Lab, host: str) -> list[int]:
    """Process ids of the agents on a host."""
    pids = kernel.pids(lab.blueprint.namespace(host))
    return [pid for pid in pids if "plink-agent" in command_line(pid) or "bundle = json" in command_line(pid)]


def datagrams(lab: Lab, host: str) -> int:
    """How many UDP packets a host has sent so far."""
    lines = inside(lab, host, "cat", "/proc/net/snmp").stdout.splitlines()
    names, values = (line.split() for line in lines if line.startswith("Udp: "))
    return int(values[names.index("OutDatagrams")])


def await_probes(lab: Lab, host: str, before: int, more: int = 200) -> None:
    """Wait until a host is in the middle of a measurement: ``before`` is what :func:`datagrams` said earlier."""
    until(lambda: datagrams(lab, host) >= before + more, 60, f"probes from {host}")


@contextlib.contextmanager
def firewall(lab: Lab, host: str, *selectors: str) -> Iterator[None]:
    """Packets that reach a host and match one of these (``ip rule`` selectors: ``ipproto udp``) are dropped silently.

    A rule of its own before the local table: it needs no package, as iptables would.
    """
    lines = [f"rule add pref {5 + k} iif eth0 {selector} blackhole" for k, selector in enumerate(selectors)]
    namespace = lab.blueprint.namespace(host)
    kernel.ip(["rule add pref 100 lookup local", "rule del pref 0", *lines], namespace)
    try:
        yield
    finally:
        undo = [f"rule del pref {5 + k}" for k in range(len(selectors))]
        kernel.ip(["rule add pref 0 lookup local", "rule del pref 100", *undo], namespace)


def succeeded(done: Done) -> None:
    """A probe that found everything."""
    assert done.returncode == 0, done.stderr
    assert "plink: error" not in done.stderr


def partly(done: Done) -> str:
    """The one error of a probe that did not find everything."""
    assert done.returncode == 3, done.stderr
    (error,) = [line for line in done.stderr.splitlines() if line.startswith("plink: error: ")]
    assert "--resume" in error
    assert "Traceback" not in done.stderr
    return error
