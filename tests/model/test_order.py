"""The order file: what is accepted, what is refused and where, and how it arranges hosts."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plink.errors import InputError
from plink.model.document import UNSET
from plink.model.hosts import Host, Hosts, parse_hosts
from plink.model.order import RankOrder, order_from_json, read_order

NUMBER = st.none() | st.floats(allow_nan=False, allow_infinity=False)


def document(**changes: Any) -> dict[str, Any]:
    """A good order of two hosts, with changes."""
    return {"schema": "plink.order/1", "algo": "ring", "hosts": ["b", "a"]} | changes


@given(
    st.builds(
        RankOrder,
        algo=st.sampled_from(["ring", "tree"]),
        hosts=st.permutations(["a", "b", "c"]).map(tuple),
        cost=NUMBER,
        lower_bound=NUMBER,
        baseline=st.dictionaries(st.sampled_from(["given", "random_median"]), st.floats(0, 1e9)),
        objective=st.none() | st.just("sum"),
        seed=st.none() | st.integers(0, 2**31),
        network=st.none() | st.just("sha256:0123"),
        model=st.just(UNSET) | st.text(max_size=5),
    )
)
def test_what_is_written_is_read_back(order: RankOrder) -> None:
    assert order_from_json(json.loads(json.dumps(order.to_json(), allow_nan=False)), "o") == order


@pytest.mark.parametrize(
    ("changes", "location", "reason"),
    [
        ({"schema": "plink.network/1"}, "o: schema", "expected 'plink.order/1'"),
        ({"hosts": []}, "o: hosts", "expected a list"),
        ({"hosts": ["a", "b;c"]}, "o: hosts[1]", "expected a host name"),
        ({"hosts": ["a", "b", "a"]}, "o: hosts", "'a' is listed twice"),
        ({"cost": "cheap"}, "o: cost", "expected a number"),
        ({"cost": 10**400}, "o: cost", "out of range"),
        ({"baseline": [1]}, "o: baseline", "expected an object"),
        ({"baseline": {"given": "x"}}, "o: baseline.given", "got 'x'"),
    ],
)
def test_a_bad_key_is_named(changes: dict[str, Any], location: str, reason: str) -> None:
    with pytest.raises(InputError) as caught:
        order_from_json(document(**changes), "o")
    assert caught.value.location == location
    assert reason in caught.value.reason


def test_hosts_are_arranged_and_keep_what_they_are() -> None:
    hosts = Hosts(
        (Host("a", "10.0.0.1", slots=2), Host("b", "10.0.0.2", user="ann"), Host("hub", "h", 0, role="hub")), lab="x"
    )
    arranged = RankOrder(algo="ring", hosts=("b", "a")).arrange(hosts, "o")
    assert arranged == Hosts((hosts.members[1], hosts.members[0]), lab="x")


@pytest.mark.parametrize(
    ("names", "reason"),
    [
        (("b", "a", "d"), "names hosts that are not in the hosts list: d"),
        (("b",), "leaves out hosts of the hosts list: a"),
        (("a", "hub", "b"), "has hosts with role=hub, which take no ranks: hub"),
    ],
)
def test_an_order_for_other_hosts_is_refused(names: tuple[str, ...], reason: str) -> None:
    hosts = Hosts((Host("a", "a"), Host("b", "b"), Host("hub", "hub", 0, role="hub")))
    with pytest.raises(InputError) as caught:
        RankOrder(algo="ring", hosts=names).arrange(hosts, "o.json")
    assert caught.value.location == "o.json"
    assert reason in caught.value.reason


@pytest.mark.parametrize("name", ["order.json.gz", "myorder"])
def test_an_order_file_is_known_by_its_content_too(name: str, tmp_path: Path) -> None:
    """``plink reorder -o myorder`` writes JSON under any name, and launch must read it."""
    order = RankOrder(algo="ring", hosts=("b", "a"), cost=2.0)
    order.write(tmp_path / name)
    assert read_order(tmp_path / name) == order


def test_names_one_a_line_are_an_order(tmp_path: Path) -> None:
    path = tmp_path / "order.txt"
    path.write_text("# ours\nb slots=2\na\n")
    assert read_order(path).hosts == ("b", "a")
    two = parse_hosts("a slots=2\nb slots=2\n", "hosts.txt")
    assert read_order(path, two).hosts == ("b", "a")
    with pytest.raises(InputError, match="gives b 2 slots, the hosts list 1"):
        read_order(path, parse_hosts("a\nb\n", "hosts.txt"))


def test_a_list_in_a_json_file_is_no_order(tmp_path: Path) -> None:
    path = tmp_path / "order.json"
    path.write_text('["b", "a"]')
    with pytest.raises(InputError, match="a JSON object was expected"):
        read_order(path)
