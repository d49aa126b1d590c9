"""Flows over each interface: who meets whom, at which address, and what is recorded."""

import random
from typing import Any

import pytest

from probes.host_flows import FlowSettings
from probes.interface_flows import measure_interfaces, port_rounds
from probes.session import ProbeSession
from tests.networks import details_from, keys_of
from tests.probes.fake_fleet import FakeFleet, flows, session_of
from tests.solvers.ordering.test_interfaces import made


@pytest.mark.parametrize(("base", "levels"), [(2, 2), (2, 3), (3, 2), (4, 2), (5, 2)])
def test_each_interface_meets_two_others_of_its_switch(base: int, levels: int) -> None:
    """The other end of a cable, once; no host is in two pairs at a time."""
    switches = made(base, levels, random.Random(base))
    on = {port: number for number, switch in enumerate(switches) for port in switch}
    partners: dict[tuple[int, int], set[tuple[int, int]]] = {port: set() for port in on}
    rounds = port_rounds(switches)
    for pairs in rounds:
        hosts = [host for pair in pairs for host, _ in pair]
        assert len(set(hosts)) == len(hosts)
        for a, b in pairs:
            assert on[a] == on[b]
            partners[a].add(b)
            partners[b].add(a)
    assert {len(met) for met in partners.values()} == {1 if base == 2 else 2}
    assert len(rounds) <= 4 * levels + 1


def measured(entry: dict[str, Any], gbps: dict[str, float]) -> tuple[FakeFleet, ProbeSession]:
    """A session of three hosts whose flows have the rate of their receiver's port; ports are their addresses'."""
    fleet = FakeFleet(flows(lambda host, body: gbps[host]))
    session = session_of(fleet, 3)
    session.measurements.details = details_from({"interfaces": entry})
    measure_interfaces(session, FlowSettings())
    return fleet, session


def rails_entry() -> dict[str, Any]:
    return {
        "names": [["eth0", "eth1"]] * 3, "used": [[None, 0, 0], [0, None, 0], [0, 0, None]],
        "relays": [[None] * 3] * 3, "switches": [[[host, rail] for host in range(3)] for rail in range(2)],
        "addresses": [[None, f"10.1.0.{host}"] for host in range(3)],
    }  # fmt: skip


def test_flow_rates_and_addresses_by_rail() -> None:
    entry = rails_entry()
    fleet, session = measured(entry, {"h0": 1.0, "h1": 2.0, "h2": 3.0})
    entry = keys_of(session.measurements.details)["interfaces"]
    assert entry["in_gbps"] == [[1.0, 1.0], [2.0, 2.0], [3.0, 3.0]]
    assert entry["out_gbps"] == [[3.0, 3.0], [3.0, 3.0], [2.0, 2.0]]
    peers = {body["peer"][0] for _, _, body in fleet.sent if "send_token" in body}
    rail = {"10.1.0.0", "10.1.0.1", "10.1.0.2"}
    assert rail < peers
    assert {body["address"] for _, _, body in fleet.sent if "address" in body} == rail  # there they listen, too
    sent = len(fleet.sent)
    measure_interfaces(session, FlowSettings())  # as a run that resumes
    assert len(fleet.sent) == sent


def test_a_flow_that_fails_leaves_no_rate() -> None:
    entry = rails_entry()
    entry["switches"] = entry["switches"][1:]
    entry["names"], entry["addresses"] = [["eth0", "eth1"]] * 3, [[None, None]] * 3
    _, session = measured(entry, {"h0": 1.0, "h1": -1.0, "h2": 3.0})  # a rate that cannot be
    entry = keys_of(session.measurements.details)["interfaces"]
    assert entry["out_gbps"] == [[None, 3.0], [None, 3.0], [None, 1.0]]
    assert entry["in_gbps"] == [[None, 1.0], [None, None], [None, 3.0]]


def test_hosts_of_one_interface_are_not_measured() -> None:
    fleet = FakeFleet(lambda host, body: (0.0, {}))
    measure_interfaces(session_of(fleet, 3), FlowSettings())
    assert fleet.sent == []
