"""Which method gets through to which host, and measuring a few pairs again without touching what was found."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plink.model.units import count
from probes.method_selection import MethodSelection, reachable_hosts, remeasure, select_methods
from probes.session import ProbeSession
from tests.probes.fake_fleet import FakeFleet, host_at, round_trips, session_of

METHOD = {"pair": "stamp", "icmp": "icmp", "tcp": "tcp"}


def fabric(n: int, closed: dict[int, set[str]], one_way: bool = False) -> ProbeSession:
    """Hosts whose firewalls drop some methods; ``one_way``: what the host itself began is let through (stateful)."""

    def behave(host: str, body: dict[str, Any]) -> tuple[float, dict[str, Any]]:
        host_index, method = int(host[1:]), METHOD[body["method"]]
        peer = host_at(body["peer"][0] if method == "stamp" else body["peer"])
        lost = method in closed.get(peer, set()) or (method in closed.get(host_index, set()) and not one_way)
        return 0.5, round_trips(None if lost else 30.0)

    return session_of(FakeFleet(behave), n)


@given(st.integers(3, 12), st.data())
def test_a_host_without_udp_is_reached_by_icmp_and_the_others_by_stamp(n: int, data: st.DataObject) -> None:
    odd, one_way = data.draw(st.integers(0, n - 1)), data.draw(st.booleans())
    selection = select_methods(fabric(n, {odd: {"stamp"}}, one_way))
    assert selection.by_host == tuple("icmp" if host == odd else "stamp" for host in range(n))
    assert selection.summary == f"{count(n - 1, 'host')} by stamp, one host by icmp"


@given(st.integers(3, 9), st.data())
def test_up_to_two_closed_hosts_make_no_other_suspect(n: int, data: st.DataObject) -> None:
    """Every other host has a third partner, also where an odd number of hosts lets one rest."""
    closed = data.draw(st.sets(st.integers(0, n - 1), max_size=min(2, n - 2)))
    assert reachable_hosts(fabric(n, {host: {"stamp"} for host in closed}), "stamp", set()) == set(range(n)) - closed


@pytest.mark.parametrize("closed", [(0, 1, 2), (0, 2, 4), (1, 3, 5)])
def test_who_met_closed_hosts_only_is_tried_with_one_that_answered(closed: tuple[int, ...]) -> None:
    assert reachable_hosts(fabric(6, {host: {"stamp"} for host in closed}), "stamp", set()) == set(range(6)) - set(
        closed
    )


@given(st.integers(2, 8), st.dictionaries(st.integers(0, 7), st.sets(st.sampled_from(sorted(METHOD.values())))))
def test_what_a_host_does_not_let_through_is_not_used_with_it(n: int, closed: dict[int, set[str]]) -> None:
    selection = select_methods(fabric(n, closed))
    for host in range(n):
        assert selection.by_host[host] not in closed.get(host, set()) or selection.by_host[host] == "tcp"


@given(st.integers(2, 12))
def test_where_everything_gets_through_stamp_is_used(n: int) -> None:
    assert select_methods(fabric(n, {})).by_host == ("stamp",) * n


def test_hosts_that_are_gone_are_not_asked_and_hold_nobody_up() -> None:
    session = fabric(5, {})
    session.scheduler.mark_lost(1, "SSH refused")
    session.scheduler.mark_lost(3, "SSH refused")
    selection = select_methods(session)
    assert [selection.by_host[host] for host in (0, 2, 4)] == ["stamp"] * 3


def test_a_pair_is_measured_by_what_both_let_through() -> None:
    selection = MethodSelection(("stamp", "icmp", "tcp"), "")
    assert (selection(0, 0), selection(0, 1), selection(1, 0), selection(1, 2), selection(2, 0)) == (
        "stamp",
        "icmp",
        "icmp",
        "tcp",
        "tcp",
    )


@pytest.mark.parametrize("odd", [0, 1])
def test_a_pair_that_answers_one_way_only_has_not_answered(odd: int) -> None:
    session = fabric(2, {odd: {"stamp"}}, one_way=True)
    assert remeasure(session, [(0, 1)], 20) == {}


def test_remeasuring_keeps_earlier_results() -> None:
    session = fabric(3, {})
    session.measurements.latency[0, 1] = 70.0
    before = session.measurements.latency.copy()
    assert remeasure(session, [(0, 1), (0, 1), (1, 2)], 20) == {
        (0, 1): 30.0, (1, 0): 30.0, (1, 2): 30.0, (2, 1): 30.0,
    }  # fmt: skip
    assert np.array_equal(session.measurements.latency, before, equal_nan=True)
    assert session.measurements.errors == {}


def test_remeasuring_continues_session_numbers() -> None:
    """An agent that saw a number in an earlier session must not see it again."""
    session = fabric(2, {})
    first = next(session.context.ssids)
    remeasure(session, [(0, 1)], 20)
    assert next(session.context.ssids) == first + 3
