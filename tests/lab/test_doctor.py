"""`plink doctor` on lab hosts: what was broken on purpose is named, with its evidence and what to do."""

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runners.lab import kernel
from tests.conftest import Lab, plink
from tests.lab.jobs import Running
from tests.lab.probing import agents, await_probes, datagrams, firewall, hosts_file
from tests.lab.traces import HERE

pytestmark = pytest.mark.lab


def diagnosis(lab: Lab, folder: Path) -> tuple[int, dict[str, Any]]:
    """Exit code and what is said as JSON."""
    done = plink("doctor", str(hosts_file(lab, folder)), "--json", cwd=folder)
    assert "Traceback" not in done.stderr
    assert "defect" not in done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    assert document["ok"] == all(finding["severity"] == "info" for finding in document["findings"])
    assert all(finding["evidence"] and finding["advice"] for finding in document["findings"])
    return done.returncode, document


def of_kind(document: dict[str, Any], kind: str) -> list[list[str]]:
    """Whose findings of one kind."""
    return [finding["hosts"] for finding in document["findings"] if finding["kind"] == kind]


def test_the_facts_of_every_host_are_there(small_lab: Lab, tmp_path: Path) -> None:
    """Whether a busy machine makes a link look slow meanwhile is not this test's matter."""
    code, document = diagnosis(small_lab, tmp_path)
    assert code == (0 if document["ok"] else 1)
    assert document["schema"] == "plink.doctor/1"
    assert set(document["hosts"]) == set(small_lab.hosts.names)
    for name, facts in document["hosts"].items():
        assert (facts["hostname"], facts["interface"], facts["mtu"]) == (name, "eth0", 9000)
        assert facts["stamps"] is True
        assert facts["tools"]["iperf3"]
        assert facts["clocksource"]
    kinds = {finding["kind"] for finding in document["findings"]}
    assert kinds <= {"slow host", "slow link", "asymmetric", "clock source", "governor"}


def test_another_mtu_is_named_with_the_command_that_sets_it(small_lab: Lab, tmp_path: Path) -> None:
    odd = small_lab.hosts.names[1]
    kernel.ip(["link set eth0 mtu 1500"], small_lab.blueprint.namespace(odd))
    try:
        code, document = diagnosis(small_lab, tmp_path)
    finally:
        kernel.ip(["link set eth0 mtu 9000"], small_lab.blueprint.namespace(odd))
    assert code == 1
    assert of_kind(document, "MTU mismatch") == [[odd]]
    (finding,) = [finding for finding in document["findings"] if finding["kind"] == "MTU mismatch"]
    assert finding["evidence"] == "MTU 1500, the others have 9000"
    assert "ip link set" in finding["advice"]


