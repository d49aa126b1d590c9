"""Files for NCCL's tuners: whether ring or tree is the faster for a size, in the order that a job runs in.

Columns as NVIDIA/nccl reads them from v2.27 on (plugins/tuner/example/README.md), and as Meta's NCCLX does
(meta/tuner/README.md of meta-pytorch/torchcomms).
"""

from collections.abc import Iterator
from dataclasses import dataclass

from plink.features.order.algorithms import fabric_from, order_from
from plink.features.order.interfaces import fabric_of_algorithm
from plink.model.network import Network
from plink.model.order import RankOrder
from solvers.costs.by_name import model_for
from solvers.schedules.catalogue import Options
from solvers.simulation.cost import cost_by_model

_ALGORITHMS = {"nccl-ring": "ring", "nccl-tree": "tree"}
_MIN_GAIN = 1.05  # of one over the other, before NCCL's own choice is overruled
_FROM_BYTES, _TO_BYTES = 1 << 22, 1 << 30  # below NCCL's own overheads decide, which plink has not measured
_ALL_SIZES = (1 << 32) - 1  # the largest that NCCL's documentation has


@dataclass(frozen=True)
class TunerRow:
    """All-reduces from ``min_bytes`` to ``max_bytes`` that one algorithm does at least 5 % faster than the other.
    ``gain``: the least of how many times as fast."""

    min_bytes: int
    max_bytes: int
    algorithm: str
    gain: float


def tuner_rows(network: Network, order: RankOrder | None = None) -> tuple[TunerRow, ...]:
    """Return the sizes from 4 MiB on for which NCCL's ring or its tree is clearly the faster, in one rank order.

    :param order: None: the hosts as the network lists them.
    :raises InputError: for one rank, or an order of other hosts. :raises NoAnswer: when a pair was not measured.
    """
    ranks = order_from(network, order)
    fabric = fabric_from(network, False)
    sizes = [1 << k for k in range(_FROM_BYTES.bit_length() - 1, _TO_BYTES.bit_length())]
    times = {
        name: [
            cost_by_model(
                algo,
                len(ranks),
                Options(),
                fabric_of_algorithm(network, fabric, algo),
                size,
                model_for("auto", fabric, timed=True, algo=algo),
            )(ranks)
            for size in sizes
        ]
        for algo, name in _ALGORITHMS.items()
    }
    rows: list[TunerRow] = []
    for k, size in enumerate(sizes):
        fast, slow = sorted(times, key=lambda name: times[name][k])
        gain = times[slow][k] / times[fast][k]
        end = sizes[k + 1] - 1 if k + 1 < len(sizes) else _ALL_SIZES
        if gain < _MIN_GAIN:
            continue
        if rows and rows[-1].algorithm == fast and rows[-1].max_bytes == size - 1:
            rows[-1] = TunerRow(rows[-1].min_bytes, end, fast, min(gain, rows[-1].gain))
        else:
            rows.append(TunerRow(size, end, fast, gain))
    return tuple(rows)


def tuner_lines(kind: str, network: Network, rows: tuple[TunerRow, ...]) -> Iterator[str]:
    """Yield the lines of a tuner's file.

    :param kind: one of ``TUNERS`` of the request.
    """
    slots = [host.slots for host in network.hosts if host.slots]
    ranks = sum(slots)
    if kind == "nccl-tuner":
        yield "# collective,min_bytes,max_bytes,algorithm,protocol,channels,nodes,ranks"
    else:
        yield "# collective,bytes of a rank,algorithm,protocol,channels,nodes,ranks of a node"
    for row in rows:
        if kind == "nccl-tuner":
            yield f"allreduce,{row.min_bytes},{row.max_bytes},{row.algorithm},simple,-1,{len(slots)},{ranks}"
        else:
            low, high = -(-row.min_bytes // ranks), row.max_bytes // ranks
            local = slots[0] if len(set(slots)) == 1 else "*"
            yield f"allreduce,[{low},{high}],{row.algorithm},simple,-1,{len(slots)},{local}"
