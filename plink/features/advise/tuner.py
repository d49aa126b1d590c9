"""Files for NCCL's tuners: whether ring or tree is the faster for a size, in the order that a job runs in.

Columns as NVIDIA/nccl's example plugin reads them, which crashes where a row matches up to v2.29.7 and works from
v2.30.3 on (plugins/tuner/example/README.md), RCCL's own tuner from RCCL 2.28.3 (ROCm 7.13) on (tuner/README.md), the
same, and Meta's NCCLX (meta/tuner/README.md of meta-pytorch/torchcomms).
"""

import functools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from plink.errors import NoAnswer
from plink.features.order.algorithms import fabric_from, options_of, order_from
from plink.features.order.interfaces import fabric_of_algorithm
from plink.model.network import Network
from plink.model.network_file import SizeCosts
from plink.model.order import RankOrder
from solvers.costs.by_name import model_for, parts_of
from solvers.simulation.cost import cost_by_model

_ALGORITHMS = {"nccl-ring": "ring", "nccl-tree": "tree"}
_MIN_GAIN = 1.05  # of one over the other, before NCCL's own choice is overruled
_FROM_BYTES, _TO_BYTES = 1 << 22, 1 << 30  # below NCCL's own overheads decide
_TIMED_FROM_BYTES = 1 << 16  # where these were timed
# By the lines of a fit: NCCL goes through its protocols in this order, and not on all links through the second.
_PROTOCOLS = {1: ("simple",), 2: ("ll", "simple"), 3: ("ll", "ll128", "simple")}
_ALL_SIZES = (1 << 32) - 1  # the largest that NCCL's documentation has
_SHARES = (1, 1.02, 2)  # of a row's first size, judged: a tree's segments make its times jump
_SMOOTH_FROM_BYTES = 1 << 26  # by a percent or less
_TREE_CHANNELS = 2  # NCCL's second tree is that of the second half of the channels; its example plugin takes one


@dataclass(frozen=True)
class TunerRow:
    """All-reduces from ``min_bytes`` to ``max_bytes`` that one algorithm does at least 5 % faster than the other.
    ``protocol``: the one that it was timed with. ``gain``: the least of how many times as fast."""

    min_bytes: int
    max_bytes: int
    algorithm: str
    protocol: str
    gain: float


def tuner_rows(network: Network, order: RankOrder | None = None) -> tuple[TunerRow, ...]:
    """Return the sizes for which NCCL's ring or its tree is clearly the faster, in one rank order.

    From 64 KiB on where both were timed (``plink check --calibrate``), else from 4 MiB on. Where NCCL's own choice was
    timed, too, only sizes for which it takes the slower one.

    :param order: None: the hosts as the network lists them.
    :raises InputError: for one rank, or an order of other hosts. :raises NoAnswer: when a pair was not measured, or no
        rates were, or hosts have unequal slots.
    """
    ranks = order_from(network, order)
    if len(slots := sorted(set(np.unique(ranks, return_counts=True)[1].tolist()))) > 1:
        raise NoAnswer(f"files for tuners need hosts of equal slots; these have {slots[0]} to {slots[-1]}")
    fabric = fabric_from(network, False)
    model = model_for("auto", fabric, timed=True)
    if model == "latency":
        raise NoAnswer("files for tuners need rates; `plink probe` measures those of hosts (omit --no-host-rates)")
    pieces = {each.algo: each.pieces or [] for each in network.library_costs}
    first = _TIMED_FROM_BYTES if pieces.keys() >= _ALGORITHMS.keys() else _FROM_BYTES
    sizes = [1 << k for k in range(first.bit_length() - 1, _TO_BYTES.bit_length())]

    fabrics = {algo: fabric_of_algorithm(network, fabric, algo) for algo in _ALGORITHMS}
    options = options_of({}, list(_ALGORITHMS), ranks=ranks)

    @functools.cache
    def ring_over_tree(size: float) -> float:
        """Return how many times as long the ring takes."""
        costs = (cost_by_model(algo, len(ranks), options, fabrics[algo], size, model)(ranks) for algo in _ALGORITHMS)
        return next(costs) / next(costs)

    rows: list[TunerRow] = []
    for k, size in enumerate(sizes):
        end = sizes[k + 1] - 1 if k + 1 < len(sizes) else _ALL_SIZES
        fast, gain = ("tree" if ring_over_tree(size) > 1 else "ring"), math.inf
        for share in _SHARES if size < _SMOOTH_FROM_BYTES else _SHARES[::2]:
            ratio = ring_over_tree(share * size)
            gain = min(gain, ratio if fast == "tree" else 1 / ratio)
            if gain < _MIN_GAIN:
                break
        own = {_ALGORITHMS[name] for _, name in parts_of("nccl", size, fabric)}
        if gain < _MIN_GAIN or (fabric.nccl_tree_up_to_bytes is not None and own == {fast}):
            continue
        row = TunerRow(size, end, fast, _protocol(pieces.get(f"nccl-{fast}", []), size), gain)
        last = rows[-1] if rows else row
        if last.max_bytes == size - 1 and (last.algorithm, last.protocol) == (row.algorithm, row.protocol):
            rows[-1] = replace(last, max_bytes=end, gain=min(gain, last.gain))
        else:
            rows.append(row)
    return tuple(rows)


def _protocol(pieces: Sequence[SizeCosts], size_bytes: int) -> str:
    """Return the protocol that an algorithm has for a size, by the lines that its timings fell into."""
    protocols = _PROTOCOLS.get(len(pieces), ("simple",) * max(1, len(pieces)))
    return protocols[sum(piece.from_bytes <= size_bytes for piece in pieces) - 1]


def tuner_lines(kind: str, network: Network, rows: tuple[TunerRow, ...]) -> Iterator[str]:
    """Yield the lines of a tuner's file.

    :param kind: one of ``TUNERS`` of the request.
    """
    slots = [host.slots for host in network.hosts if host.slots]
    ranks = sum(slots)
    if kind != "ncclx":
        yield "# collective,min_bytes,max_bytes,algorithm,protocol,channels,nodes,ranks"
    else:
        yield "# collective,bytes of a rank,algorithm,protocol,channels,nodes,ranks of a node"
    for row in rows:
        if kind != "ncclx":
            channels = _TREE_CHANNELS if (kind, row.algorithm) == ("nccl-tuner", "tree") else -1
            sizes = f"{row.min_bytes},{row.max_bytes}"
            yield f"allreduce,{sizes},{row.algorithm},{row.protocol},{channels},{len(slots)},{ranks}"
        else:  # which takes a rank's share, rounded down
            low, high = row.min_bytes // ranks, (row.max_bytes + 1) // ranks - 1
            yield f"allreduce,[{low},{high}],{row.algorithm},{row.protocol},-1,{len(slots)},{slots[0]}"
