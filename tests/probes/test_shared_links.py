"""What groups share: disjoint pairs across a boundary, more and more, until the sum stops growing."""

import random
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probes.boundary_pairs import TierGroups, pairs_across, pairs_between
from probes.group_runs import flow_rates
from probes.session import ProbeSession
from probes.shared_links import SharedLinkSettings, shared_links
from tests.probes.fake_fleet import FakeFleet, session_of

GROUPS = st.lists(st.integers(1, 6), min_size=2, max_size=5)
SETTINGS = SharedLinkSettings(seconds=0.5, repeats=2)


def groups_of(sizes: list[int]) -> list[list[int]]:
    """Groups of these sizes over hosts 0, 1, 2, ..."""
    groups, first = list[list[int]](), 0
    for size in sizes:
        groups.append(list(range(first, first + size)))
        first += size
    return groups


def two_groups(sizes: tuple[int, int], host: float, into: tuple[float, float]) -> tuple[FakeFleet, ProbeSession]:
    """Hosts that send ``host`` Gbit/s at most and groups that take ``into`` Gbit/s in all."""
    listening: list[tuple[float, int]] = []

    def behave(name: str, body: dict[str, Any]) -> tuple[float, dict[str, Any]]:
        group = 0 if int(name[1:]) < sizes[0] else 1
        if body["method"] == "flow_listen":
            if listening and listening[-1][0] != fleet.now:
                listening.clear()
            listening.append((fleet.now, group))
            return 0.01, {"port": 7000}
        if "receive_token" not in body:
            return body["seconds"], {"sent_bytes": 1}
        return body["seconds"], {"gbps": min(host, into[group] / sum(other == group for _, other in listening))}

    fleet = FakeFleet(behave)
    return fleet, session_of(fleet, sum(sizes))


def flow_of(body: dict[str, Any]) -> tuple[float, dict[str, Any]]:
    """An agent that listens at once, and receives 0.25 Gbit/s."""
    if body["method"] == "flow_listen":
        return 0.01, {"port": 7000}
    return body["seconds"], {"gbps": 0.25} if "receive_token" in body else {"sent_bytes": 1}


@pytest.mark.parametrize("late_s", [0.3, 4.0])
def test_flows_begin_together_where_an_agent_is_late(late_s: float) -> None:
    """It was busy with a flow that failed. One after the other, flows would each get all of their link."""

    def behave(name: str, body: dict[str, Any]) -> tuple[float, dict[str, Any]]:
        seconds, answer = flow_of(body)
        return late_s if name == "h5" and "port" in answer else seconds, answer

    fleet, flows = FakeFleet(behave), [(0, 4), (1, 5), (2, 6), (3, 7)]
    assert flow_rates(session_of(fleet, 8), flows, 0.5) == (dict.fromkeys(flows, 0.25), {})
    begun = [at for at, _, body in fleet.sent if "receive_token" in body]
    assert len(begun) == 4
    assert max(begun) - min(begun) < 0.01


def test_flows_of_others_go_on_where_a_host_is_lost() -> None:
    fleet = FakeFleet(lambda _, body: flow_of(body))
    fleet.lose("h5", 0.2)
    rates, errors = flow_rates(session_of(fleet, 8), [(0, 4), (1, 5), (6, 2)], 0.5)
    assert (rates, set(errors)) == ({(0, 4): 0.25, (6, 2): 0.25}, {(1, 5)})


@given(GROUPS, st.integers(1, 8), st.integers(0, 99), st.data())
def test_flows_are_disjoint_and_cross_the_boundary(
    sizes: list[int], flows: int, seed: int, data: st.DataObject
) -> None:
    groups = groups_of(sizes)
    group = data.draw(st.sampled_from(groups))
    far_groups = [other for other in groups if other is not group]
    pairs = pairs_across(TierGroups(groups), group, far_groups, flows, random.Random(seed))
    assert len(pairs) == min(flows, len(group), sum(map(len, far_groups)))
    hosts = [host for pair in pairs for host in pair]
    assert len(hosts) == len(set(hosts))
    near, far = ([pair[side] for pair in pairs] for side in (0, 1))
    assert set(near) <= set(group)
    far_indices = [next(k for k, other in enumerate(far_groups) if host in other) for host in far]
    # Spread: no group is reached twice while another with hosts left was not reached at all.
    assert len(set(far_indices)) == min(len(pairs), len(far_groups))


