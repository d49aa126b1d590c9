"""A lab is broken on purpose and mended: slow links, cut links, dead hosts, cross traffic."""

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Lab
from tests.lab.test_links import address, pairs, transfer
from tests.lab.traces import HERE, guests, inside
from tests.lab.waiting import until

pytestmark = pytest.mark.lab


@pytest.fixture
def patient(small_lab: Lab) -> Iterator[Lab]:
    """A small lab that is healed afterwards, whatever was done to it."""
    yield small_lab
    healed = small_lab.plink("heal", cwd=HERE)
    assert healed.returncode == 0, healed.stderr
    status = read_status(small_lab)
    assert all(host["alive"] and host["connected"] for host in status["hosts"])
    assert all(part["rate"] == 200_000_000 for part in status["hosts"] + status["links"])


def read_status(lab: Lab) -> dict[str, Any]:
    """What `plink lab status --json` prints."""
    done = lab.plink("status", "--json", cwd=HERE)
    assert done.returncode == 0, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def of_host(lab: Lab, name: str) -> dict[str, Any]:
    """One host's row of the status."""
    return next(row for row in read_status(lab)["hosts"] if row["name"] == name)


def do(lab: Lab, *words: str) -> None:
    """A `plink lab` command that must work."""
    done = lab.plink(words[0], *words[1:], cwd=HERE)
    assert done.returncode == 0, done.stderr


def reaches(lab: Lab, source: str, sink: str) -> bool:
    """Whether a ping comes back."""
    return inside(lab, source, "ping", "-c1", "-W1", address(lab, sink)).returncode == 0


def test_status_lists_every_host_and_uplink(small_lab: Lab) -> None:
    """Names, addresses and rates as set, and for a person the same in a table of at most 80 columns."""
    status = read_status(small_lab)
    assert [(row["name"], row["address"]) for row in status["hosts"]] == [(h.name, h.address) for h in small_lab.hosts]
    assert [row["name"] for row in status["links"]] == ["rack0", "rack1"]
    table = small_lab.plink("status", cwd=HERE).stdout
    assert all(host.address in table for host in small_lab.hosts)
    assert max(map(len, table.splitlines())) <= 80


def test_a_slow_host_is_slow(patient: Lab) -> None:
    """`shape HOST` is what TCP gets, sending and receiving."""
    (a, b), _ = pairs(patient)
    do(patient, "shape", a, "--rate", "40mbit")
    assert of_host(patient, a)["rate"] == 40_000_000
    assert 30 < transfer(patient, a, b) < 42
    assert 30 < transfer(patient, b, a) < 42


def test_a_slow_rack_is_slow_to_others_only(patient: Lab) -> None:
    """`shape RACK` narrows its uplink and leaves the traffic inside the rack alone."""
    (a, b), (_, far) = pairs(patient)
    do(patient, "shape", f"rack{patient.racks[a]}", "--rate", "50mbit")
    assert 35 < transfer(patient, a, far) < 53
    assert transfer(patient, a, b) > 150


def pings(lab: Lab, source: str, sink: str) -> tuple[float, float]:
    """The share of 200 pings that is lost, and the shortest round trip in microseconds."""
    done = inside(lab, source, "ping", "-q", "-i0.01", "-c200", "-W1", address(lab, sink))
    lost, shortest = re.search(r"([\d.]+)% packet loss", done.stdout), re.search(r"rtt [^=]*= ([\d.]+)", done.stdout)
    assert lost, done.stdout
    assert shortest, done.stdout
    return float(lost.group(1)) / 100, 1000 * float(shortest.group(1))


