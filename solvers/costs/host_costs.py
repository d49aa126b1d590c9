"""What hosts themselves take for messages and bytes: LogGP's overhead o and gap per byte G (Alexandrov, Ionescu,
Schauser and Scheiman, SPAA 1995).

A message takes ``overhead_us`` of its sender and receiver together, besides the network's latency. A host works on the
messages of a round one after the other, so a round costs ``overhead_us`` times the most messages that one host sends or
receives in it: the same in every rank order. A byte takes ``byte_ns`` besides the time on the host's link: to copy it
and to add it up. So hosts and pairs have the rate ``1 / (1 / rate + byte_ns)``.

The model ``latency`` is without both: its sums of round trips are no times.
"""

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from solvers.costs.fabric import BYTES_PER_US, Fabric, Vector

_NS_PER_US = 1e3


def with_host_costs(fabric: Fabric, overhead_us: float, byte_ns: float) -> Fabric:
    """Return the fabric of a network whose links alone are known, with these costs of its hosts."""

    def slowed(gbps: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        return np.asarray(gbps / (1 + gbps * (BYTES_PER_US * byte_ns / _NS_PER_US)))

    return replace(
        fabric,
        pair_gbps=None if fabric.pair_gbps is None else slowed(fabric.pair_gbps),
        host_out_gbps=slowed(fabric.host_out_gbps),
        host_in_gbps=slowed(fabric.host_in_gbps),
        overhead_us=overhead_us,
        paths=None
        if fabric.paths is None
        else replace(fabric.paths, out_gbps=slowed(fabric.paths.out_gbps), in_gbps=slowed(fabric.paths.in_gbps)),
    )


def messages_of_rounds(
    rounds: int, round_of: npt.NDArray[np.int64], source: npt.NDArray[np.int64], target: npt.NDArray[np.int64]
) -> Vector:
    """Return the most messages that one rank sends or receives in each round, shape (R,).

    :param round_of: shape (E,), of each transfer from ``source`` to ``target``; those of a pair in a round are one.
    """
    if not len(round_of):
        return np.zeros(rounds)
    ranks = int(max(source.max(), target.max())) + 1
    messages = np.unique((round_of * ranks + source) * ranks + target)
    sent, received = messages // ranks, messages // (ranks * ranks) * ranks + messages % ranks
    by_rank = [np.bincount(keys, minlength=rounds * ranks).reshape(rounds, ranks) for keys in (sent, received)]
    most: Vector = np.maximum(*(counts.max(axis=1) for counts in by_rank)).astype(np.float64)
    return most


def message_places(
    round_of: npt.NDArray[np.int64], source: npt.NDArray[np.int64], target: npt.NDArray[np.int64]
) -> tuple[Vector, npt.NDArray[np.bool_]]:
    """Return how many messages a host works on before each one in its round, and which transfers begin a message.

    :returns: two of shape (E,). A message waits for the earlier ones of its source or target, whichever are more.
    """
    ranks = int(max(source.max(initial=0), target.max(initial=0))) + 1
    messages, first, message_of = np.unique(
        (round_of * ranks + source) * ranks + target, return_index=True, return_inverse=True
    )
    sent, received = messages // ranks, messages // (ranks * ranks) * ranks + messages % ranks
    place = np.maximum(*(_place_in_group(keys) for keys in (sent, received)))
    begins = np.zeros(len(round_of), dtype=bool)
    begins[first] = True
    return place[message_of].astype(np.float64), begins


def _place_in_group(keys: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return how many equal keys come before each."""
    order = np.argsort(keys, kind="stable")
    _, first, lengths = np.unique(keys[order], return_index=True, return_counts=True)
    place = np.empty(len(keys), dtype=np.int64)
    place[order] = np.arange(len(keys)) - np.repeat(first, lengths)
    return place
