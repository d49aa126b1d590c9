"""Patterns of meshes: the rounds of all groups of a traffic side by side, so that groups meet on the links they share.

The ranks of a host are consecutive. What a search exchanges are these blocks of ranks: hops within a block cost
nothing, and those between two blocks in one round are one hop of all their bytes. Shares are bytes: the size of a
mesh's vector is 1.
"""

import itertools
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from plink.errors import UsageError, no_choice
from plink.model.mesh import Mesh, Traffic
from plink.model.schedule import Schedule
from solvers.costs.patterns import Edges, Pattern, pattern_of, ring_pattern
from solvers.schedules.catalogue import ALGORITHMS, Options, schedule_for

_MAX_AXES_PERMUTED = 4


def group_sizes(mesh: Mesh, traffic: Traffic, hops: npt.NDArray[np.intp] | None = None) -> npt.NDArray[np.float64]:
    """Return the bytes of each group (rows) at each hop (columns), shape (G, 1) or (1, E), to be multiplied by shares.

    :param hops: shape (E,), the lower rank of each hop, for ``p2p``.
    """
    sizes = np.array(traffic.sizes)
    if traffic.kind != "p2p":
        return sizes[:, None]
    return (sizes if len(sizes) == 1 or hops is None else sizes[hops])[None, :]


def slots_in(blocks_of_group: Edges) -> int:
    """Return how many ranks of a group each block has, shape (ranks of the group,); 1 where that differs."""
    slots = np.unique(np.unique(blocks_of_group, return_counts=True)[1])
    return int(slots[0]) if len(slots) == 1 else 1


def schedule_of(traffic: Traffic, ranks: int, slots: int = 1) -> Schedule:
    """Return the schedule of one group of so many ranks, two or more.

    A transfer moves its share of the chunks times :func:`group_sizes`; in a ``ring`` a chunk is a whole vector.

    :param slots: ranks of each host.

    :raises UsageError: for an algorithm that is none, or does not fit the number of ranks.
    """
    if traffic.kind == "p2p":
        low = np.arange(ranks - 1, dtype=np.int32)
        ends = np.concatenate([low, low + 1])
        zeros, ones = np.zeros(len(ends), dtype=np.int32), np.ones(len(ends), dtype=np.int32)
        copies = np.ones(len(ends), dtype=np.bool_)
        target = np.concatenate([low + 1, low])
        return Schedule("p2p", "all-gather", ranks, 1, zeros, ends, target, zeros, ones, copies)
    if traffic.kind == "all-reduce":
        return schedule_for(traffic.algorithm, ranks, Options(slots=slots))
    if traffic.kind == "all-to-all":  # of the same transfers as a reduce-scatter in one round
        return schedule_for("flat", ranks, collective="reduce-scatter")
    collective = "reduce-scatter" if traffic.kind == "reduce-scatter" else "all-gather"
    return schedule_for("ring", ranks, collective=collective)


def _group_pattern(traffic: Traffic, ranks: int, slots: int) -> Pattern:
    if traffic.kind in ("reduce-scatter", "all-gather", "ring"):
        repeat = np.array([ranks - 1.0])
        pattern = replace(ring_pattern(ranks), repeat=repeat, reduce_repeat=repeat)
        return replace(pattern, share=np.ones(ranks)) if traffic.kind == "ring" else pattern
    if traffic.kind == "all-reduce" and traffic.algorithm in ("ring", "nccl-ring", "openmpi-ring"):
        return ring_pattern(ranks)
    return pattern_of(schedule_of(traffic, ranks, slots))


