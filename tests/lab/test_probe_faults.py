"""Whatever breaks during a probe: what could be measured is in the file, the rest is null with a reason, and resume
completes it."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from solvers.costs.fabric import fabric_of
from tests.conftest import Lab, plink
from tests.lab.jobs import Running
from tests.lab.probing import (
    QUICK,
    agents,
    await_probes,
    datagrams,
    document,
    firewall,
    holes,
    hosts_file,
    network,
    of,
    partly,
    probe,
    reasons,
    succeeded,
    used,
)
from tests.lab.traces import HERE
from tests.lab.waiting import until

pytestmark = pytest.mark.lab
Start = Callable[..., Running]
# The command line with a fleet that gives a silent host up after two seconds instead of thirty.
IMPATIENT = (
    "import sys, plink.transport.fleet as fleet; fleet.LEASE_S = 2.0\n"
    "from plink.cli.entry import run; sys.exit(run(sys.argv[1:]))"
)


def test_hosts_of_three_rates(patient: Lab, tmp_path: Path) -> None:
    """Two at 40 Mbit/s, one at 3/4 of it and one at half: a default probe tells each host's rate."""
    planted = dict(zip(patient.hosts.names, (40, 30, 20, 40), strict=True))
    for name, mbit in planted.items():
        assert patient.plink("shape", name, "--rate", f"{mbit}mbit", cwd=HERE).returncode == 0
    succeeded(probe(patient, tmp_path, *QUICK))
    measured = network(tmp_path)
    fabric = fabric_of(measured)
    for rates in (fabric.host_out_gbps, fabric.host_in_gbps):
        for name, gbps in zip(measured.hosts.names, rates, strict=True):
            assert 1000 * gbps == pytest.approx(planted[name], rel=0.1)


def no_agents(lab: Lab, hosts: list[str] | None = None) -> None:
    """Agents end by themselves, soon."""
    for host in hosts or lab.hosts.names:
        until(lambda host=host: not agents(lab, host), 15, f"the agent on {host} to end")  # type: ignore[misc]


def under_way(
    lab: Lab, folder: Path, start: Start, host: str, names: list[str] | None = None, count: str = "40000"
) -> Running:
    """A long probe in the middle of a measurement of this host."""
    before = datagrams(lab, host)
    words = ("-o", "n.json", "--no-shared-links", "--count", count)
    running = start("probe", str(hosts_file(lab, folder, names)), *words)
    await_probes(lab, host, before)
    return running


def finished(running: Running) -> "subprocess.CompletedProcess[str]":
    """The end of it."""
    code = running.ends(120)
    return subprocess.CompletedProcess([], code, running.out, running.err)


def test_a_pair_that_a_firewall_parts_is_null_with_a_reason(small_lab: Lab, tmp_path: Path) -> None:
    a, b = small_lab.hosts.names[:2]
    with firewall(small_lab, a, f"from {small_lab.hosts.by_name()[b].address} ipproto udp"):
        error = partly(probe(small_lab, tmp_path, *QUICK))
        assert error.startswith("plink: error: 2 round trips are missing, first ")
        assert error.rstrip().endswith("`plink probe ... --resume --method auto` tries other methods")
        network_document = document(tmp_path)
        assert holes(network_document) == {(a, b), (b, a)}
        assert reasons(network_document) == {"no probe was answered; check firewalls and security groups"}
        partly(probe(small_lab, tmp_path, *QUICK, "--resume"))
    succeeded(probe(small_lab, tmp_path, *QUICK, "--resume"))
    again = document(tmp_path)
    assert holes(again) == set()
    measured = [
        (i, j)
        for i, row in enumerate(network_document["latency_us"])
        for j, us in enumerate(row)
        if us is not None and i != j
    ]
    assert all(again["latency_us"][i][j] == network_document["latency_us"][i][j] for i, j in measured)


