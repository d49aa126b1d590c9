"""The network file: what is accepted, what is refused and where, and that it is written as it is read."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plink.errors import InputError
from plink.model.hosts import Host, Hosts
from plink.model.network import Network, network_from_json, read_network
from tests.networks import details_from

HUGE = 10**400


def document(**changes: Any) -> dict[str, Any]:
    """A good network of two hosts, with changes."""
    good = {"schema": "plink.network/1", "hosts": [{"name": "a"}, {"name": "b"}], "latency_us": [[0, 1], [1, 0]]}
    return good | changes


def test_null_is_unmeasured() -> None:
    network = network_from_json(document(latency_us=[[None, 2.5], [None, 0]]), "n")
    assert np.isnan(network.latency_us).tolist() == [[False, False], [True, False]]
    assert network.latency_us[0, 0] == 0


@pytest.mark.parametrize(
    ("changes", "location", "reason"),
    [
        ({"schema": "plink.network/2"}, "n: schema", "expected 'plink.network/1'"),
        ({"hosts": [{"name": "a"}, {"name": "a"}]}, "n: hosts[1]", "listed twice"),
        ({"lab": "$(id)"}, "n: lab", "a lab's name"),
        ({"latency_us": [[0, 1], [1]]}, "n: latency_us[1]", "1 entries"),
        ({"latency_us": [[0, 1], "10"]}, "n: latency_us[1]", "this is '10'"),
        ({"latency_us": [[0, "1"], [1, 0]]}, "n: latency_us[0][1]", '"1" is not a number'),
        ({"latency_us": [[0, 1], [-0.5, 0]]}, "n: latency_us[1][0]", "-0.5 cannot be a measurement"),
        ({"latency_us": [[0, 1], [HUGE, 0]]}, "n: latency_us", "too large"),
        ({"latency_us": [[0, 1], [1, 3]]}, "n: latency_us[1][1]", "distance to itself"),
        ({"latency_us": [[0, 1e300], [1, 0]]}, "n: latency_us[0][1]", "1e+300 cannot be a measurement"),
        ({"bandwidth_gbps": [[0, -1], [1, 0]]}, "n: bandwidth_gbps[0][1]", "cannot be a measurement"),
    ],
)
def test_a_bad_key_is_named(changes: dict[str, Any], location: str, reason: str) -> None:
    with pytest.raises(InputError) as caught:
        network_from_json(document(**changes), "n")
    assert caught.value.location == location
    assert reason in caught.value.reason


@pytest.mark.parametrize(
    ("text", "location", "reason"),
    [
        ('{"schema":\n', ":2", "not JSON"),
        ("[1, 2]", "", "a JSON object was expected, this is a list"),
        ('{"latency_us": [[0, NaN]]}', "", "NaN is not a JSON number; write null"),
        ('{"a": ' * 100_000, "", "nested too deeply"),
        ('{"seed": 1' + "0" * 5000 + "}", "", "4300 digits"),
    ],
)
def test_what_is_not_json_is_refused(text: str, location: str, reason: str, tmp_path: Path) -> None:
    path = tmp_path / "n.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError) as caught:
        read_network(path)
    assert caught.value.location == f"{path}{location}"
    assert reason in caught.value.reason
    assert "\n" not in str(caught.value)


@st.composite
def networks(draw: st.DrawFn) -> Network:
    """Networks as a probe could have measured them: rounded as they are written, some pairs missing."""
    n = draw(st.integers(1, 5))
    value = st.none() | st.integers(0, 10**9).map(lambda nanoseconds: nanoseconds / 1000)

    def matrix() -> np.ndarray[Any, np.dtype[np.float64]]:
        rows = draw(st.lists(st.lists(value, min_size=n, max_size=n), min_size=n, max_size=n))
        values = np.array(rows, dtype=np.float64)
        np.fill_diagonal(values, 0.0)
        return values

    hosts = Hosts(tuple(Host(f"h{i}", f"10.0.0.{i}", slots=draw(st.integers(1, 9))) for i in range(n)))
    return Network(hosts, matrix(), matrix() / 1000 if draw(st.booleans()) else None, details_from({"method": "test"}))


@given(networks())
def test_what_is_written_is_read_back(network: Network) -> None:
    again = network_from_json(json.loads(json.dumps(network.to_json(), allow_nan=False)), "n")
    assert again.hosts == network.hosts
    assert np.array_equal(again.latency_us, network.latency_us, equal_nan=True)
    if network.bandwidth_gbps is None:
        assert again.bandwidth_gbps is None
    else:
        assert again.bandwidth_gbps is not None
        assert np.allclose(again.bandwidth_gbps, network.bandwidth_gbps, atol=1e-6, equal_nan=True)
    assert again.details == network.details
    assert again.fingerprint() == network.fingerprint()


def test_slow_links_keep_their_bandwidth() -> None:
    """A link of 300 kbit/s must not be written as one of nothing."""
    slow = Network(Hosts((Host("a", "a"), Host("b", "b"))), np.zeros((2, 2)), np.array([[0, 0.0003], [0.0003, 0]]))
    assert slow.to_json()["bandwidth_gbps"][0][1] == 0.0003


def test_round_trips_as_algorithms_take_them() -> None:
    """Of two directions the slower one counts, of one the other; predictions are for what nobody measured."""
    measured = [[0, 1, None], [2, 0, None], [3, None, 0]]
    hosts = [{"name": name} for name in "abc"]
    halves = [measured, [[0, 5, 6], [4, 0, 7], [6, 7, 0]]]
    predicted = [[0, 9, 9], [9, 0, 7], [9, 8, 0]]
    written = document(hosts=hosts, latency_us=measured, predicted_us=predicted, halves_us=halves)
    network = network_from_json(written, "n.json")
    np.testing.assert_array_equal(network.rtt_us, [[0, 2, 3], [2, 0, np.nan], [3, np.nan, 0]])
    np.testing.assert_array_equal(network.completed_us, [[0, 2, 3], [2, 0, 8], [3, 8, 0]])
    first, second = network.half_rtts_us
    np.testing.assert_array_equal(first, network.rtt_us)
    np.testing.assert_array_equal(second, [[0, 5, 6], [5, 0, 7], [6, 7, 0]])
    with pytest.raises(ValueError, match="read-only"):
        network.rtt_us[0, 1] = 3.0


def test_fingerprint_depends_on_measurements_and_names() -> None:
    first = network_from_json(document(), "n")
    assert first.fingerprint() != network_from_json(document(latency_us=[[0, 2], [1, 0]]), "n").fingerprint()
    assert first.fingerprint() != network_from_json(document(hosts=[{"name": "a"}, {"name": "c"}]), "n").fingerprint()
    assert first.fingerprint() == network_from_json(document(method="other"), "n").fingerprint()


@pytest.mark.parametrize("name", ["n.json", "n.json.gz"])
def test_a_file_is_read_as_it_was_written(name: str, tmp_path: Path) -> None:
    network = network_from_json(document(method="by hand"), "n")
    network.write(tmp_path / name)
    assert read_network(tmp_path / name).to_json() == network.to_json()


def interfaces(**changes: object) -> dict[str, Any]:
    """Two hosts with two interfaces each, and two cables."""
    entry: dict[str, Any] = {
        "names": [["a", "b"], ["a", "b"]],
        "used": [[None, 0], [0, None]],
        "relays": [[None, None], [None, None]],
        "switches": [[[0, 0], [1, 0]], [[0, 1], [1, 1]]],
    }
    return entry | changes


@pytest.mark.parametrize(
    ("changes", "location"),
    [
        ({"names": [["a", "b"]]}, "n: interfaces.names"),
        ({"used": [[None, 2], [0, None]]}, "n: interfaces.used[0]"),
        ({"used": [[None, 0]]}, "n: interfaces.used"),
        ({"relays": [[None, None], [2, None]]}, "n: interfaces.relays[1]"),
        ({"switches": [[[0, 0], [1, 2]]]}, "n: interfaces.switches"),
        ({"switches": [[[0, 0], [2, 0]]]}, "n: interfaces.switches"),
        ({"switches": [[[0, 0], [1, 0]], [[0, 0], [1, 1]]]}, "n: interfaces.switches"),
        ({"switches": [[[0]]]}, "n: interfaces.switches[0][0]"),
    ],
)
def test_bad_interfaces_are_named(changes: dict[str, Any], location: str) -> None:
    assert network_from_json(document(interfaces=interfaces()), "n").interfaces is not None
    with pytest.raises(InputError) as caught:
        network_from_json(document(interfaces=interfaces(**changes)), "n").interfaces  # noqa: B018
    assert caught.value.location == location
