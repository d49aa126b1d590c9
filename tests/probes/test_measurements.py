"""What is kept of each pair, and that a network file holds all of it for the next run."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plink.errors import InputError
from plink.model.document import UNSET
from plink.model.hosts import Host, Hosts
from plink.model.network import Network, network_from_json, read_network
from plink.model.network_file import was_tried
from probes.agent.summary import summary
from probes.measurements import Measurements, measurements_from
from tests.networks import details_from, keys_of

NANOSECONDS = st.lists(st.integers(-(10**6), 10**9), max_size=30)


def hosts(n: int) -> Hosts:
    """Some."""
    return Hosts(tuple(Host(f"h{i}", f"10.0.0.{i}") for i in range(n)))


def result(round_trips_ns: list[int], sent: int, **more: Any) -> dict[str, Any]:
    """What an agent says of a pair."""
    return {"sent": sent, "clock": "kernel", **more, **summary(round_trips_ns)}


@st.composite
def measurements(draw: st.DrawFn) -> Measurements:
    """Some pairs measured by some method, some failed, some never tried."""
    n = draw(st.integers(2, 4))
    measurements = Measurements(hosts(n))
    if draw(st.booleans()):
        measurements.bandwidth = np.full((n, n), np.nan)
    for i in range(n):
        for j in range(n):
            what = draw(st.sampled_from(["stamp", "icmp", "tcp", "fail", "never"])) if i != j else "never"
            if what == "fail":
                measurements.record_error(i, j, draw(st.sampled_from(["a firewall", "it died"])))
            elif what != "never":
                times = draw(NANOSECONDS)
                more = {"reflected": len(times) + draw(st.integers(0, 3))} if what == "stamp" else {}
                hops = draw(st.none() | st.integers(0, 9))
                measurements.record(i, j, what, result(times, len(times) + draw(st.integers(3, 6)), hops=hops, **more))
                if measurements.bandwidth is not None:
                    measurements.bandwidth[i, j] = draw(st.floats(0.001, 400))
        measurements.machines[i] = draw(st.none() | st.just({"hostname": f"h{i}", "cores": 2}))
    return measurements


def without_time(measurements: Measurements) -> dict[str, Any]:
    """The document, the moment it was made left out."""
    document = measurements.network().to_json()
    assert document.pop("measured_at")
    return json.loads(json.dumps(document, allow_nan=False))


@given(measurements())
def test_what_was_written_is_what_the_next_run_goes_on_with(measurements: Measurements) -> None:
    document = without_time(measurements)
    again = measurements_from(network_from_json(document | {"measured_at": "then"}, "a file"))
    assert without_time(again) == document
    assert again.missing() == measurements.missing()
    assert again.errors == measurements.errors


@given(measurements())
def test_every_hole_of_a_tried_pair_has_a_reason(measurements: Measurements) -> None:
    document = without_time(measurements)
    names = measurements.hosts.names
    reasons = {(error["from"], error["to"]): error["why"] for error in document["errors"]}
    for i, row in enumerate(document["latency_us"]):
        for j, value in enumerate(row):
            if i == j:
                assert value == 0
            elif value is None:
                assert bool(reasons.get((names[i], names[j]))) == ((i, j) in measurements.errors)
                assert measurements.method[i, j] == 0 or reasons[names[i], names[j]]
            else:
                assert (names[i], names[j]) not in reasons
                assert value > 0


def test_loss_by_direction_where_answers_are_numbered() -> None:
    measurements = Measurements(hosts(3))
    measurements.record(0, 1, "stamp", result([30_000] * 72, 100, reflected=90))
    measurements.record(0, 2, "icmp", result([30_000] * 72, 100))
    assert measurements.loss_forward[0, 1] == pytest.approx(0.1)
    assert measurements.loss_back[0, 1] == pytest.approx(0.2)
    assert measurements.loss_forward[0, 2] == pytest.approx(0.28)
    assert np.isnan(measurements.loss_back[0, 2])


def test_unanswered_pair_has_an_error_until_it_answers() -> None:
    measurements = Measurements(hosts(2))
    measurements.record(0, 1, "stamp", result([], 0, reflected=0))
    measurements.record(1, 0, "icmp", result([], 20, error="fping: no route to host"))
    assert measurements.errors[0, 1].startswith("no probe was answered")
    assert measurements.errors[1, 0] == "fping: no route to host"
    assert measurements.missing() == [(0, 1)]
    assert measurements.loss_forward[1, 0] == 1.0
    for i, j in ((0, 1), (1, 0)):
        measurements.record(i, j, "tcp", result([40_000], 1))
    assert measurements.errors == {}
    assert measurements.missing() == []
    document = measurements.network().to_json()
    assert document["methods"][document["method_used"][0][1]] == "tcp"
    assert document["clocks"][document["clock_used"][0][1]] == "kernel"


def test_a_file_of_three_keys_can_be_gone_on_with() -> None:
    document = {
        "schema": "plink.network/1",
        "hosts": [{"name": "h0"}, {"name": "h1"}],
        "latency_us": [[0, 12.5], [None, 0]],
        "bandwidth_gbps": None,
    }
    measurements = measurements_from(network_from_json(document, "a file"))
    assert measurements.missing() == [(0, 1)]
    assert measurements.latency[0, 1] == 12.5
    assert measurements.samples.sum() == 0


@pytest.mark.parametrize("key", ["jitter_us", "samples"])
def test_a_matrix_of_another_shape_is_named(key: str) -> None:
    document = without_time(Measurements(hosts(3))) | {key: [[0, 0], [0, 0]]}
    with pytest.raises(InputError, match=f"a file: {key}"):
        measurements_from(network_from_json(document, "a file"))


def test_the_shared_links_of_the_run_before_are_kept(tmp_path: Path) -> None:
    """The run that goes on may not measure them anew."""
    measurements = Measurements(hosts(2))
    measurements.details = details_from({"shared_links": [{"groups": [{"members": ["h0"], "out_gbps": 0.2}]}]})
    measurements.network().write(tmp_path / "n.json")
    again = measurements_from(read_network(tmp_path / "n.json")).network()
    assert keys_of(again.details)["shared_links"] == [{"groups": [{"members": ["h0"], "out_gbps": 0.2}]}]


@given(NANOSECONDS)
def test_a_summary_is_the_nearest_rank_of_the_positive_ones(times: list[int]) -> None:
    result_ = summary(times)
    good = sorted(time for time in times if time > 0)
    assert result_["received"] == len(times)
    assert result_["clock_steps"] == len(times) - len(good)
    for p, value in zip((1, 10, 50, 90, 99), result_["percentiles_us"], strict=True):
        if not good:
            assert value is None
        else:
            assert sum(time <= value * 1000 + 0.5 for time in good) * 100 >= p * len(good)
            assert sum(time < value * 1000 - 0.5 for time in good) * 100 < p * len(good)


def test_measurements_of_a_file_can_be_repeated() -> None:
    two = hosts(2)
    measurements = measurements_from(Network(two, np.zeros((2, 2)), np.ones((2, 2))))
    measurements.latency[0, 1] = 3.0
    assert measurements.bandwidth is not None
    measurements.bandwidth[0, 1] = 2.0
    network = measurements.network()
    assert network.bandwidth_gbps is not None
    assert (network.latency_us[0, 1], network.bandwidth_gbps[0, 1]) == (3.0, 2.0)


def test_what_failed_for_the_sake_of_a_lost_host_counts_as_not_tried(tmp_path: Path) -> None:
    """Its agent may be back in the run that goes on, which may not come to measure all of it."""
    measurements, gone = Measurements(hosts(3)), "h1: its agent is gone: killed"
    measurements.record_error(0, 1, gone)
    measurements.record_error(0, 2, "no answer")
    rows = [{"from": "h0", "to": "h1", "why": gone}, {"from": "h0", "to": "h2", "why": "refused"}]
    ports = [["eth0", "eth1"] for _ in range(3)]
    interfaces = {
        "names": ports, "used": [[None, 0, 0], [0, None, 0], [0, 0, None]], "relays": [[None] * 3] * 3,
        "switches": [[[host, port] for host in range(3)] for port in range(2)],
        "why": [[None, gone], [None, "refused"], [None, None]],
    }  # fmt: skip
    measurements.details = details_from({"host_flow_errors": rows, "interfaces": interfaces})
    measurements.network().write(tmp_path / "n.json")
    again = measurements_from(read_network(tmp_path / "n.json"))
    assert again.errors == {(0, 2): "no answer"}
    assert [(row.source, row.target) for row in again.details.host_flow_errors or ()] == [("h0", "h2")]
    assert again.details.interfaces
    assert again.details.interfaces.errors
    tried = [[bool(reason) and was_tried(reason) for reason in row] for row in again.details.interfaces.errors]
    assert tried == [[False, False], [False, True], [False, False]]
    assert again.details.interfaces.errors[0][1] is not None  # it is measured again
    alone = details_from({"host_flow_errors": rows[:1]})
    measurements.details = alone
    measurements.network().write(tmp_path / "n.json")
    assert measurements_from(read_network(tmp_path / "n.json")).details.host_flow_errors is UNSET