def test_a_host_that_udp_does_not_reach_is_completed_by_another_method(small_lab: Lab, tmp_path: Path) -> None:
    names = small_lab.hosts.names[:3]
    odd = names[1]
    with firewall(small_lab, odd, "ipproto udp"):
        partly(probe(small_lab, tmp_path, *QUICK, names=names))
        assert holes(document(tmp_path)) == of([odd], names)
        succeeded(probe(small_lab, tmp_path, *QUICK, "--resume", "--method", "icmp", names=names))
    network_document = document(tmp_path)
    assert holes(network_document) == set()
    assert {pair for pair, method in used(network_document, "method").items() if method == "icmp"} == of([odd], names)


def test_hosts_that_tcp_does_not_reach_are_one_line(small_lab: Lab, tmp_path: Path) -> None:
    """UDP and SSH get through: round trips are complete, and bandwidths are those of the other hosts."""
    names = small_lab.hosts.names
    closed, open_hosts = names[1], [name for name in names if name != names[1]]
    with firewall(small_lab, closed, "ipproto tcp dport 1024-65534"):
        done = probe(small_lab, tmp_path, "--count", "60", "--bandwidth", timeout=180)
    partly(done)
    (line,) = [line for line in done.stderr.splitlines() if "closed: " in line]
    assert f"closed: {closed}: TCP is blocked" in line
    measured = document(tmp_path)
    assert holes(measured) == set()
    missing = {(row["from"], row["to"]) for row in measured["bandwidth_errors"]}
    assert missing == of([closed], names)
    assert {row["to"] for row in measured["host_flows"]} == set(open_hosts)
    findings = json.loads(plink("doctor", "n.json", "--json", cwd=tmp_path).stdout)["findings"]
    assert [finding["hosts"] for finding in findings if finding["kind"] == "closed"] == [[closed]]


def test_an_agent_that_is_killed_costs_its_pairs_only(patient: Lab, tmp_path: Path, start: Start) -> None:
    host = patient.hosts.names[0]
    running = under_way(patient, tmp_path, start, host)
    (pid,) = agents(patient, host)
    os.kill(pid, signal.SIGKILL)
    partly(finished(running))
    network_document = document(tmp_path)
    missing = holes(network_document)
    assert missing
    assert missing <= of([host], patient.hosts.names)
    assert all(reason.startswith(f"{host}: its agent is gone") for reason in reasons(network_document))
    no_agents(patient)
    succeeded(probe(patient, tmp_path, *QUICK, "--resume"))
    assert holes(document(tmp_path)) == set()