@given(
    st.tuples(st.integers(1, 8), st.integers(1, 8)),
    st.sampled_from([0.2, 1.0, 25.0]),
    st.tuples(st.floats(0.1, 20.0), st.floats(0.1, 20.0)),
)
def test_capacity_is_limited_by_the_link_or_its_hosts(
    sizes: tuple[int, int], host: float, times: tuple[float, float]
) -> None:
    _, session = two_groups(sizes, host, (host * times[0], host * times[1]))
    rows = shared_links(session, TierGroups(groups_of([*sizes])), SETTINGS, lambda done, total: None)
    max_flows = min(sizes)
    for row, into, out in zip(rows, times, reversed(times), strict=True):
        for direction, limit in (("in", into), ("out", out)):
            assert row.gbps(direction) == pytest.approx(host * min(limit, max_flows), rel=1e-3)
            low, high = row.range_gbps(direction)
            assert low <= row.gbps(direction) <= high
            if limit >= max_flows:
                assert row.limited_by(direction) == "hosts"
                assert getattr(row, f"{direction}_flows") == max_flows
            elif max_flows > 1 and limit < 0.75 * max_flows:
                assert row.limited_by(direction) == "others"  # or its own: of two either may be


@given(GROUPS | st.lists(st.integers(1, 3), min_size=6, max_size=40), st.integers(1, 6), st.integers(0, 99))
def test_groups_send_to_each_other_at_once(sizes: list[int], flows: int, seed: int) -> None:
    """No host twice, no pair within a group, and only one group is left with hosts that have no partner."""
    groups = groups_of(sizes)
    pairs = pairs_between(TierGroups(groups), groups, flows, random.Random(seed), seed)
    hosts = [host for pair in pairs for host in pair]
    assert len(hosts) == len(set(hosts))
    group_of = {host: k for k, group in enumerate(groups) for host in group}
    assert all(group_of[a] != group_of[b] for a, b in pairs)
    used = Counter(group_of[host] for host in hosts)
    short = [min(flows, size) - used[k] for k, size in enumerate(sizes)]
    most = max(min(flows, size) for size in sizes)
    total = sum(min(flows, size) for size in sizes)
    assert sum(short) <= max(total % 2, 2 * most - total + 1)


def test_the_number_of_flows_grows_only_while_it_helps() -> None:
    """A link of 2.5 hosts: 8 flows bring no more than 4 did, so those are run twice more, and once each way to verify
    them."""
    fleet, session = two_groups((8, 8), 1.0, (2.5, 2.5))
    shared_links(session, TierGroups(groups_of([8, 8])), SETTINGS, lambda done, total: None)
    runs = Counter(when for when, _, body in fleet.sent if body["method"] == "flow_listen")
    assert list(runs.values()) == [2, 4, 8, 16, 8, 8, 8, 8]


@pytest.mark.parametrize("groups", [[], [[0, 1, 2, 3, 4]], [[0, 1], []]])
def test_one_group_has_no_boundary(groups: list[list[int]]) -> None:
    fleet, session = two_groups((2, 3), 1.0, (1.0, 1.0))
    assert shared_links(session, TierGroups(groups), SETTINGS, lambda done, total: None) == []
    assert fleet.sent == []


def test_hosts_that_are_gone_are_left_out() -> None:
    fleet, session = two_groups((2, 3), 1.0, (9.0, 9.0))
    session.scheduler.mark_lost(0, "killed")
    rows = shared_links(session, TierGroups(groups_of([2, 3])), SETTINGS, lambda done, total: None)
    assert [row.members for row in rows] == [["h1"], ["h2", "h3", "h4"]]
    assert "h0" not in {host for _, host, _ in fleet.sent}
    session.scheduler.mark_lost(1, "killed")
    assert shared_links(session, TierGroups(groups_of([2, 3])), SETTINGS, lambda done, total: None) == []


def test_a_host_that_dies_meanwhile_leaves_the_capacity_unknown() -> None:
    fleet, session = two_groups((2, 2), 1.0, (9.0, 9.0))
    fleet.lose("h0", 0.3)
    fleet.lose("h1", 0.3)
    row, other = shared_links(session, TierGroups(groups_of([2, 2])), SETTINGS, lambda done, total: None)
    for direction in ("in", "out"):
        assert row.gbps(direction) is None
        assert row.range_gbps(direction) is None
        assert other.gbps(direction) is None
    assert fleet.now < 60.0


def test_a_flow_that_fails_spoils_its_run_and_no_other() -> None:
    fleet = FakeFleet(
        lambda host, body: (0.1, {"port": 1} if body["method"] == "flow_listen" else {"error": "the flow ended early"})
    )
    rows = shared_links(session_of(fleet, 4), TierGroups(groups_of([2, 2])), SETTINGS, lambda done, total: None)
    assert [(row.out_gbps, row.out_flows, row.out_limited_by) for row in rows] == [(None, 0, None)] * 2
