"""Flows over each interface: who meets whom, at which address, and what is recorded."""

import random
from typing import Any

import pytest

from plink.model.network_file import was_tried
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


def rails_entry(hosts: int = 3) -> dict[str, Any]:
    return {
        "names": [["eth0", "eth1"]] * hosts,
        "used": [[None if i == j else 0 for j in range(hosts)] for i in range(hosts)],
        "relays": [[None] * hosts] * hosts, "switches": [[[host, rail] for host in range(hosts)] for rail in range(2)],
        "addresses": [[None, f"10.1.0.{host}"] for host in range(hosts)],
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


def rail_with_two_dead() -> ProbeSession:
    """Of four on a rail the first and the third carry nothing."""
    listening: dict[str, str | None] = {}

    def behave(host: str, body: dict[str, Any]) -> tuple[float, dict[str, Any]] | None:
        if body["method"] == "flow_listen":
            listening[host] = body.get("address")
            return 0.01, {"port": 5000}
        rail = (body["peer"][0] if "peer" in body else listening[host]) or ""
        if rail.startswith("10.1.") and host in ("h0", "h2"):
            return None
        return body["seconds"], {"gbps": 1.0} if "receive_token" in body else {}

    session = session_of(FakeFleet(behave), 4)
    session.measurements.details = details_from({"interfaces": rails_entry(4)})
    return session


def test_an_interface_between_two_dead_ones_is_not_dead() -> None:
    """All flows of the second and the fourth failed, too."""
    session = rail_with_two_dead()
    measure_interfaces(session, FlowSettings())
    entry = keys_of(session.measurements.details)["interfaces"]
    assert entry["out_gbps"] == entry["in_gbps"] == [[1.0, None], [1.0, 1.0], [1.0, None], [1.0, 1.0]]
    assert [[bool(reason) for reason in row] for row in entry["why"]] == [[False, k % 2 == 0] for k in range(4)]


def test_without_time_to_tell_which_are_dead_none_is() -> None:
    session, rounds = rail_with_two_dead(), list[int]()

    def keep_going() -> bool:
        rounds.append(1)
        return len(rounds) <= len(port_rounds(rails_entry(4)["switches"]))

    measure_interfaces(session, FlowSettings(), keep_going=keep_going)
    entry = keys_of(session.measurements.details)["interfaces"]
    assert [row[1] for row in entry["out_gbps"]] == [None] * 4
    assert not any(was_tried(row[1]) for row in entry["why"])


def test_why_an_interface_has_no_rate_is_on_record_where_it_was_tried() -> None:
    """Of three ports that each of three hosts has on one switch those in the middle meet their own host's alone."""
    entry = rails_entry()
    _, session = measured(entry, {"h0": 1.0, "h1": 1.0, "h2": 0.0})
    assert [row[1] is None for row in keys_of(session.measurements.details)["interfaces"]["why"]] == [True, True, False]
    entry["names"], entry["addresses"] = [["eth0", "eth1", "eth2"]] * 3, [[None] * 3] * 3
    entry["switches"] = [[[host, k] for host in range(3) for k in range(3)]]
    _, session = measured(entry, {"h0": 1.0, "h1": 1.0, "h2": 1.0})
    entry = keys_of(session.measurements.details)["interfaces"]
    assert (entry["out_gbps"], "why" in entry) == ([[1.0, None, 1.0]] * 3, False)


def test_a_run_that_resumes_measures_again_where_flows_failed() -> None:
    """What the earlier one measured stays when there is no time."""
    rates, reasons = [[1.0, 1.0], [1.0, 1.0], [1.0, None]], [[None, None], [None, None], [None, "timed out"]]
    earlier = rails_entry() | {"out_gbps": rates, "in_gbps": rates, "why": reasons}
    session = session_of(FakeFleet(flows(lambda host, body: 2.0)), 3)
    session.measurements.details = before = details_from({"interfaces": earlier})
    measure_interfaces(session, FlowSettings(), keep_going=lambda: False)
    assert session.measurements.details == before
    measure_interfaces(session, FlowSettings())
    entry = keys_of(session.measurements.details)["interfaces"]
    assert (entry["out_gbps"], "why" in entry) == ([[2.0, 2.0]] * 3, False)


def test_hosts_of_one_interface_are_not_measured() -> None:
    fleet = FakeFleet(lambda host, body: (0.0, {}))
    measure_interfaces(session_of(fleet, 3), FlowSettings())
    assert fleet.sent == []
