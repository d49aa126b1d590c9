"""What the two agents of a pair are told, and what is noted of their answers, by every method."""

from typing import Any

import numpy as np
import pytest

from probes.methods import MeasurementContext, ProbeSettings, probe_task
from probes.session import ProbeSession
from tests.probes.fake_fleet import Behaviour, FakeFleet, round_trips, session_of


def measured(behave: Behaviour, method: str, settings: ProbeSettings | None = None) -> tuple[FakeFleet, ProbeSession]:
    """One pair of two hosts by a method."""
    fleet = FakeFleet(behave)
    session = session_of(fleet, 2, settings)
    session.scheduler.run([probe_task(session.context, method, 0, 1)])
    return fleet, session


def one_sided(host: str, body: dict[str, Any]) -> tuple[float, dict[str, Any]]:
    """h0 gets 30 us, h1 gets 50 us."""
    return 1.0, round_trips(30.0 if host == "h0" else 50.0)


def test_both_ends_of_a_timestamp_pair_get_the_same_request() -> None:
    settings = ProbeSettings(count=1000, window=16, timeout_s=0.5)
    fleet, session = measured(one_sided, "stamp", settings)
    (at_a, a, to_a), (at_b, b, to_b) = fleet.sent
    assert (at_a, a, at_b, b) == (0.0, "h0", 0.0, "h1")
    assert (to_a["peer"], to_b["peer"]) == (["10.0.0.1", 1001], ["10.0.0.0", 1000])
    assert (to_a["ssid_out"], to_a["ssid_in"]) == (to_b["ssid_in"], to_b["ssid_out"])
    assert to_a["ssid_out"] != to_a["ssid_in"]
    for request in (to_a, to_b):
        assert (request["method"], request["count"], request["window"], request["timeout_s"]) == ("pair", 500, 16, 0.5)
    assert session.measurements.latency[0, 1] == 30.0
    assert session.measurements.latency[1, 0] == 50.0


def test_no_session_number_is_used_twice() -> None:
    fleet = FakeFleet(one_sided)
    session = session_of(fleet, 4)
    session.scheduler.run([probe_task(session.context, "stamp", i, j) for i in range(4) for j in range(i + 1, 4)])
    used = [body["ssid_out"] for _, _, body in fleet.sent]
    assert len(used) == len(set(used)) == 12


def errors_of(session: ProbeSession, method: str) -> dict[tuple[int, int], str]:
    """Bandwidths have errors of their own."""
    errors = (session.measurements.errors, session.measurements.bandwidth_errors)
    assert not errors[method != "iperf3"]
    return errors[method == "iperf3"]


def test_one_probe_at_a_time_where_a_kernel_stamps_nothing() -> None:
    """Without stamps at both ends a probe that waits behind others looks slow; there is time for all of them."""
    fleet = FakeFleet(one_sided)
    session = session_of(fleet, 2)
    session.agents[1]["stamps"] = False
    session.scheduler.run([probe_task(session.context, "stamp", 0, 1)])
    assert {host: body["window"] for _, host, body in fleet.sent} == {"h0": 1, "h1": 1}


@pytest.mark.parametrize("method", ["stamp", "iperf3"])
def test_a_host_that_dies_meanwhile_fails_both_directions(method: str) -> None:
    fleet = FakeFleet(lambda host, body: None)
    fleet.lose("h1", 0.5)
    session = session_of(fleet, 2)
    session.scheduler.run([probe_task(session.context, method, 0, 1)])
    reason = "h1: its agent is gone: killed"
    assert errors_of(session, method) == {(0, 1): reason, (1, 0): reason}
    assert fleet.now < 60.0


@pytest.mark.parametrize("method", ["icmp", "iperf3"])
def test_a_host_that_was_gone_before_fails_both_directions(method: str) -> None:
    fleet = FakeFleet(one_sided)
    session = session_of(fleet, 2)
    session.scheduler.mark_lost(0, "SSH connection refused")
    session.scheduler.run([probe_task(session.context, method, 0, 1)])
    reason = "h0: SSH connection refused"
    assert errors_of(session, method) == {(0, 1): reason, (1, 0): reason}
    assert fleet.sent == []


@pytest.mark.parametrize(("method", "max_count"), [("icmp", 200), ("tcp", 100)])
def test_tools_that_pay_for_each_probe_send_fewer(method: str, max_count: int) -> None:
    fleet, session = measured(one_sided, method)
    assert [body["count"] for _, _, body in fleet.sent] == [max_count, max_count]
    assert session.measurements.network().to_json()["methods"][int(session.measurements.method[0, 1])] == method


