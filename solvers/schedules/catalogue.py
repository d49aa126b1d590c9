"""Every algorithm by its name, and what it can be told."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from plink.errors import UsageError
from plink.model.mesh import Mesh
from plink.model.schedule import COLLECTIVES, Schedule, forward_and_reverse, mirrored
from solvers.schedules.bcube import base_of, bcube_reduce_scatter, bml_reduce_scatter
from solvers.schedules.halving_doubling import (
    doubling_all_gather,
    halving_doubling,
    halving_reduce_scatter,
    lightgbm_reduce_scatter,
    recursive_doubling,
)
from solvers.schedules.hierarchical import (
    flat_reduce_scatter,
    hub_reduce_scatter,
    pipelined,
    two_level_masters,
    two_level_reduce_scatter,
)
from solvers.schedules.hubs import hubs
from solvers.schedules.multi_ring import multi_ring
from solvers.schedules.parameter_server import push
from solvers.schedules.ring import ring, ring_all_gather, ring_chunked, ring_reduce_scatter
from solvers.schedules.trees import all_reduce_along, double_binary_tree, heap_parents, nccl_tree, reduce_along
from solvers.spanning.tier_tree import TierTree, star


@dataclass(frozen=True)
class Options:
    """What an algorithm can be told; each takes the options that its :class:`Algorithm` names and no others.

    ``fan_out``: children of a tree's node. ``base``: ranks that exchange at a time in a BCube, whose number of
    ``levels`` follows from it; with ``levels`` the base follows. ``segments``: into how many a ring's blocks
    (None: 4), or what a tree or a hub carries (None: 1), are cut.
    ``groups``: the ranks of each group, for 2LHA. ``sharded``, ``colocated``, ``servers`` (how many, when not
    colocated) and ``root`` (who, when neither sharded nor apart): the form of the parameter server; ``servers`` is also
    the number of hubs, the last ranks (None: one, or one for each group). ``weights``: of these, None: all the same.
    ``mesh``: the traffic that is priced in place of one collective. ``tree``: the links between ranks, for ``hubs``
    (None: alike, on one switch) and for 2LHA, whose masters then are those of the least time where that gains (None: by
    sizes of groups); costs make it anew for every order. ``slots``: ranks of each host: NCCL's trees are of hosts.
    """

    fan_out: int = 2
    base: int = 2
    levels: int | None = None
    segments: int | None = None
    groups: Sequence[Sequence[int]] | None = None
    sharded: bool = True
    colocated: bool = True
    servers: int | None = None
    root: int = 0
    weights: Sequence[float] | None = None
    mesh: Mesh | None = None
    tree: TierTree | None = None
    slots: int = 1

    def segments_or(self, default: int) -> int:
        """Return the number of segments, or an algorithm's own."""
        return default if self.segments is None else self.segments


RING_SEGMENTS = 4
HUB_ALGORITHMS = ("phub", "phub-2l")  # the last ranks are hub processes
HUBS = "hubs"  # hubs among the ranks, made for the order's links
Make = Callable[[int, Options], Schedule]


@dataclass(frozen=True)
class Algorithm:
    """``make`` makes the all-reduce; ``parts`` the other collectives that the algorithm has, by name. ``options``: the
    names of those it takes. ``source``: of which version of a library this was read, if of any."""

    name: str
    summary: str
    make: Make
    options: tuple[str, ...] = ()
    parts: Mapping[str, Make] = field(default_factory=dict)
    source: str | None = None

    @property
    def collectives(self) -> list[str]:
        """What it can do."""
        return [name for name in COLLECTIVES if name == "all-reduce" or name in self.parts]


def schedule_for(algo: str, ranks: int, options: Options | None = None, collective: str = "all-reduce") -> Schedule:
    """The schedule of that name.

    :raises UsageError: for an unknown name, a collective that the algorithm does not have, or a number of ranks or an
        option that does not fit.
    """
    if algo not in ALGORITHMS:
        raise UsageError(f"there is no algorithm {algo}; there are {', '.join(ALGORITHMS)}")
    if ranks < 2:
        raise UsageError(f"a collective needs two ranks or more, not {ranks}")
    entry = ALGORITHMS[algo]
    make = entry.make if collective == "all-reduce" else entry.parts.get(collective)
    made = make(ranks, options or Options()) if make else None
    if made is None or made.collective != collective:
        has = ", ".join(entry.collectives)
        raise UsageError(f"{algo} has no {collective}{' in this form' if make else ''}; it has {has}")
    return dataclasses.replace(made, algo=algo)


