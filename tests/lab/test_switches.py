"""Hosts with several interfaces: a BCube whose hosts pass packets on, and rails."""

import itertools
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from plink.features.diagnose.run import diagnose
from plink.features.order.interfaces import interface_topology
from plink.model.network import read_network
from plink.model.order import read_order
from tests.conftest import Lab, lab_up, plink
from tests.lab.jobs import Running, write_script
from tests.lab.probing import network, probe, succeeded
from tests.lab.test_faults import do, of_host, reaches, read_status
from tests.lab.test_links import routers_between, transfer
from tests.lab.traces import HERE, inside
from tests.lab.waiting import until

pytestmark = pytest.mark.lab


@pytest.fixture(scope="module")
def cables() -> Iterator[Lab]:
    """Four hosts in a square of cables, BCube(2,2): two interfaces of 60 Mbit/s each."""
    lab = lab_up(f"q{os.getpid()}", "--topology", "bcube", "--base", "2", "--host-rate", "60mbit", "--seed", "3")
    yield lab
    lab.plink("down", cwd=HERE)


def square(lab: Lab) -> tuple[str, str, str, str]:
    """The first host, its neighbours by level, and the host across."""
    digits = {place.name: place.digits for place in lab.blueprint.places}
    name = lab.hosts.names[0]
    low, high = digits[name]
    by_digits = {value: name for name, value in digits.items()}
    return name, by_digits[1 - low, high], by_digits[low, 1 - high], by_digits[1 - low, 1 - high]


def test_a_neighbour_passes_packets_on_where_two_digits_differ(cables: Lab) -> None:
    name, by_eth0, by_eth1, across = square(cables)
    assert [routers_between(cables, name, other) for other in (by_eth0, by_eth1, across)] == [0, 0, 1]


def test_each_interface_has_the_rate_of_its_own(cables: Lab) -> None:
    """One that is slow leaves the other as it is."""
    name, by_eth0, by_eth1, _ = square(cables)
    do(cables, "shape", f"{name}/eth1", "--rate", "20mbit")
    try:
        assert 45 < transfer(cables, name, by_eth0) < 65
        assert 14 < transfer(cables, by_eth1, name) < 22
    finally:
        do(cables, "heal")
    assert 45 < transfer(cables, name, by_eth1) < 65


def test_a_cut_interface_takes_its_own_neighbours_away(cables: Lab) -> None:
    name, by_eth0, by_eth1, _ = square(cables)
    before = read_status(cables)
    do(cables, "cut", f"{name}/eth0")
    assert not reaches(cables, name, by_eth0)
    assert reaches(cables, name, by_eth1)
    assert of_host(cables, name)["connected"]  # by its other interface
    do(cables, "heal")
    until(lambda: reaches(cables, name, by_eth0), 5, "the neighbour to answer")
    assert read_status(cables) == before


def test_a_switch_is_cut_off_and_healed(cables: Lab) -> None:
    name, by_eth0, by_eth1, _ = square(cables)
    place = next(place for place in cables.blueprint.places if place.name == name)
    switch = cables.blueprint.switches_of(place)[1]
    do(cables, "cut", switch)
    assert reaches(cables, name, by_eth0)
    assert not reaches(cables, name, by_eth1)
    assert next(row["name"] for row in read_status(cables)["links"] if not row["connected"]) == switch
    do(cables, "heal")
    until(lambda: reaches(cables, name, by_eth1), 5, "the switch to carry packets")


def test_a_killed_host_is_silent_on_every_interface(cables: Lab) -> None:
    """The controller's connections do not end visibly either."""
    name = cables.hosts.names[0]
    address = cables.hosts.by_name()[name].address
    do(cables, "kill", name)
    try:
        assert inside(cables, "ctl", "ping", "-c1", "-W1", address).returncode != 0
    finally:
        do(cables, "heal")
    until(lambda: inside(cables, "ctl", "ping", "-c1", "-W1", address).returncode == 0, 5, "the host to answer")


