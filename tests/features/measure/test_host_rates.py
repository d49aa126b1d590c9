"""What every host sends and receives, where a firewall lets UDP through and not TCP."""

from collections.abc import Collection
from typing import Any

import numpy as np
import pytest

import probes.host_flows
from plink.features.measure.host_rates import measure_host_rates, unreached_by_flows
from plink.model.diagnosis import Finding
from plink.model.network import Network
from probes.host_flows import FlowSettings
from probes.session import ProbeSession
from solvers.diagnosis.findings import rate_findings
from tests.probes.fake_fleet import FakeFleet, session_of

TIMEOUT_S = 5.0  # of an agent that waits for a flow


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probes.host_flows, "DRAIN_S", 0.0)


def session_with(
    closed: Collection[str], hosts: int = 8, per_rack: int = 4, slower: Collection[str] = ()
) -> tuple[FakeFleet, ProbeSession]:
    """Hosts in racks, with round trips. Those that are ``closed`` get no TCP connection; what they open comes through,
    as with a security group. Those that are ``slower`` receive 0.7 Gbit/s, the others 1."""

    def behave(host: str, body: dict[str, Any]) -> tuple[float, dict[str, Any]]:
        if body["method"] == "flow_listen":
            return 0.01, {"port": 5000}
        if "receive_token" not in body:
            return body["seconds"], {"sent_bytes": 1}
        if host in closed:
            return TIMEOUT_S, {"error": "the flow's sender did not connect"}
        return body["seconds"], {"gbps": 0.7 if host in slower else 1.0}

    fleet = FakeFleet(behave)
    session = session_of(fleet, hosts)
    rack = np.arange(hosts) // per_rack
    session.measurements.latency[:] = np.where(rack[:, None] == rack, 40.0, 90.0)
    np.fill_diagonal(session.measurements.latency, 0.0)
    return fleet, session


def closed_findings(network: Network) -> list[Finding]:
    """Findings of hosts without TCP, in a probe and in a diagnosis alike."""
    return [finding for finding in rate_findings(network) if finding.kind == "closed"]


def test_finding_of_hosts_without_tcp() -> None:
    fleet, session = session_with(("h3", "h5"))
    measure_host_rates(session, FlowSettings())
    network = session.measurements.network()
    (finding,) = closed_findings(network)
    assert finding.hosts == ["h3", "h5"]
    assert {row.target for row in network.host_flows} == {f"h{k}" for k in range(8)} - {"h3", "h5"}
    assert {row.source for row in network.host_flows} == {f"h{k}" for k in range(8)}
    assert {row.target for row in network.host_flow_errors} == {"h3", "h5"}
    assert fleet.now < 5 * TIMEOUT_S


def test_where_no_host_has_tcp_one_round_says_so() -> None:
    fleet, session = session_with([f"h{k}" for k in range(8)])
    measure_host_rates(session, FlowSettings())
    network = session.measurements.network()
    (finding,) = closed_findings(network)
    assert finding.hosts == [f"h{k}" for k in range(8)]
    assert network.host_flows == []
    assert fleet.now < 3 * TIMEOUT_S


def test_a_host_whose_partners_have_no_tcp_is_not_blamed() -> None:
    """It is the third of a rack of which two take no connection."""
    _, session = session_with(("h0", "h1"), hosts=6, per_rack=3)
    measure_host_rates(session, FlowSettings())
    assert unreached_by_flows(session.measurements) == [0, 1]


def test_flows_that_failed_are_measured_again_by_a_run_that_resumes() -> None:
    _, session = session_with(("h3",))
    measure_host_rates(session, FlowSettings())
    opened, again = session_with(())
    again.measurements.details = session.measurements.details
    measure_host_rates(again, FlowSettings())
    assert unreached_by_flows(again.measurements) == []
    assert again.measurements.network().host_flow_errors == []
    sent = len(opened.sent)
    measure_host_rates(again, FlowSettings())
    assert len(opened.sent) == sent


def test_hosts_that_differ_take_one_round_more_at_most() -> None:
    """Those that met slower ones meet others, in as much time as flows of a round take."""
    taken = []
    for slower in ((), [f"h{k}" for k in range(0, 8, 2)]):
        fleet, session = session_with((), slower=slower)
        measure_host_rates(session, FlowSettings())
        taken.append((fleet.now, len(session.measurements.details.host_flows or ())))
    (alike_s, alike_flows), (differing_s, differing_flows) = taken
    assert alike_flows == 2 * 8 // 2 * 4
    assert differing_flows > alike_flows
    assert differing_s - alike_s <= 3 * FlowSettings().seconds


def test_a_host_without_round_trips_is_not_a_host_without_tcp() -> None:
    _, session = session_with(("h3", "h5"))
    measure_host_rates(session, FlowSettings())
    session.measurements.latency[3, :] = session.measurements.latency[:, 3] = np.nan
    (finding,) = closed_findings(session.measurements.network())
    assert finding.hosts == ["h5"]
