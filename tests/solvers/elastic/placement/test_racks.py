"""Replicas in other racks than their primaries."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from solvers.elastic import migration
from solvers.elastic.decisions import decision_on
from solvers.elastic.events import HostsGone, PartitionMoved
from solvers.elastic.member import Member
from solvers.elastic.placement.cluster import Cluster
from solvers.elastic.placement.partitions import balanced, place_replicas, share_rack
from solvers.elastic.start import start

RACKS = st.sampled_from(["", "a", "b", "c"])


def cluster(reliable: Sequence[str], transient: Sequence[str], partitions: int = 8) -> Cluster:
    """A job in stage 2 or 3 on hosts in these racks, as it begins."""
    racks = [*((rack, "reliable") for rack in reliable), *((rack, "transient") for rack in transient)]
    hosts = [Member(number, f"h{number}", tier, rack=rack) for number, (rack, tier) in enumerate(racks)]
    return start(hosts, (1.0,) * partitions, 24).cluster


@given(
    st.lists(RACKS, min_size=1, max_size=5), st.lists(RACKS, min_size=1, max_size=8), st.data(),
)  # fmt: skip
def test_replicas_are_apart_wherever_they_can_be(reliable: list[str], others: list[str], data: st.DataObject) -> None:
    hosts = {n: Member(n, f"h{n}", "reliable", rack=rack) for n, rack in enumerate([*reliable, *others])}
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
    assert state.racks_at_risk() == []
    lost = tuple(host.number for host in state.hosts if host.rack == rack)
    assert not decision_on(state, HostsGone(lost)).cluster.halted


def test_racks_at_risk_are_reported() -> None:
    state = cluster(["a"], ["a", "b", "a", "b"])
    (names,) = state.racks_at_risk()
    assert names == ["h0", "h1", "h3"]
    assert cluster(["a"], ["b", "c"]).racks_at_risk() == []
    assert cluster([""], ["", ""]).racks_at_risk() == []


@pytest.mark.parametrize("lost", ["a", "b"])
def test_replicas_follow_partitions_that_move(lost: str) -> None:
    """Those that go to the other rack for want of hosts here get replicas here."""
    state = cluster(["a", "b"], ["a", "a", "b", "b"])
    gone = tuple(host.number for host in state.hosts if host.rack == lost and not host.reliable)
    decision = decision_on(state, HostsGone(gone))
    todo = list(decision.actions)
    while todo:
        action = todo.pop(0)
        if action.effect is migration.transfer:
            (sent,) = action.arguments
            decision = decision_on(decision.cluster, PartitionMoved(sent.partition, sent.term))
            todo += decision.actions
    state = decision.cluster
    assert not state.halted
    assert state.racks_at_risk() == []