def test_interfaces_are_recognised_and_ordered(cables: Lab, tmp_path: Path) -> None:
    """The ranks of a square: exchanges of one digit go over one cable."""
    succeeded(probe(cables, tmp_path, "--count", "100"))
    shape = interface_topology(network(tmp_path))
    assert shape is not None
    assert "BCube(2,2)" in shape.text
    assert plink("reorder", "n.json", "--algo", "bml", "-o", "order.json", cwd=tmp_path).returncode == 0
    hosts = read_order(tmp_path / "order.json").hosts
    digits = {place.name: place.digits for place in cables.blueprint.places}
    for rank, level in itertools.product(range(4), range(2)):
        first, second = digits[hosts[rank]], digits[hosts[rank ^ (1 << level)]]
        assert sum(a != b for a, b in zip(first, second, strict=True)) == 1


def test_doctor_names_an_interface_that_reaches_nobody(cables: Lab, tmp_path: Path) -> None:
    name = cables.hosts.names[0]
    do(cables, "cut", f"{name}/eth1")
    try:
        done = plink("doctor", str(cables.hosts_file), "--json", cwd=tmp_path)
    finally:
        do(cables, "heal")
    assert done.returncode == 1
    findings = [row for row in json.loads(done.stdout)["findings"] if row["kind"] == "interface"]
    assert any(f"{name}/eth1" in row["evidence"] for row in findings)


def test_doctor_names_a_host_that_passes_nothing_on(cables: Lab, tmp_path: Path) -> None:
    name, across = square(cables)[1:3]
    forward = ("sysctl", "-qw")
    inside(cables, name, *forward, "net.ipv4.ip_forward=0")
    try:
        done = plink("doctor", str(cables.hosts_file), "--json", cwd=tmp_path)
    finally:
        inside(cables, name, *forward, "net.ipv4.ip_forward=1")
    findings = [row for row in json.loads(done.stdout)["findings"] if row["kind"] == "relay"]
    (hosts,) = [row["hosts"] for row in findings]
    assert name in hosts
    assert set(hosts) <= {name, across}  # the way back may lead through the other one


def test_no_host_of_rails_is_a_relay() -> None:
    """Every pair is on every rail, by an address of its own; without a rail the other one still carries."""
    lab = lab_up(f"r{os.getpid()}", "--topology", "rails", "--rails", "2", "--hosts-per-rack", "3", "--seed", "3")
    try:
        first, other = lab.blueprint.places[:2]
        ping = ("ping", "-c1", "-W1")
        for rail in range(2):
            shown = inside(lab, first.name, *ping, "-I", first.on_rail(rail), other.on_rail(rail))
            assert "ttl=64" in shown.stdout
        do(lab, "cut", "rail0")
        reached = [inside(lab, first.name, *ping, other.on_rail(rail)).returncode == 0 for rail in range(2)]
        assert reached == [False, True]
    finally:
        lab.plink("down", cwd=HERE)


def test_a_dead_rail_is_named_though_all_round_trips_are_measured(tmp_path: Path) -> None:
    """By the probe, whose exit code says that something is missing, and of its file; a run that resumes finds it up."""
    lab = lab_up(f"rd{os.getpid()}", "--topology", "rails", "--rails", "2", "--hosts-per-rack", "4", "--seed", "3")
    try:
        name = lab.hosts.names[2]
        do(lab, "cut", f"{name}/eth1")
        done = probe(lab, tmp_path, "--count", "50")
        assert done.returncode == 3, done.stderr
        assert f"{name}/eth1" in done.stderr
        (finding,) = diagnose(network(tmp_path))
        assert (finding.kind, finding.hosts) == ("interface", [name])
        do(lab, "heal")
        succeeded(probe(lab, tmp_path, "--count", "50", "--resume"))
        assert not diagnose(network(tmp_path))
    finally:
        lab.plink("down", cwd=HERE)