@pytest.mark.parametrize("target", ["host", "rack"])
def test_lossy_and_late(patient: Lab, target: str) -> None:
    """Both at once, of what crosses the cable and nothing else; bursts of TCP stay whole."""
    (a, b), (_, far) = pairs(patient)
    name = a if target == "host" else f"rack{patient.racks[a]}"
    do(patient, "delay", name, "--time", "5ms")
    assert transfer(patient, a, far) > 50
    do(patient, "loss", name, "--percent", "20")
    loss, shortest_us = pings(patient, a, far)
    assert 0.15 < loss < 0.6  # of two ways at 20 % each: 36 %
    assert 5000 <= shortest_us < 10_000
    status = read_status(patient)
    (row,) = [row for row in status["hosts"] + status["links"] if row["name"] == name]
    assert (row["loss"], row["delay_us"]) == (0.2, 5000)
    loss, shortest_us = pings(patient, b, next(other for other in patient.hosts.names if other not in (a, b)))
    assert (loss > 0, shortest_us > 5000) == (target == "rack",) * 2
    do(patient, "heal")
    loss, shortest_us = pings(patient, a, far)
    assert loss == 0
    assert shortest_us < 5000
    until(lambda: not guests(patient), 3, "what held packets back to be gone")


def test_partitioned_host_is_silent_without_a_notice(patient: Lab) -> None:
    """It is alive and cut; its rack mate still reaches the others; `heal` brings it back."""
    (a, b), (_, far) = pairs(patient)
    do(patient, "cut", a)
    assert not reaches(patient, a, b)
    assert not reaches(patient, far, a)
    assert reaches(patient, b, far)
    row = of_host(patient, a)
    assert (row["alive"], row["connected"]) == (True, False)
    do(patient, "heal")
    until(lambda: reaches(patient, far, a) and reaches(patient, a, b), 5, "the host to answer")


def test_a_cut_rack_still_talks_among_itself(patient: Lab) -> None:
    """The uplink is cut, the rack's own bridge is not."""
    (a, b), (_, far) = pairs(patient)
    rack = f"rack{patient.racks[a]}"
    do(patient, "cut", rack)
    assert not reaches(patient, a, far)
    assert reaches(patient, a, b)
    assert {row["name"]: row["connected"] for row in read_status(patient)["links"]}[rack] is False
    do(patient, "heal")
    until(lambda: reaches(patient, a, far), 5, "the rack to answer")


def test_two_racks_lose_each_other_and_nobody_else(patient: Lab) -> None:
    """Hosts of both are still reached from the outside, and from their racks."""
    (a, b), (_, far) = pairs(patient)
    mate = next(name for name in patient.hosts.names if name != far and patient.racks[name] == patient.racks[far])
    racks = [f"rack{patient.racks[name]}" for name in (a, far)]
    do(patient, "cut", racks[0], "--from", racks[1])
    assert not reaches(patient, a, far)
    assert not reaches(patient, far, b)
    assert reaches(patient, a, b)
    assert reaches(patient, mate, far)
    do(patient, "heal")
    until(lambda: reaches(patient, a, far) and reaches(patient, far, b), 5, "the racks to find each other")


def test_a_dead_host_has_no_process_and_heal_starts_it(patient: Lab, tmp_path: Path) -> None:
    """`kill` ends all of it; after `heal` its sshd lets us in again, with the same host key."""
    victim = patient.hosts.names[1]
    do(patient, "kill", victim)
    row = of_host(patient, victim)
    assert (row["alive"], row["connected"]) == (False, False)
    dead = patient.plink("exec", victim, "--", "true", cwd=tmp_path)
    assert dead.returncode == 1
    assert f"{victim} is dead" in dead.stderr
    assert "plink lab heal" in dead.stderr
    for ends in ((victim, patient.hosts.names[0]), (patient.hosts.names[0], victim)):
        sent = patient.plink("load", *ends, cwd=tmp_path)
        assert (sent.returncode, sent.stderr) == (1, dead.stderr)
    assert not guests(patient)
    do(patient, "kill", victim)  # twice is once
    do(patient, "heal")
    identity = patient.state.identity
    options = [f"-oUserKnownHostsFile={identity.known_hosts}", "-oBatchMode=yes", "-oConnectTimeout=5"]
    done = inside(
        patient, "ctl", "ssh", "-F/dev/null", "-i", str(identity.key), *options, f"root@{row['address']}", "hostname"
    )
    assert done.stdout == f"{victim}\n", done.stderr