def test_the_reason_that_a_tool_gives_is_kept() -> None:
    """One direction may fail alone."""

    def behave(host: str, body: dict[str, Any]) -> tuple[float, dict[str, Any]]:
        if host == "h0":
            return 1.0, round_trips(None) | {"error": "neither fping nor Scapy is installed there"}
        return 1.0, round_trips(20.0)

    _, session = measured(behave, "icmp")
    assert session.measurements.errors == {(0, 1): "neither fping nor Scapy is installed there"}
    assert session.measurements.latency[1, 0] == 20.0
    assert session.measurements.missing() == [(0, 1)]


def iperf3_of(rates: dict[str, float]) -> Behaviour:
    """Agents with an iperf3; each sends at its rate."""

    def behave(host: str, body: dict[str, Any]) -> tuple[float, dict[str, Any]]:
        if body["method"] == "iperf3_serve":
            return 0.1, {"port": 5000}
        return 1.0, {"gbps": rates[host], "min_rtt_us": 44}

    return behave


def test_bandwidth_is_measured_one_direction_after_the_other() -> None:
    fleet, session = measured(
        iperf3_of({"h0": 1.0, "h1": 2.0}), "iperf3", ProbeSettings(streams=4, bandwidth_bytes=5_000_000)
    )
    assert [(host, body["method"]) for _, host, body in fleet.sent] == [
        ("h1", "iperf3_serve"),
        ("h0", "iperf3"),
        ("h0", "iperf3_serve"),
        ("h1", "iperf3"),
    ]
    client = fleet.sent[1][2]
    assert (client["peer"], client["streams"], client["bytes"]) == (["10.0.0.1", 5000], 4, 5_000_000)
    assert session.measurements.bandwidth is not None
    assert session.measurements.bandwidth[0, 1] == 1.0
    assert session.measurements.bandwidth[1, 0] == 2.0
    assert session.measurements.latency[0, 1] == 44.0


@pytest.mark.parametrize(
    ("at", "reason"),
    [
        ("iperf3_serve", "h1: iperf3 is not installed there"),
        ("iperf3", "iperf3 on h0: iperf3 is not installed there"),
    ],
)
def test_unmeasured_bandwidth_names_its_cause(at: str, reason: str) -> None:
    def behave(host: str, body: dict[str, Any]) -> tuple[float, dict[str, Any]]:
        if body["method"] == at and (host == "h1") == (at == "iperf3_serve"):
            return 0.1, {"error": "iperf3 is not installed there"}
        return iperf3_of({"h0": 1.0, "h1": 2.0})(host, body)  # type: ignore[return-value]

    _, session = measured(behave, "iperf3")
    assert session.measurements.bandwidth is not None
    assert session.measurements.bandwidth_errors[0, 1] == reason
    assert not session.measurements.errors  # nothing was wrong with a round trip
    assert np.isnan(session.measurements.bandwidth[0, 1])
    assert session.measurements.bandwidth[1, 0] == 2.0


def test_a_flow_runs_one_way_and_then_the_other() -> None:
    def behave(host: str, body: dict[str, Any]) -> tuple[float, dict[str, Any]]:
        if body["method"] == "flow_listen":
            return 0.1, {"port": 5000}
        return body["seconds"], {"gbps": 1.0 if host == "h1" else 2.0} if "receive_token" in body else {}

    fleet, session = measured(behave, "flow", ProbeSettings(bandwidth_s=0.25))
    assert [body["seconds"] for _, _, body in fleet.sent if body["method"] == "flow_exchange"] == [0.25] * 4
    assert session.measurements.bandwidth_matrix()[[0, 1], [1, 0]].tolist() == [1.0, 2.0]
    assert not session.measurements.bandwidth_errors


def test_a_flow_that_fails_one_way_is_tried_the_other_way() -> None:
    def behave(host: str, body: dict[str, Any]) -> tuple[float, dict[str, Any]]:
        if body["method"] == "flow_listen":
            return 0.1, {"port": 5000}
        return body["seconds"], {"gbps": 2.0} if host == "h0" else {"error": "no flow to 10.0.0.1: refused"}

    _, session = measured(behave, "flow")
    assert session.measurements.bandwidth_errors == {(0, 1): "no flow to 10.0.0.1: refused"}
    assert session.measurements.bandwidth_matrix()[1, 0] == 2.0


def test_work_numbers_its_sessions_within_16_bits() -> None:
    import itertools

    fleet = FakeFleet(one_sided)
    session = session_of(fleet, 2)
    context = MeasurementContext(ProbeSettings(), session.agents, session.measurements, itertools.count(65535))
    session.scheduler.run([probe_task(context, "stamp", 0, 1)])
    assert [body["ssid_out"] for _, _, body in fleet.sent] == [65535, 0]