def test_a_slow_interface_is_measured_and_named_with_its_host(cables: Lab, tmp_path: Path) -> None:
    """Of a cable with its other end; what the others carry is in the network's file."""
    name, _, by_eth1, _ = square(cables)
    do(cables, "shape", f"{name}/eth1", "--rate", "6mbit")
    try:
        done = plink("doctor", str(cables.hosts_file), "--json", cwd=tmp_path)
        succeeded(probe(cables, tmp_path, "--count", "50"))
    finally:
        do(cables, "heal")
    findings = [row for row in json.loads(done.stdout)["findings"] if row["kind"] == "slow interface"]
    assert len(findings) == 1
    assert set(findings[0]["hosts"]) == {name, by_eth1}
    assert f"{name}/eth1" in findings[0]["evidence"]
    entry = network(tmp_path).interfaces
    assert entry is not None
    rates = {
        (host, device): rate
        for host, devices, row in zip(network(tmp_path).hosts.names, entry.names, entry.out_gbps, strict=True)
        for device, rate in zip(devices, row, strict=True)
    }
    assert rates.pop((name, "eth1")) < 0.01
    assert rates.pop((by_eth1, "eth1")) < 0.01
    assert min(rates.values()) > 0.04


_LONG = """
import sys, time
import torch, torch.distributed as dist
dist.init_process_group("gloo")
data = torch.empty(4_000_000)
for turn in range(3):
    data.fill_(dist.get_rank() + 1)
    print("begins", turn, flush=True)
    dist.all_reduce(data)
    assert torch.all(data == dist.get_world_size() * (dist.get_world_size() + 1) / 2), "a wrong sum"
print("right sums", flush=True)
dist.destroy_process_group()
"""


def test_a_cable_that_is_cut_for_seconds_costs_no_sum(cables: Lab, tmp_path: Path) -> None:
    """In mid all-reduce: TCP stalls and goes on."""
    succeeded(probe(cables, tmp_path, "--count", "50"))
    assert plink("reorder", "n.json", "--algo", "bml", "-o", "order.json", cwd=tmp_path).returncode == 0
    script = write_script(tmp_path, _LONG)
    running = Running(
        tmp_path, "launch", "--hosts", str(cables.hosts_file), "--order", "order.json", "--backend", "bml", script
    )
    try:
        running.await_lines(4, "begins 0", 60)
        do(cables, "cut", f"{cables.hosts.names[0]}/eth1")
        time.sleep(4)
        assert running.process.poll() is None
        assert "right sums" not in running.out
        do(cables, "heal")
        assert running.process.wait(90) == 0, running.err
        assert running.out.count("right sums") == 4
    finally:
        do(cables, "heal")
        running.process.kill()


def test_a_job_uses_all_rails(tmp_path: Path) -> None:
    """Rings of its channels on two rails of 20 Mbit/s: more than one rail could carry; sums are right."""
    rails = ("--topology", "rails", "--rails", "2", "--hosts-per-rack", "3", "--host-rate", "20mbit", "--seed", "3")
    lab = lab_up(f"rl{os.getpid()}", *rails)
    try:
        succeeded(plink("probe", str(lab.hosts_file), "--count", "50", cwd=tmp_path))
        entry = read_network(tmp_path / ".plink" / "network.json").interfaces
        assert entry is not None
        assert all(0.015 < rate < 0.021 for row in entry.out_gbps or () for rate in row if rate is not None)
        script = write_script(tmp_path, _LONG.replace("4_000_000", "500_000"))
        done = plink(
            "launch",
            "--hosts",
            str(lab.hosts_file),
            "--order",
            "given",
            "--backend",
            "multi-ring",
            script,
            cwd=tmp_path,
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.count("right sums") == 3
        assert "2 rails: eth0, eth1" in done.stderr
        carried = [counters(lab, lab.hosts.names[0], f"eth{rail}") for rail in range(2)]
        assert min(carried) > 0.6 * max(carried) > 3_000_000
    finally:
        lab.plink("down", cwd=HERE)


def counters(lab: Lab, host: str, device: str) -> int:
    """The bytes that a host's interface has sent."""
    return int(inside(lab, host, "cat", f"/sys/class/net/{device}/statistics/tx_bytes").stdout)