def traffic_pattern(mesh: Mesh, traffic: Traffic, blocks: int) -> Pattern:
    """Return the pattern of one operation of all groups of a traffic, between blocks of ranks; without hops where every
    group is inside one block.

    :param blocks: a divisor of the mesh's ranks. :raises UsageError: as :func:`schedule_of`.
    """
    groups = mesh.groups(traffic.axes) // (mesh.ranks // blocks)
    nothing = np.zeros(0, dtype=np.intp)
    if groups.shape[1] < 2 or (groups == groups[:, :1]).all():
        return Pattern(blocks, nothing, nothing, nothing, np.zeros(0), np.zeros(0), np.zeros(0))
    pattern = _group_pattern(traffic, groups.shape[1], slots_in(groups[0]))
    source, target = groups[:, pattern.source], groups[:, pattern.target]
    hops = np.minimum(pattern.source, pattern.target)
    moved = np.broadcast_to(pattern.share[None, :] * group_sizes(mesh, traffic, hops), source.shape)
    key = (np.broadcast_to(pattern.round, source.shape) * blocks + source) * blocks + target
    leaves = source != target
    keys, place = np.unique(key[leaves], return_inverse=True)
    rounds, round_of = np.unique(keys // (blocks * blocks), return_inverse=True)
    repeat = pattern.repeat[rounds]
    pair = keys % (blocks * blocks)
    share = np.bincount(place, moved[leaves], len(keys)).astype(np.float64)
    return Pattern(blocks, round_of.astype(np.intp), pair // blocks, pair % blocks, share, repeat, repeat)


def mesh_pattern(mesh: Mesh, blocks: int) -> Pattern:
    """Return the pattern of a training step's traffic, one operation after the other; what computing hides is left out.

    :raises UsageError: as :func:`schedule_of`.
    """
    parts = [(weight_of(each), traffic_pattern(mesh, each, blocks)) for each in mesh.traffic]
    rounds = np.cumsum([0, *(len(part.repeat) for _, part in parts)])

    def joined(column: Callable[[int, float, Pattern], Edges]) -> Edges:
        return np.concatenate([column(int(k), weight, part) for k, (weight, part) in zip(rounds, parts, strict=False)])

    repeat = np.concatenate([weight * part.repeat for weight, part in parts])
    return Pattern(
        blocks,
        joined(lambda k, _, part: part.round + k),
        joined(lambda k, _, part: part.source),
        joined(lambda k, _, part: part.target),
        np.concatenate([part.share for _, part in parts]),
        repeat,
        repeat,
    )


def weight_of(traffic: Traffic) -> float:
    """Return how many operations of a traffic a step waits for."""
    return traffic.times * (1 - traffic.overlap)


def check_mesh(mesh: Mesh) -> None:
    """Refuse traffic whose groups no algorithm fits.

    :raises UsageError: naming it.
    """
    for each in mesh.traffic:
        if each.algorithm not in ALGORITHMS:
            raise no_choice(f"--traffic {each.text}: algorithm", each.algorithm, ALGORITHMS)
        ranks = mesh.groups(each.axes).shape[1]
        if ranks > 1 and each.algorithm != "ring":
            try:
                schedule_of(each, ranks)
            except UsageError as error:
                raise UsageError(f"--traffic {each.text}: {error}") from None


def axis_sequences(mesh: Mesh, blocks: int) -> list[Edges]:
    """Return the blocks in sequences in which other axes are innermost, shape (blocks,) each: hosts that are near each
    other, taken in turn, then share the groups of these axes."""
    shape = [size for _, size in mesh.axes]
    long = [k for k, size in enumerate(shape) if size > 1]
    other = [k for k in range(len(shape)) if k not in long]
    if len(long) <= _MAX_AXES_PERMUTED:
        permuted = [list(each) for each in itertools.permutations(long)]
    else:
        permuted = [[each for each in long if each != k] + [k] for k in long]
    ranks, slots = np.arange(mesh.ranks).reshape(shape), mesh.ranks // blocks
    sequences = [ranks.transpose(other + each).ravel() // slots for each in permuted]
    first = [sequence[np.sort(np.unique(sequence, return_index=True)[1])] for sequence in sequences]
    return list({sequence.tobytes(): sequence for sequence in first}.values())