def test_slow_host_is_named_and_remeasured(patient: Lab, tmp_path: Path) -> None:
    slow = patient.hosts.names[0]
    # A burst lets one jumbo frame through and, for what is added to each, ten small packets: the tenth percentile of a
    # thousand is one that has waited.
    shaped = ["qdisc replace dev eth0 root handle 1: tbf rate 20mbit burst 10kb overhead 900 limit 4mb"]
    kernel.tc(shaped, patient.blueprint.namespace(slow))
    done = plink("doctor", str(hosts_file(patient, tmp_path)), cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    assert done.stdout.startswith(f"error: slow host: {slow}: ")
    assert "when measured again" in done.stdout.splitlines()[0]
    assert done.stderr.splitlines()[-1].startswith("plink: error: ")


def test_lossy_and_late_hosts_are_named(patient: Lab, tmp_path: Path) -> None:
    lossy, late = patient.hosts.names[0], patient.hosts.names[3]
    assert patient.plink("loss", lossy, "--percent", "5", cwd=HERE).returncode == 0
    assert patient.plink("delay", late, "--time", "1ms", cwd=HERE).returncode == 0
    code, document = diagnosis(patient, tmp_path)
    assert code == 1
    assert of_kind(document, "loss") == [[lossy]]
    assert of_kind(document, "slow host") == [[late]]


def test_a_pair_that_a_firewall_parts_is_named_with_its_reason(small_lab: Lab, tmp_path: Path) -> None:
    a, b = small_lab.hosts.names[:2]
    with firewall(small_lab, a, f"from {small_lab.hosts.by_name()[b].address} ipproto udp"):
        code, document = diagnosis(small_lab, tmp_path)
    assert code == 1
    (finding,) = [finding for finding in document["findings"] if finding["kind"] == "unmeasured"]
    assert set(finding["hosts"][:2]) == {a, b}
    assert "1 pair was not measured" in finding["evidence"]
    assert "firewall" in finding["evidence"]


def test_a_host_without_udp_is_one_finding(small_lab: Lab, tmp_path: Path) -> None:
    host = small_lab.hosts.names[1]
    with firewall(small_lab, host, "ipproto udp"):
        _, document = diagnosis(small_lab, tmp_path)
    assert of_kind(document, "closed") == [[host]]
    assert of_kind(document, "unmeasured") == []


def test_hosts_that_cannot_reach_the_others_are_named_within_a_minute(patient: Lab, tmp_path: Path) -> None:
    """A rack's link to another is cut, and the SSH server of a third one's host accepts and then hangs."""
    racks = [[place.name for place in patient.blueprint.in_rack(rack)] for rack in range(2)]
    assert patient.plink("cut", "rack0", "--from", "rack1", cwd=HERE).returncode == 0
    hangs, began = racks[1].pop(), time.monotonic()
    server = int(patient.state.file(hangs, "sshd.pid").read_text())
    os.kill(server, signal.SIGSTOP)
    try:
        code, document = diagnosis(patient, tmp_path)
    finally:
        os.kill(server, signal.SIGCONT)
    assert time.monotonic() - began < 60
    assert code == 1
    assert of_kind(document, "unreachable") == [[hangs]]
    (hosts,) = of_kind(document, "partition")
    assert set(hosts) == {*racks[0], *racks[1]}


def test_a_host_that_cannot_be_reached_is_named_and_the_others_are_examined(patient: Lab, tmp_path: Path) -> None:
    host = patient.hosts.names[2]
    os.kill(int(patient.state.file(host, "sshd.pid").read_text()), signal.SIGTERM)
    code, document = diagnosis(patient, tmp_path)
    assert code == 1
    assert of_kind(document, "unreachable") == [[host]]
    assert set(document["hosts"]) == set(patient.hosts.names) - {host}
    done = plink("doctor", "hosts.txt", cwd=tmp_path)
    assert "plink: 3 hosts reached, 3 of 6 pairs measured\n" in done.stderr


def test_a_host_that_dies_in_the_middle_is_named(patient: Lab, tmp_path: Path, start: Callable[..., Running]) -> None:
    host = patient.hosts.names[2]
    # The rounds take seconds so, and more packets than the preflight sends mean that they have begun.
    kernel.tc(["qdisc replace dev eth0 root tbf rate 1mbit burst 10kb limit 4mb"], patient.blueprint.namespace(host))
    before = datagrams(patient, host)
    running = start("doctor", str(hosts_file(patient, tmp_path)), "--json")
    await_probes(patient, host, before, more=400)
    (pid,) = agents(patient, host)
    os.kill(pid, signal.SIGKILL)
    assert running.ends(60) == 1
    document = json.loads(running.out)
    assert of_kind(document, "unreachable") == [[host]]
    assert document["findings"][0]["evidence"].startswith("its agent is gone")


def test_one_host_has_no_network(small_lab: Lab, tmp_path: Path) -> None:
    done = plink("doctor", str(hosts_file(small_lab, tmp_path, small_lab.hosts.names[:1])), cwd=tmp_path)
    assert done.returncode == 2
    assert "has no network to diagnose" in done.stderr


def test_an_address_that_its_lab_has_not_is_named(small_lab: Lab, tmp_path: Path) -> None:
    file = hosts_file(small_lab, tmp_path)
    file.write_text(f"{file.read_text()}node-99 address=198.18.255.1\n")
    done = plink("doctor", str(file), cwd=tmp_path)
    reason = f"198.18.255.1 is no address of lab '{small_lab.name}'; its own are what `plink lab hosts --name"
    assert done.returncode == 2
    assert done.stderr == f"plink: error: node-99: {reason} {small_lab.name}` prints\n"
