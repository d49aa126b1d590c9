"""Round trips from a provider's word: how far apart hosts are, what is assumed of it, and what fills the gaps."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from plink.errors import InputError, NoAnswer
from plink.model.hosts import Host, Hosts
from plink.model.network import Matrix, network_from_json
from plink.model.topology import Path, Topology
from solvers.costs.fabric import OVERSUBSCRIPTION, fabric_of
from solvers.prediction.topology import (
    MAX_HOSTS,
    assumed_network,
    at_most,
    filled,
    latencies_of,
    levels_apart,
    tiers_of,
)

NAME = st.sampled_from("ab")
FULL = st.lists(st.lists(NAME, min_size=1, max_size=4).map(tuple), min_size=1, max_size=12)
GAPPED = st.lists(st.none() | st.lists(st.none() | NAME, max_size=4).map(tuple), min_size=1, max_size=12)


def racks(*sizes: int) -> list[Path]:
    """Hosts under one core, so many in each rack, two racks in a row of racks."""
    return [("core", f"row {rack // 2}", f"rack {rack}") for rack, size in enumerate(sizes) for _ in range(size)]


def named(path: Path) -> Path:
    """As far as it is named."""
    return path[: path.index(None)] if None in path else path


def met(paths: list[Path], item: Path, other: Path) -> int:
    """How high the nearest common ancestor is above the deepest leaf below it; without one the longest path. Below 0
    where they may be nearer."""
    own, its = named(item), named(other)
    common = 0
    while common < min(len(own), len(its)) and own[common] == its[common]:
        common += 1
    gap_of_one = common == len(own) and len(own) < len(item) and common < len(other)
    gap_of_other = common == len(its) and len(its) < len(other) and common < len(item)
    below = [path for path in paths if named(path)[:common] == own[:common]]
    height = max(len(path) for path in below) - common
    return ~height if gap_of_one or gap_of_other else height


@given(st.lists(st.lists(st.none() | NAME, min_size=1, max_size=4).map(tuple), min_size=1, max_size=9))
def test_hosts_are_as_far_apart_as_their_nearest_common_ancestor_is_high(paths: list[Path]) -> None:
    """And so high at most where one of them is not named just below it, or as high as any of which it is known."""
    expected = [[0 if i == j else met(paths, a, b) for j, b in enumerate(paths)] for i, a in enumerate(paths)]
    farthest = max(max(row) for row in expected)
    assert levels_apart(paths).tolist() == [[max(level, ~farthest) for level in row] for row in expected]


def test_a_name_under_another_parent_is_another_thing() -> None:
    assert levels_apart([("a", "rack 1"), ("b", "rack 1")])[0, 1] == 2


def test_what_is_not_named_is_unknown_only_as_far_as_it_matters() -> None:
    paths: list[Path | None] = [("z", "a"), ("z", None), ("z", None, "b"), ("y", None), ("z",), None]
    z, u = ~2, ~3  # below one zone, or anywhere
    assert levels_apart(paths).tolist() == [
        [0, z, z, 3, 2, u],
        [z, 0, z, 3, 2, u],
        [z, z, 0, 3, 2, u],
        [3, 3, 3, 0, 3, u],
        [2, 2, 2, 3, 0, u],
        [u, u, u, u, u, 0],
    ]


def test_hosts_of_which_only_the_zone_is_known_are_grouped_by_it() -> None:
    levels = levels_apart([("region", f"zone {host % 3}", None) for host in range(6)])
    assert tiers_of(levels) == [[[0, 3], [1, 4], [2, 5]]]
    assert latencies_of(levels)[0].tolist() == [0, 120, 120, 60, 120, 120]
    rtt = gaps(6, (0, 3, 40), (1, 4, 50), (0, 1, 700))
    assert filled(rtt, levels)[2, 5] == 45
    assert filled(rtt, levels)[2, 4] == 700


@given(FULL)
def test_levels_of_full_paths_are_an_ultrametric(paths: list[Path]) -> None:
    levels = levels_apart(paths)
    assert (levels >= 0).all()
    assert (levels == levels.T).all()
    assert not np.diagonal(levels).any()
    assert (levels[:, None, :] <= np.maximum(levels[:, :, None], levels[None, :, :])).all()


@settings(max_examples=50)
@given(FULL, st.data())
def test_gap_hides_a_level_and_never_invents_one(paths: list[Path], data: st.DataObject) -> None:
    """Names taken out, tails included: a pair is as far apart as before, or unknown."""
    remaining = [data.draw(st.lists(st.booleans(), min_size=len(path), max_size=len(path))) for path in paths]
    gapped = [
        tuple(n if k else None for n, k in zip(p, ks, strict=True)) for p, ks in zip(paths, remaining, strict=True)
    ]
    full, levels = levels_apart(paths), levels_apart(gapped)
    # Heights are those of what is named, so a hidden deep branch may lower them: never raise them.
    assert (levels <= full).all()


def test_assumed_times_grow_with_the_level_and_unknown_is_as_far_as_it_may_be() -> None:
    levels = np.array([[0, 0, 1, ~4], [0, 0, 3, 2], [1, 3, 0, 4], [~4, 2, 4, 0]], dtype=np.int16)
    assert latencies_of(levels).tolist() == [[0, 25, 60, 480], [25, 0, 240, 120], [60, 240, 0, 480], [480, 120, 480, 0]]


def gaps(n: int, *measured: tuple[int, int, float]) -> Matrix:
    """A matrix of which only these directions were measured."""
    matrix = np.full((n, n), np.nan)
    np.fill_diagonal(matrix, 0.0)
    for i, j, rtt in measured:
        matrix[i, j] = rtt
    return matrix


def test_gaps_get_the_median_of_their_level() -> None:
    levels = levels_apart(racks(3, 3))
    rtt = gaps(6, (0, 1, 10), (1, 0, 14), (2, 0, 12), (3, 4, 40), (0, 3, 70), (3, 0, 80))
    whole = filled(rtt, levels)
    assert whole[0, 1] == 10  # measured, and not the worse of both directions
    assert whole[0, 2] == 12  # as the other direction
    assert whole[0, 3] == 70
    assert whole[1, 2] == whole[2, 1] == 14  # of 14, 12 and 40
    assert whole[1, 4] == whole[5, 2] == 80


def test_levels_that_fall_are_pooled_by_how_many_were_measured() -> None:
    levels = levels_apart(racks(2, 2, 4))
    rtt = gaps(8, (0, 1, 30), (0, 2, 60), (0, 3, 60), (1, 2, 60), (0, 4, 40))
    whole = filled(rtt, levels)
    assert whole[2, 3] == 30
    assert whole[1, 3] == whole[1, 4] == pytest.approx((3 * 60 + 40) / 4)


def test_a_level_never_measured_lies_as_the_assumed_times_do() -> None:
    levels = levels_apart([("a", "b", "c")] * 2 + [("a", "b", "d"), ("a", "e", "f"), ("g", "h", "i")])
    between = filled(gaps(5, (0, 1, 50), (0, 3, 240)), levels)
    assert between[0, 2] == pytest.approx(50 + (60 - 25) / (120 - 25) * 190)
    assert between[0, 4] == pytest.approx(480)  # beyond: twice that of the level below
    assert filled(gaps(5, (0, 2, 30)), levels)[0, 1] == pytest.approx(12.5)


def test_unknown_pairs_are_as_the_measured_unknown_ones_or_the_farthest() -> None:
    levels = levels_apart([("a",), ("a",), ("b",), None, None])
    assert filled(gaps(5, (0, 1, 10), (0, 2, 90)), levels)[3, 4] == 90
    assert filled(gaps(5, (0, 1, 10), (0, 2, 90), (0, 3, 20), (1, 3, 40)), levels)[3, 4] == 30


@settings(max_examples=50)
@given(paths=GAPPED, data=st.data())
def test_what_was_measured_stays_and_no_gap_does(paths: list[Path | None], data: st.DataObject) -> None:
    n = len(paths)
    entries = st.floats(0, 1e6, width=32) | st.just(np.nan)
    rtt = data.draw(hnp.arrays(np.float64, (n, n), elements=entries))
    np.fill_diagonal(rtt, 0.0)
    before, levels = rtt.copy(), levels_apart(paths)
    whole = filled(rtt, levels)
    measured = np.isfinite(rtt)
    assert (whole[measured] == rtt[measured]).all()
    assert np.isfinite(whole).all()
    assert (whole >= 0).all()
    assert np.array_equal(rtt, before, equal_nan=True)
    gap = ~measured & ~measured.T
    assert (whole[gap] == whole.T[gap]).all()
    order = np.argsort(levels[gap & (levels >= 0)])
    assert (np.diff(whole[gap & (levels >= 0)][order]) >= -1e-6).all()
    assert (at_most(levels) >= levels).all()
    if not measured[~np.eye(n, dtype=bool)].any():
        assert (whole == latencies_of(levels)).all()


def test_a_network_of_a_file_says_what_it_is_assumed_from() -> None:
    topology = Topology({"b": ("x", "1"), "a": ("x", "2"), "c": ("x", "1")}, "slurm-tree")
    network = assumed_network(topology)
    assert network.hosts.names == ["b", "a", "c"]
    assert network.latency_us.tolist() == [[0, 60, 25], [60, 0, 60], [25, 60, 0]]
    assert network.to_json()["assumed_from"] == "slurm-tree"
    again = network_from_json(network.to_json(), "f")
    assert again.details.assumed_from == "slurm-tree"
    assert [[row.members for row in tier.groups] for tier in again.shared_links] == [[["b", "c"]]]


def test_groups_of_a_file_are_tiers() -> None:
    """Each one level up; a tier that groups nobody anew is left out, as one is that holds all hosts."""
    paths: list[Path | None] = [("z", pod, rack) for pod, rack in ("aa", "aa", "ab", "bc", "bc", "bc")]
    assert tiers_of(levels_apart(paths)) == [[[0, 1], [2], [3, 4, 5]], [[0, 1, 2], [3, 4, 5]]]
    assert tiers_of(levels_apart([*paths, None])) == [[[0, 1], [2], [3, 4, 5], [6]], [[0, 1, 2], [3, 4, 5], [6]]]
    assert tiers_of(levels_apart([("z", "a", "1"), ("z", "b", "2")])) == []
    assert tiers_of(levels_apart([("z", "a", "1")] * 3)) == []


@given(GAPPED)
def test_tiers_of_any_paths_are_nested_partitions(paths: list[Path | None]) -> None:
    hosts, below = set(range(len(paths))), [[host] for host in range(len(paths))]
    for tier in tiers_of(levels_apart(paths)):
        assert sorted(host for group in tier for host in group) == sorted(hosts)
        assert all(any(set(part) <= set(group) for group in tier) for part in below)
        below = tier


def test_capacities_of_a_files_tiers_are_inferred() -> None:
    """Each tier's links are oversubscribed by what enters them from below."""
    paths = {f"n{k}": ("z", f"pod{k // 8}", f"rack{k // 4}") for k in range(16)}
    fabric = fabric_of(assumed_network(Topology(paths, "slurm-tree", location="t")))
    racks, pods = fabric.tiers
    assert not fabric.measured
    assert racks.group_of.tolist() == [k // 4 for k in range(16)]
    assert pods.group_of.tolist() == [k // 8 for k in range(16)]
    assert racks.out_gbps == pytest.approx([4 * 10 / OVERSUBSCRIPTION] * 4)
    assert pods.in_gbps == pytest.approx([8 * 10 / OVERSUBSCRIPTION**2] * 2)


def test_a_network_of_some_hosts_of_a_file() -> None:
    topology = Topology({f"n{k}": ("x", f"{k // 2}") for k in range(8)}, "slurm-tree", location="t")
    some = Hosts((Host("n5", "n5"), Host("n4.x", "10.0.0.4"), Host("n0", "n0"), Host("z", "z")))
    assert assumed_network(topology, some).latency_us.tolist() == [
        [0, 25, 60, 60],
        [25, 0, 60, 60],
        [60, 60, 0, 60],
        [60, 60, 60, 0],
    ]
    with pytest.raises(InputError, match="t: it has none of the hosts"):
        assumed_network(topology, Hosts((Host("z", "z"),)))


def test_file_without_distinct_hosts_is_no_answer() -> None:
    with pytest.raises(NoAnswer, match="t says of no two hosts how far apart they are; measure them: plink probe"):
        assumed_network(Topology({"a": ("z", None), "b": ("z", None)}, "aws", location="t"))


def test_too_many_hosts_for_a_matrix_are_refused() -> None:
    with pytest.raises(InputError, match="8193 hosts are more than the 8192"):
        assumed_network(Topology({f"n{k}": ("a",) for k in range(MAX_HOSTS + 1)}, "slurm-tree"))