def sends_per_second(lab: Lab, host: str) -> float:
    """Mbit/s that leave a host's interface, over a third of a second."""

    def sent() -> tuple[float, int]:
        text = inside(lab, host, "cat", "/sys/class/net/eth0/statistics/tx_bytes").stdout
        return time.monotonic(), int(text)

    began, first = sent()
    time.sleep(0.3)
    ended, last = sent()
    return (last - first) * 8 / (ended - began) / 1e6


def test_load_runs_at_its_rate_and_ends_by_itself(patient: Lab) -> None:
    """`load` returns at once, sends what was asked for, and leaves no process when its time is over."""
    _, (a, b) = pairs(patient)
    began = time.monotonic()
    do(patient, "load", a, b, "--rate", "50mbit", "--duration", "3s")
    until(lambda: 35 < sends_per_second(patient, a) < 70, 3, "traffic of about 50 Mbit/s")
    until(lambda: not guests(patient), 10, "iperf3 to be gone")
    assert time.monotonic() - began > 2
    assert sends_per_second(patient, a) < 1


def test_heal_ends_load(patient: Lab) -> None:
    """Also when it comes right after."""
    _, (a, b) = pairs(patient)
    do(patient, "load", a, b, "--rate", "20mbit", "--duration", "60s")
    do(patient, "heal")
    until(lambda: not guests(patient), 3, "iperf3 to be gone")


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("cut", "node-99"), 2, "has no 'node-99'"),
        (("cut", "rack9"), 2, "has no 'rack9'"),
        (("cut", "core"), 2, "has no 'core'"),
        (("cut", "rack0", "--from", "node-01"), 2, "only two racks"),
        (("cut", "rack0", "--from", "rack0"), 2, "only two racks"),
        (("cut", "rack0", "--from", "rack9"), 2, "has no 'rack9'"),
        (("kill", "rack0"), 2, "is no host"),
        (("shape", "node-01", "--rate", "quick"), 2, "quick"),
        (("shape", "node-01", "--rate", "0"), 2, "0"),
        (("shape", "node-01", "--rate", "-5mbit"), 2, "-5mbit"),
        (("load", "node-01", "node-01"), 2, "from one host to another"),
        (("load", "node-01", "rack0"), 2, "from one host to another"),
        (("load", "node-01", "node-02", "--duration", "2h"), 2, "--duration"),
        (("load", "node-01", "node-02", "--duration", "0s"), 2, "--duration"),
        (("loss", "rack9"), 2, "has no 'rack9'"),
        (("loss", "node-01", "--percent", "101"), 2, "0 to 100"),
        (("delay", "node-01", "--time", "2s"), 2, "at most 1s"),
        (("exec", "node-99", "--", "true"), 2, "no host 'node-99'"),
        (("exec", "rack0", "--", "true"), 2, "no host 'rack0'"),
    ],
)
def test_unknown_targets_and_values(small_lab: Lab, words: tuple[str, ...], code: int, message: str) -> None:
    """One line that names it, and nothing is done."""
    done = small_lab.plink(words[0], *words[1:], cwd=HERE)
    assert done.returncode == code, done.stderr
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not guests(small_lab)


def test_a_lab_that_is_not_up(tmp_path: Path) -> None:
    """Every command on it says what to type."""
    from tests.conftest import plink

    for words in (("status",), ("hosts",), ("heal",), ("cut", "rack0"), ("exec", "node-01", "--", "true")):
        done = plink("lab", words[0], "--name", "not-there", *words[1:], cwd=tmp_path)
        assert done.returncode == 2
        assert "plink lab up --name not-there" in done.stderr
        assert len(done.stderr.splitlines()) == 1