def test_a_host_that_loses_power_in_the_middle_costs_its_pairs_only(patient: Lab, tmp_path: Path) -> None:
    """Its connection is not closed: nobody is told."""
    host = patient.hosts.names[1]
    words = [str(hosts_file(patient, tmp_path)), "-o", "n.json", "--no-shared-links", "--count", "40000"]
    before = datagrams(patient, host)
    argv = [sys.executable, "-c", IMPATIENT, "probe", *words]
    with subprocess.Popen(argv, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
        try:
            await_probes(patient, host, before)
            assert patient.plink("kill", host, cwd=HERE).returncode == 0
            _, printed = process.communicate(timeout=120)
        finally:
            process.kill()
    partly(subprocess.CompletedProcess(argv, process.returncode, "", printed))
    network_document = document(tmp_path)
    assert holes(network_document) <= of([host], patient.hosts.names)
    assert holes(network_document)
    no_agents(patient)
    assert patient.plink("heal", cwd=HERE).returncode == 0
    succeeded(probe(patient, tmp_path, *QUICK, "--resume"))
    assert holes(document(tmp_path)) == set()


def test_a_host_whose_sshd_is_stopped_is_left_out(patient: Lab, tmp_path: Path) -> None:
    host = patient.hosts.names[3]
    os.kill(int(patient.state.file(host, "sshd.pid").read_text()), signal.SIGTERM)
    partly(probe(patient, tmp_path, *QUICK))
    network_document = document(tmp_path)
    assert holes(network_document) == of([host], patient.hosts.names)
    assert reasons(network_document) == {f"{host}: SSH connection refused; is sshd running, and on this port?"}
    assert network_document["machines"][3] is None
    assert patient.plink("heal", cwd=HERE).returncode == 0
    succeeded(probe(patient, tmp_path, *QUICK, "--resume"))
    assert all(document(tmp_path)["machines"])


@pytest.mark.parametrize("what", ["changed", "unknown"])
def test_a_host_key_that_is_not_the_one_noted_is_refused(what: str, small_lab: Lab, tmp_path: Path) -> None:
    host, other = small_lab.hosts.names[:2]
    addresses = [small_lab.hosts.by_name()[name].address for name in (host, other)]
    known_hosts = small_lab.state.identity.known_hosts
    lines = dict(line.split(" ", 1) for line in known_hosts.read_text().splitlines())
    whole = known_hosts.read_text()
    if what == "changed":
        lines[addresses[0]] = lines[addresses[1]]
    else:
        del lines[addresses[0]]
    try:
        known_hosts.write_text("".join(f"{address} {key}\n" for address, key in lines.items()))
        partly(probe(small_lab, tmp_path, *QUICK))
    finally:
        known_hosts.write_text(whole)
    network_document = document(tmp_path)
    assert holes(network_document) == of([host], small_lab.hosts.names)
    (reason,) = reasons(network_document)
    assert "its host key has CHANGED" in reason if what == "changed" else "is not known" in reason
    succeeded(probe(small_lab, tmp_path, *QUICK, "--resume"))


def test_a_host_that_does_not_take_the_key_is_left_out(patient: Lab, tmp_path: Path) -> None:
    host = patient.hosts.names[0]
    conf, log = (patient.state.file(host, kind) for kind in ("sshd.conf", "sshd.log"))
    whole = conf.read_text()
    pid = int(patient.state.file(host, "sshd.pid").read_text())

    def restart(text: str) -> None:
        conf.write_text(text)
        listens = log.read_text().count("Server listening")
        os.kill(pid, signal.SIGHUP)
        until(lambda: log.read_text().count("Server listening") > listens, 10, "sshd to listen again")

    try:
        restart(whole.replace("authorized_keys", "no_such_keys"))
        partly(probe(patient, tmp_path, *QUICK))
    finally:
        restart(whole)
    network_document = document(tmp_path)
    assert holes(network_document) == of([host], patient.hosts.names)
    (reason,) = reasons(network_document)
    assert "SSH log-in refused" in reason
    succeeded(probe(patient, tmp_path, *QUICK, "--resume"))


@pytest.mark.parametrize("older", [b"", b'{"schema": "plink.network/1"}\n'])
def test_a_full_disk_is_one_clear_error_and_no_half_file(older: bytes, small_lab: Lab, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)], check=True)
    try:
        if older:
            (disk / "n.json").write_bytes(older)
        with contextlib.suppress(OSError), (disk / "filler").open("wb", buffering=0) as filler:
            while True:
                filler.write(bytes(4096))
        file = hosts_file(small_lab, tmp_path, small_lab.hosts.names[:2])
        done = plink("probe", str(file), "-o", str(disk / "n.json"), *QUICK, cwd=tmp_path)
        assert done.returncode == 1
        (error,) = [line for line in done.stderr.splitlines() if "error" in line]
        assert error == f"plink: error: cannot write {disk / 'n.json'}: No space left on device"
        assert "Traceback" not in done.stderr
        assert sorted(path.name for path in disk.iterdir()) == ["filler", *(["n.json"] if older else [])]
        assert not older or (disk / "n.json").read_bytes() == older
    finally:
        subprocess.run(["umount", str(disk)], check=True)
    no_agents(small_lab)


def test_a_second_probe_of_the_same_hosts_is_refused_and_the_first_goes_on(
    small_lab: Lab, tmp_path: Path, start: Start
) -> None:
    """And one that shares some hosts measures the others."""
    names, second = small_lab.hosts.names, tmp_path / "second"
    second.mkdir()
    running = under_way(small_lab, tmp_path, start, names[0], names[:2], count="400000")
    done = probe(small_lab, second, *QUICK, names=names[:2])
    assert done.returncode == 1
    assert "another plink probe is running on it" in done.stderr
    assert not (second / "n.json").exists()
    partly(probe(small_lab, second, *QUICK))
    assert holes(document(second)) == of(names[:2], names)
    assert all("another plink probe is running on it" in reason for reason in reasons(document(second)))
    assert running.process.poll() is None, "the first probe was to outlast the others"
    succeeded(finished(running))
    assert holes(document(tmp_path)) == set()


