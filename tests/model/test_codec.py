"""The codec: errors name the key, what was expected and what is there; nothing but InputError for any JSON."""

import time
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Meta

from plink.errors import InputError
from plink.model.codec import convert, decode, schema_name, undeclared
from plink.model.document import UNSET, Document, Part, Unset
from plink.model.network import network_from_json
from plink.model.network_file import NetworkFile
from plink.model.order import RankOrder, order_from_json
from plink.model.storage import parse_document, render_document
from plink.model.types import Count, HostName

A_NAME = "a host name (letters, digits, '.', '-', '_', ':' only)"
MAX_ERROR_S = 10.0  # it takes well below one


class Leg(Part, frozen=True):
    """A part of the document."""

    to: HostName
    hops: Count | Unset = UNSET


class Star(Document, frozen=True, kw_only=True, tag="plink.star/1"):
    """All that a declaration may have."""

    name: str | int | Unset = UNSET
    mode: Literal["near", "far"] | Unset | None = UNSET
    legs: list[Leg] | Unset = UNSET
    costs: dict[str, float] | Unset = UNSET
    by_host: dict[str, dict[str, list[Leg]]] | Unset = UNSET
    env: dict[Annotated[str, Meta(pattern="^[A-Z]+$")], str] | Unset = UNSET
    pair: Annotated[list[int], Meta(min_length=2, max_length=2)] | Unset = UNSET
    rows: list[tuple[int, float]] | Unset = UNSET
    share: Annotated[float, Meta(ge=0, lt=1e15)] | Unset = UNSET
    flag: bool | Unset = UNSET
    code: Annotated[str, Meta(pattern="^[0-9]+$")] | Unset = UNSET


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"legs": 3}, "s.json: legs: expected a list, got 3"),
        ({"legs": [{"to": "a"}, 7]}, "s.json: legs[1]: expected an object, got 7"),
        ({"legs": [{"hops": 1}]}, "s.json: legs[0].to: is missing"),
        ({"legs": [{"to": "a b"}]}, f"s.json: legs[0].to: expected {A_NAME}, got 'a b'"),
        ({"legs": [{"to": "a\n"}]}, f"s.json: legs[0].to: expected {A_NAME}, got 'a\\n'"),
        ({"legs": [{"to": "a", "hops": -1}]}, "s.json: legs[0].hops: expected a whole number >= 0, got -1"),
        ({"legs": [{"to": "a", "hops": True}]}, "s.json: legs[0].hops: expected a whole number, got true"),
        ({"mode": "x"}, "s.json: mode: choose one of far, near; got 'x'"),
        ({"name": [1, 2]}, "s.json: name: expected a whole number or text, got a list of 2"),
        ({"costs": {"given": 1, "mean": "x", "last": "y"}}, "s.json: costs.mean: expected a number, got 'x'"),
        ({"by_host": {"a": {}, "b": {"c": [{"to": "d"}, {}]}}}, "s.json: by_host.b.c[1].to: is missing"),
        (
            {"by_host": {"a": {"c": [], "d": 1}, "b": {"c": 1, "d": 1}}},
            "s.json: by_host.a.d: expected a list, got 1",
        ),
        ({"env": {"A": "1", "b": "2"}}, "s.json: env: 'b' cannot be a key here"),
        ({"pair": [1]}, "s.json: pair: expected a list of 2 or more, got a list of 1"),
        ({"pair": [1, 2, 3]}, "s.json: pair: expected a list of 2 or fewer, got a list of 3"),
        ({"rows": [[1, 2], [1.5, 2]]}, "s.json: rows[1][0]: expected a whole number, got 1.5"),
        ({"share": -0.5}, "s.json: share: expected a number >= 0, got -0.5"),
        ({"share": 1e15}, "s.json: share: expected a number < 1e+15, got 1000000000000000.0"),
        ({"share": 10**400}, "s.json: share: number out of range, got 1000000000000000000000000000000000000..."),
        ({"flag": 1}, "s.json: flag: expected true or false, got 1"),
        ({"flag": None}, "s.json: flag: expected true or false, got null"),
        ({"code": "x"}, "s.json: code: expected text that matches '^[0-9]+$', got 'x'"),
        ({"mode": "\ud800"}, "s.json: '\\ud800' is no text: it has half of a surrogate pair"),
        ({"schema": "plink.order/1"}, "s.json: schema: expected 'plink.star/1', got 'plink.order/1'"),
        ({"schema": {}}, "s.json: schema: expected 'plink.star/1', got an object"),
    ],
)  # fmt: skip
def test_an_error_names_the_key_what_is_expected_and_what_is_there(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        decode(Star, {"schema": "plink.star/1", **changes}, "s.json")
    assert str(caught.value) == message


def test_what_is_no_object_has_no_schema() -> None:
    for value in ([], None, "plink.star/1"):
        with pytest.raises(InputError, match=r"^s\.json: schema: expected 'plink\.star/1', got null$"):
            decode(Star, value, "s.json")


def test_a_part_of_a_file_is_named_by_its_key() -> None:
    for kind, value, where in (
        (list[Leg], [{}], "s.json: legs[0].to"),
        (list[Leg], 3, "s.json: legs"),
        (Leg, {"to": 3}, "s.json: legs.to"),
        (dict[str, Count], {"a": 1, "b": -1}, "s.json: legs.b"),
    ):
        with pytest.raises(InputError) as caught:
            convert(kind, value, "s.json", "legs")
        assert caught.value.location == where


def test_undeclared_keys_are_left_out_and_can_be_had() -> None:
    document = {"schema": "plink.star/1", "flag": True, "colour": "green"}
    assert decode(Star, document, "s.json") == Star(flag=True)
    assert undeclared(Star, document) == {"colour": "green"}
    assert schema_name(Star) == "plink.star/1"


@pytest.mark.parametrize(
    "place", ["middle", *(pytest.param(place, marks=pytest.mark.extended) for place in ("first", "last"))]
)
def test_an_error_in_a_large_document_is_found_in_time(place: str) -> None:
    n = 200_000
    costs: dict[str, Any] = {f"k{i}": 1.0 for i in range(n)}
    key = {"first": "k0", "middle": f"k{n // 2}", "last": f"k{n - 1}"}[place]
    costs[key] = "x"
    document = {"schema": "plink.order/1", "hosts": [f"h{i}" for i in range(n)], "baseline": costs}
    began = time.process_time()
    with pytest.raises(InputError) as caught:
        decode(RankOrder, document, "o.json")
    assert caught.value.location == f"o.json: baseline.{key}"
    assert time.process_time() - began < MAX_ERROR_S


def test_matrices_are_left_to_who_knows_the_hosts() -> None:
    """Their cells cost a file of 1,000 hosts no time here."""
    document = {"schema": "plink.network/1", "hosts": [{"name": "a"}], "latency_us": "x", "hops": [[{}]]}
    assert decode(NetworkFile, document, "n.json").latency_us == "x"
    with pytest.raises(InputError, match=r"n\.json: latency_us: "):
        network_from_json(document, "n.json")


NAMES = st.from_regex(r"[a-z][a-z0-9.-]{0,8}", fullmatch=True)
COSTS = st.none() | st.floats(0, 1e12)
ORDERS = st.builds(
    RankOrder,
    algo=st.text(max_size=8).filter(lambda text: text.isprintable()),
    hosts=st.lists(NAMES, min_size=1, max_size=6, unique=True).map(tuple),
    cost=COSTS,
    lower_bound=COSTS,
    baseline=st.dictionaries(st.sampled_from(["given", "random_median"]), st.floats(0, 1e9)),
    objective=st.none() | st.sampled_from(["time", "sum"]),
    seed=st.none() | st.integers(0, 1 << 40),
    network=st.none() | st.from_regex(r"sha256:[0-9a-f]{16}", fullmatch=True),
    model=st.just(UNSET) | st.just("latency"),
    gap=st.just(UNSET) | COSTS,
    proven=st.just(UNSET) | st.booleans(),
    options=st.just(UNSET) | st.dictionaries(st.just("base"), st.integers(2, 9)),
    groups=st.just(UNSET)
    | st.none()
    | st.lists(st.lists(st.integers(0, 9), max_size=3).map(tuple), max_size=3).map(tuple),
)


@given(ORDERS)
def test_a_valid_order_survives_its_file(order: RankOrder) -> None:
    text = render_document(order.to_json())
    assert order_from_json(parse_document(text, "o.json"), "o.json") == order
