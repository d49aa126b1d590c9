"""Both ways of a pair at once, and one after the other where they disturb each other."""

import numpy as np
import pytest

from probes.flow_reference import FlowReference
from probes.methods import ProbeSettings
from probes.session import ProbeSession
from tests.networks import details_from, keys_of
from tests.probes.fake_fleet import FakeFleet, flows, session_of


def session_with(alone: float, both: float) -> tuple[FakeFleet, ProbeSession]:
    """Hosts that had 2 Gbit/s; a flow has ``alone``, and ``both`` while another goes the other way."""
    fleet = FakeFleet(flows(lambda host, body: both if "send_token" in body else alone))
    session = session_of(fleet, 4, ProbeSettings(bandwidth_s=0.25))
    session.measurements.details = details_from(
        {
            "host_flows": [
                {"from": f"h{a}", "to": f"h{b}", "gbps": 2.0, "both_ways": False}
                for a, b in ((0, 1), (1, 0), (2, 3), (3, 2))
            ]
        }
    )
    return fleet, session


def measure(session: ProbeSession, pairs: list[tuple[int, int]]) -> None:
    """Measure pairs."""
    session.context.flow_reference = FlowReference(session.measurements)
    ProbeSession.measure(session, pairs, "flow", lambda: None)


@pytest.mark.parametrize(("alone", "both", "sent"), [(2.0, 1.9, 2), (2.0, 1.0, 6), (1.0, 1.0, 6)])
def test_a_pair_below_its_hosts_is_measured_one_way_at_a_time(alone: float, both: float, sent: int) -> None:
    """As fast as its hosts were: one exchange. Half duplex, or simply slow: two flows more."""
    fleet, session = session_with(alone, both)
    measure(session, [(0, 2)])
    assert sum(body["method"] == "flow_exchange" for _, _, body in fleet.sent) == sent
    assert (
        session.measurements.bandwidth_matrix()[[0, 2], [2, 0]].tolist()
        == [both if sent == 2 else max(alone, both)] * 2
    )


def test_slow_pairs_are_not_repeated_for_ever() -> None:
    fleet, session = session_with(1.0, 1.0)
    session.context.flow_reference = FlowReference(session.measurements)
    for a, b in [(0, 1), (2, 3), (0, 2), (1, 3), (0, 3), (1, 2)]:
        ProbeSession.measure(session, [(a, b)], "flow", lambda: None)
    exchanges = [body for _, _, body in fleet.sent if body["method"] == "flow_exchange"]
    assert sum("send_token" in body and "receive_token" in body for body in exchanges) == 6 * 2
    assert len(exchanges) == 6 * 2 + 8 * 2


def test_a_shared_link_is_no_reason_to_repeat() -> None:
    """Its one flow alone says what can be expected across it."""
    fleet, session = session_with(1.0, 1.0)
    row = {"members": ["h0", "h1"], "out_one_flow_gbps": 1.0, "in_one_flow_gbps": 1.0}
    session.measurements.details = details_from(
        keys_of(session.measurements.details) | {"shared_links": [{"groups": [row]}]}
    )
    measure(session, [(0, 2)])
    assert sum(body["method"] == "flow_exchange" for _, _, body in fleet.sent) == 2


def test_without_earlier_flows_one_way_follows_the_other() -> None:
    fleet, session = session_with(1.0, 1.0)
    session.measurements.details = details_from({})
    measure(session, [(0, 2)])
    assert sum(body["method"] == "flow_exchange" for _, _, body in fleet.sent) == 4
    assert np.isfinite(session.measurements.bandwidth_matrix()).sum() == 2