def _both_ways(
    name: str, summary: str, names: tuple[str, ...], reduction: Make, there: tuple[str, ...], back: tuple[str, ...]
) -> Algorithm:
    """An algorithm whose way back is the mirror image of its way there."""

    def all_reduce(ranks: int, options: Options) -> Schedule:
        made = reduction(ranks, options)
        return (
            pipelined(made, options.segments) if "segments" in names and options.segments else forward_and_reverse(made)
        )

    def return_(ranks: int, options: Options) -> Schedule:
        return mirrored(reduction(ranks, options))

    parts = dict.fromkeys(there, reduction) | dict.fromkeys(back, return_)
    return Algorithm(name, summary, all_reduce, names, parts)


def _base(algo: str, ranks: int, options: Options) -> int:
    return options.base if options.levels is None else base_of(algo, ranks, options.levels)


def _along_tree(along: Callable[..., Schedule], ranks: int, options: Options) -> Schedule:
    parents = heap_parents(ranks, options.fan_out)
    return along("tree", [parents], options.segments_or(1), fan_out=options.fan_out)


def _multi_ring(ranks: int, options: Options) -> tuple[Schedule, Schedule]:
    return multi_ring(ranks, _base("multi-ring", ranks, options))


def _two_level(ranks: int, options: Options) -> Schedule:
    groups = _groups_of("2lha", ranks, options)
    return two_level_reduce_scatter(groups, *two_level_masters(groups, options.tree))


def _groups_of(algo: str, ranks: int, options: Options) -> Sequence[Sequence[int]]:
    if options.groups is None:
        raise UsageError(f"{algo} needs groups: which ranks stand together")
    if sum(len(group) for group in options.groups) != ranks:
        raise UsageError(f"{algo}: {sum(len(group) for group in options.groups)} ranks stand in groups, not {ranks}")
    return options.groups


def _hubs(ranks: int, options: Options) -> tuple[Schedule, Schedule]:
    tree = options.tree or star(ranks)
    if (number := int(tree.rank.max()) + 1) != ranks:
        raise UsageError(f"{HUBS}: {number} ranks are in the tree of links, not {ranks}")
    return hubs(tree)


def _push(ranks: int, options: Options) -> Schedule:
    return push(ranks, options.sharded, options.colocated, options.servers, options.root)


def _hub(ranks: int, options: Options) -> Schedule:
    return hub_reduce_scatter([range(ranks)], options.servers or 1, options.weights)


def _hub_two_level(ranks: int, options: Options) -> Schedule:
    groups = _groups_of("phub-2l", ranks, options)
    return hub_reduce_scatter(groups, options.servers or len(groups), options.weights)


_SCATTER, _GATHER = ("reduce-scatter",), ("all-gather",)

