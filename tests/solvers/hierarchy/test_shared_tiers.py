"""Tiers above groups: candidates by round trips, confirmed by what the links below would carry."""

import numpy as np
import pytest

from plink.model.network import Matrix
from plink.model.network_file import LimitedBy, SharedLinkEntry
from solvers.hierarchy.shared_tiers import candidate_tiers, confirmed_rows, limited_from_above

RACKS = [[0, 1], [2, 3], [4, 5], [6, 7]]
PODS = [[0, 1, 2, 3], [4, 5, 6, 7]]


def tree(levels: dict[int, list[list[int]]], hosts: int, far_us: float = 200.0, noise: float = 0.0) -> Matrix:
    """Round trips by the smallest group that has both hosts; ``levels``: microseconds of groups."""
    rtt = np.full((hosts, hosts), far_us)
    for us, groups in sorted(levels.items(), reverse=True):
        for group in groups:
            rtt[np.ix_(group, group)] = us
    rtt *= np.random.default_rng(hosts).lognormal(0, noise, rtt.shape)
    rtt = (rtt + rtt.T) / 2
    np.fill_diagonal(rtt, 0.0)
    return rtt


def row(members: list[int], out: float | None, into: float | None, limit: LimitedBy | None = "link") -> SharedLinkEntry:
    return SharedLinkEntry(
        members=[f"h{i}" for i in members], out_gbps=out, in_gbps=into, out_limited_by=limit, in_limited_by=limit
    )


def test_three_tiers_are_found_in_noise() -> None:
    """Eight racks of eight in four pods in two zones, 8 % noise of each pair: exactly, from the innermost out."""
    racks = [list(range(8 * k, 8 * k + 8)) for k in range(8)]
    pods = [list(range(16 * k, 16 * k + 16)) for k in range(4)]
    zones = [list(range(32 * k, 32 * k + 32)) for k in range(2)]
    assert candidate_tiers(tree({40: racks, 90: pods, 150: zones}, 64, 400.0, 0.08), racks) == [pods, zones]


@pytest.mark.parametrize("racks", [RACKS[:1], RACKS[:2], RACKS])
def test_racks_that_are_all_as_far_have_no_tier(racks: list[list[int]]) -> None:
    assert candidate_tiers(tree({40: RACKS}, 8, noise=0.02), racks) == []


def test_unmeasured_pairs_of_groups_are_far() -> None:
    rtt = tree({40: RACKS, 90: PODS}, 8)
    rtt[np.ix_(RACKS[0], RACKS[2])] = rtt[np.ix_(RACKS[2], RACKS[0])] = np.nan
    assert candidate_tiers(rtt, RACKS) == [PODS]


def test_a_pod_that_carries_less_than_its_racks_is_confirmed() -> None:
    """Racks of 2 Gbit/s: of pods with 2 and 3.5 out the second is as good as its racks."""
    below = [row(rack, 2.0, 2.0) for rack in RACKS]
    first, second = confirmed_rows([row(PODS[0], 2.0, 3.1), row(PODS[1], 3.5, 3.3)], below)
    assert (first.out_limited_by, first.in_limited_by) == ("link", "link")
    assert (second.out_limited_by, second.in_limited_by) == ("groups", "groups")


@pytest.mark.parametrize("limit", ["hosts", "groups", None])
def test_pod_with_faster_uplink_than_its_racks_adds_no_tier(limit: LimitedBy | None) -> None:
    below = [row(rack, 2.0, 2.0) for rack in RACKS]
    assert confirmed_rows([row(PODS[0], 3.9, 3.8), row(PODS[1], 3.5, 3.3)], below) == []
    assert confirmed_rows([row(PODS[0], 1.0, 1.0, limit), row(PODS[1], None, None, None)], below) == []


def test_a_slow_far_end_is_no_bottleneck_of_the_group() -> None:
    """All that leaves three racks enters a lone host, which takes 1 Gbit/s; and so it does into them."""
    below = [row(rack, 2.0, 2.0) for rack in RACKS[:3]] + [row([6], 1.0, 1.0, "hosts")]
    assert confirmed_rows([row([0, 1, 2, 3, 4, 5], 1.0, 1.0)], below) == []


def test_racks_that_could_not_be_measured_confirm_nothing() -> None:
    below = [row(RACKS[0], 2.0, None), row(RACKS[1], None, 2.0), row(RACKS[2], 2.0, 2.0)]
    assert confirmed_rows([row(PODS[0], 0.1, 0.1)], below) == []


def test_two_pods_of_which_either_is_the_limit_are_a_tier() -> None:
    below = [row(rack, 2.0, 2.0) for rack in RACKS]
    pods = confirmed_rows([row(pod, 2.0, 2.0, "others") for pod in PODS], below)
    assert [pod.out_limited_by for pod in pods] == ["others", "others"]
    (open_pod, *_) = confirmed_rows([row(PODS[0], 3.8, 2.0, "others")], below)
    assert (open_pod.out_limited_by, open_pod.in_limited_by) == ("groups", "others")


@pytest.mark.parametrize(
    ("pod_limit", "gbps", "limit"),
    [("link", 3.0, "others"), ("others", 2.9, "others"), ("link", 2.0, "link"), ("groups", 3.0, "link")],
)
def test_a_rack_that_carries_what_its_pod_lets_through(pod_limit: LimitedBy, gbps: float, limit: str) -> None:
    """The other rack of the pod takes 1 Gbit/s, and the pod's link 2: with that much in all either may be the limit."""
    racks = [row(RACKS[0], gbps, 0.5), row(RACKS[1], 1.0, 1.0)]
    first, _ = limited_from_above(racks, [row(PODS[0], 2.0, 2.0, pod_limit), row(PODS[1], 2.0, 2.0)])
    assert (first.out_limited_by, first.in_limited_by) == (limit, "link")


def test_a_host_that_was_lost_between_tiers_stays_with_its_rack() -> None:
    """Else the file would have a pod with a part of a rack."""
    (pod,) = confirmed_rows([row([0, 1, 3], 1.0, 1.0)], [row(rack, 2.0, 2.0) for rack in RACKS])
    assert sorted(pod.members) == ["h0", "h1", "h2", "h3"]
