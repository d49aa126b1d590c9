"""Replicas in other racks than their primaries."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from solvers.elastic.placement.actions import Drain, HandOver, Replicate, RestorePartition
from solvers.elastic.placement.cluster import apply
from solvers.elastic.placement.events import HostsFailed, Moved
from solvers.elastic.placement.hosts import JobHost, Tier
from solvers.elastic.placement.partitions import balanced
from solvers.elastic.placement.racks import place_replicas, racks_at_risk, share_rack
from solvers.elastic.placement.start import start
from solvers.elastic.placement.state import Cluster

RACKS = st.sampled_from(["", "a", "b", "c"])


def cluster(reliable: Sequence[str], transient: Sequence[str], partitions: int = 8) -> Cluster:
    """A job in stage 2 or 3 on hosts in these racks, as it begins."""
    racks = [*((rack, Tier.RELIABLE) for rack in reliable), *((rack, Tier.TRANSIENT) for rack in transient)]
    hosts = [JobHost(number, f"h{number}", tier, rack=rack) for number, (rack, tier) in enumerate(racks)]
    return start(hosts, (1.0,) * partitions, 24)[0]


@given(
    st.lists(RACKS, min_size=1, max_size=5), st.lists(RACKS, min_size=1, max_size=8), st.data(),
)  # fmt: skip
def test_replicas_are_apart_wherever_they_can_be(reliable: list[str], others: list[str], data: st.DataObject) -> None:
    hosts = {n: JobHost(n, f"h{n}", Tier.RELIABLE, rack=rack) for n, rack in enumerate([*reliable, *others])}
    primaries = data.draw(st.lists(st.sampled_from(sorted(hosts)[len(reliable) :]), min_size=1, max_size=20))
    current = [data.draw(st.sampled_from([None, *range(len(reliable))])) for _ in primaries]
    places = [hosts[n] for n in range(len(reliable))]
    replicas = place_replicas(current, primaries, places, hosts)
    assert place_replicas(replicas, primaries, places, hosts) == replicas
    for primary, replica in zip(primaries, replicas, strict=True):
        apart = [host for host in places if not share_rack(host, hosts[primary])]
        assert not apart or hosts[replica] in apart
    if not any(share_rack(hosts[primary], host) for primary in primaries for host in places):
        assert replicas == balanced(current, range(len(reliable)))


@given(st.permutations("aabb"), st.permutations("aaabbb"), st.sampled_from("ab"))
def test_losing_a_rack_at_once_loses_no_state(reliable: list[str], transient: list[str], rack: str) -> None:
    state = cluster(reliable, transient)
    assert racks_at_risk(state) == []
    state, _ = apply(state, HostsFailed(tuple(host.number for host in state.hosts if host.rack == rack)))
    assert not state.halted


def test_racks_at_risk_are_reported() -> None:
    state = cluster(["a"], ["a", "b", "a", "b"])
    (names,) = racks_at_risk(state)
    assert names == ["h0", "h1", "h3"]
    assert racks_at_risk(cluster(["a"], ["b", "c"])) == []
    assert racks_at_risk(cluster([""], ["", ""])) == []


@pytest.mark.parametrize("lost", ["a", "b"])
def test_replicas_follow_partitions_that_move(lost: str) -> None:
    """Those that go to the other rack for want of hosts here get replicas here."""
    state = cluster(["a", "b"], ["a", "a", "b", "b"])
    gone = tuple(host.number for host in state.hosts if host.rack == lost and host.tier is Tier.TRANSIENT)
    state, actions = apply(state, HostsFailed(gone))
    todo = list(actions)
    while todo:
        action = todo.pop(0)
        if isinstance(action, RestorePartition | Replicate | HandOver | Drain):
            state, more = apply(state, Moved(action.partition, action.term))
            todo += more
    assert not state.halted
    assert racks_at_risk(state) == []