ALGORITHMS: Mapping[str, Algorithm] = {
    entry.name: entry
    for entry in (
        Algorithm(
            "ring", "1/N of the vector to the next rank, 2(N-1) times", lambda n, _: ring(n),
            parts={
                "reduce-scatter": lambda n, _: ring_reduce_scatter(n),
                "all-gather": lambda n, _: ring_all_gather(n),
            },
        ),
        Algorithm(
            "ring-chunked", "the ring with its blocks cut into segments that follow each other",
            lambda n, o: ring_chunked(n, o.segments_or(RING_SEGMENTS)), ("segments",),
            {
                "reduce-scatter": lambda n, o: ring_reduce_scatter(n, segments=o.segments_or(RING_SEGMENTS)),
                "all-gather": lambda n, o: ring_all_gather(n, segments=o.segments_or(RING_SEGMENTS)),
            },
        ),
        Algorithm(
            "halving-doubling", "half of the vector to the neighbour, a quarter twice as far, and so on, and back",
            lambda n, _: halving_doubling(n),
            parts={
                "reduce-scatter": lambda n, _: halving_reduce_scatter(n),
                "all-gather": lambda n, _: doubling_all_gather(n),
            },
        ),
        Algorithm(
            "recursive-doubling", "the whole vector to a partner twice as far away each time",
            lambda n, _: recursive_doubling(n),
        ),
        Algorithm(
            "tree", "up and down one tree with rank 0 at its root",
            lambda n, o: _along_tree(all_reduce_along, n, o), ("fan_out", "segments"),
            {
                "reduce": lambda n, o: _along_tree(reduce_along, n, o),
                "broadcast": lambda n, o: mirrored(_along_tree(reduce_along, n, o)),
            },
        ),
        Algorithm(
            "double-binary-tree", "half of the vector along each of two trees, as in the PLink thesis",
            lambda n, o: double_binary_tree(n, o.segments_or(1)), ("segments",),
        ),
        _both_ways(
            "bcube", "exchanges among B ranks at a time, one digit of their numbers after the other",
            ("base", "levels"), lambda n, o: bcube_reduce_scatter(n, _base("bcube", n, o)), _SCATTER, _GATHER,
        ),
        _both_ways(
            "2lha", "local masters add up their groups, global masters the groups", ("groups",), _two_level,
            _SCATTER, _GATHER,
        ),
        _both_ways(
            "flat", "every rank adds up 1/N of the vector for all others", (), lambda n, _: flat_reduce_scatter(n),
            _SCATTER, _GATHER,
        ),
        Algorithm(
            HUBS, "hubs on every tier, at the least possible time of the measured links (docs/optimal.md)",
            lambda n, o: forward_and_reverse(*_hubs(n, o)), ("tree",),
            {"reduce-scatter": lambda n, o: _hubs(n, o)[0], "all-gather": lambda n, o: _hubs(n, o)[1]},
        ),
        _both_ways(
            "ps", "the parameter server, sharded or centralised, colocated or not",
            ("sharded", "colocated", "servers", "root"), _push,
            ("reduce-scatter", "reduce"), ("all-gather", "broadcast"),
        ),
        _both_ways(
            "phub", "Parameter Hub: hosts with wide links (role=hub) add up the vector for all workers",
            ("servers", "segments"), _hub, _SCATTER, _GATHER,
        ),
        _both_ways(
            "phub-2l", "Parameter Hub in two levels: hubs add up the workers of their group of hosts, then each other",
            ("servers", "groups", "segments"), _hub_two_level, _SCATTER, _GATHER,
        ),
        _both_ways(
            "bml", "as bcube, with k exchanges at once, each on another level of a BCube network",
            ("base", "levels"), lambda n, o: bml_reduce_scatter(n, _base("bml", n, o)), _SCATTER, _GATHER,
        ),
        Algorithm(
            "multi-ring", "a ring for each level of a BCube network, all at once, each for its share of the vector",
            lambda n, o: forward_and_reverse(*_multi_ring(n, o)), ("base", "levels"),
            {"reduce-scatter": lambda n, o: _multi_ring(n, o)[0], "all-gather": lambda n, o: _multi_ring(n, o)[1]},
        ),
        # What libraries run. Only who sends what to whom is told: their smaller segments, and the channels over which
        # NCCL spreads its chunks, change no link's bytes (but they pipeline trees: see docs/cost-models.md).
        Algorithm(
            "gloo", "Gloo's ring, at every size under PyTorch: each rank sends to rank-1 and ends with chunk r between",
            lambda n, _: ring(n, -1, 1), source="gloo/allreduce.cc of pytorch/gloo at 0fdde35",
        ),
        Algorithm(
            "nccl-ring", "NCCL's ring: each rank sends to rank+1, its neighbour's chunk first, and ends with its own",
            lambda n, _: ring(n, 1, -1), source="src/device/all_reduce.h of NVIDIA/nccl at 0e35f5d",
        ),
        Algorithm(
            "nccl-tree", "NCCL's double binary tree: a bitwise one, and its mirror image or the next rank's",
            lambda n, o: nccl_tree(n, o.segments_or(1), o.slots), ("segments",),
            source="src/graph/trees.cc of NVIDIA/nccl at 18a07ee",
        ),
        Algorithm(
            "openmpi-ring", "Open MPI's ring (coll_tuned 4): each rank sends to rank+1, its own chunk first",
            lambda n, _: ring(n, 1), source="coll_base_allreduce.c of open-mpi/ompi at 07a69c3 (after 5.0)",
        ),
        Algorithm(
            "openmpi-recursive-doubling", "Open MPI's recursive doubling (coll_tuned 3)",
            lambda n, _: recursive_doubling(n), source="coll_base_allreduce.c of open-mpi/ompi at 07a69c3 (after 5.0)",
        ),
        Algorithm(
            "openmpi-rabenseifner", "Open MPI's recursive halving and doubling (coll_tuned 6)",
            lambda n, _: halving_doubling(n), source="coll_base_allreduce.c of open-mpi/ompi at 07a69c3 (after 5.0)",
        ),
        dataclasses.replace(
            _both_ways(
                "lightgbm", "LightGBM's halving (tree_learner=data): half of the vector to the farthest rank first", (),
                lambda n, _: lightgbm_reduce_scatter(n), _SCATTER, _GATHER,
            ),
            source="src/network/linker_topo.cpp of microsoft/LightGBM at 01a8c0a",
        ),
    )
}  # fmt: skip