def program(name: str) -> str:
    """Where a program is, which the lab needs."""
    path_ = shutil.which(name)
    assert path_ is not None, name
    return path_


@contextlib.contextmanager
def hidden(lab: Lab, host: str, *files: str) -> Iterator[None]:
    """Files that a host's logins do not see: something that is empty and cannot be run lies over them."""
    pid = lab.state.file(host, "sshd.pid").read_text().strip()
    inside = ["nsenter", "--target", pid, "--mount", "--root"]
    for file in files:
        subprocess.run([*inside, "mount", "--bind", "/dev/null", file], check=True)
    try:
        yield
    finally:
        for file in files:
            subprocess.run([*inside, "umount", file], check=True)


def test_a_host_without_iperf3_says_so_and_its_round_trips_are_there(small_lab: Lab, tmp_path: Path) -> None:
    a, b = small_lab.hosts.names[:2]
    words = (*QUICK, "--bandwidth", "--streams", "2", "--bandwidth-bytes", "5MB")
    with hidden(small_lab, b, program("iperf3")):
        partly(probe(small_lab, tmp_path, *words, names=[a, b]))
    network_document = document(tmp_path)
    assert {row["why"] for row in network_document["bandwidth_errors"]} == {
        f"{b}: iperf3 is not installed there",
        f"iperf3 on {b}: iperf3 is not installed there",
    }
    assert reasons(network_document) == set()
    assert network_document["bandwidth_gbps"][0][1] is None
    assert network_document["bandwidth_gbps"][1][0] is None
    assert all(us is not None for row in network_document["latency_us"] for us in row)
    succeeded(probe(small_lab, tmp_path, *words, "--resume", names=[a, b]))
    network_document = document(tmp_path)
    assert network_document["errors"] == []
    assert network_document["bandwidth_gbps"][0][1] > 0
    assert network_document["bandwidth_gbps"][1][0] > 0


def test_a_host_without_fping_pings_by_scapy(small_lab: Lab, tmp_path: Path) -> None:
    a, b = small_lab.hosts.names[:2]
    # What a person's own .bashrc says of PATH must not decide which python3, and so whether there is a Scapy.
    settings = [str(path) for path in [Path("~root/.bashrc").expanduser()] if path.exists()]
    with hidden(small_lab, a, program("fping"), *settings):
        succeeded(probe(small_lab, tmp_path, *QUICK, "--method", "icmp", names=[a, b]))
    network_document = document(tmp_path)
    racks = small_lab.racks
    assert network_document["hops"][0][1] == (0 if racks[a] == racks[b] else 3)
    assert set(used(network_document, "method").values()) == {"icmp"}


def test_agents_end_when_their_controller_is_killed(small_lab: Lab, tmp_path: Path, start: Start) -> None:
    running = under_way(small_lab, tmp_path, start, small_lab.hosts.names[0])
    assert all(agents(small_lab, host) for host in small_lab.hosts.names)
    running.process.kill()
    running.process.wait()
    no_agents(small_lab)
    succeeded(probe(small_lab, tmp_path, *QUICK))


def test_ctrl_c_keeps_what_was_measured(small_lab: Lab, tmp_path: Path, start: Start) -> None:
    running = under_way(small_lab, tmp_path, start, small_lab.hosts.names[0], count="4000")
    until((tmp_path / "n.json").exists, 60, "the first round to be written")
    running.process.send_signal(signal.SIGINT)
    assert running.ends(20) == 130
    assert "Traceback" not in running.err
    assert "--resume" in running.err
    no_agents(small_lab)
    assert document(tmp_path)["schema"] == "plink.network/1"
    succeeded(probe(small_lab, tmp_path, *QUICK, "--resume"))
    assert holes(document(tmp_path)) == set()
