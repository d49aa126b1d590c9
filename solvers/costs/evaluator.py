"""Cost of any schedule on a fabric, by three models.

A round takes its longest latency plus the time of its busiest resource; rounds follow each other (but those of a
pipeline overlap, see :func:`mean_latency`):

``latency``
    Round trips alone, as in the PLink thesis (5.2.1), which counts the reduce phase and leaves out the broadcast phase,
    its mirror image: the rounds up to the last reduction count. The schedule's ``timing`` says how they add up:
    ``rounds`` (each waits for the one before: the sum of every round's longest hop), ``chain`` (a transfer waits only
    for the data it carries: the longest path to a reduction, trees) or ``pipeline`` (all hops are always busy: the sum
    of all hops, the ring).
``alpha-beta``
    Half a round trip, and bytes over the bandwidth of the pair; a host sends (and receives) the transfers of a round
    one after the other. Synchronous rounds: a pipelined ring is as slow as its slowest hop. Hockney's model (Parallel
    Computing 20(3), 1994) with one port.
``contention``
    Half a round trip, and the busiest of all resources that the round's transfers share: each host's and each group's
    link out and in. Bytes over capacity of the busiest resource is the least time of a round, and its actual time when
    each transfer gets a rate in proportion to its size. Of the links that groups share several count when they are
    about equally busy: see :func:`latest`.

What hosts themselves take for messages and bytes: LogGP's overhead o and gap per byte G (Alexandrov, Ionescu,
Schauser and Scheiman, SPAA 1995).

A message takes ``overhead_us`` of its sender and receiver together, besides the network's latency. A host works on the
messages of a round one after the other, so a round costs ``overhead_us`` times the most messages that one host sends or
receives in it: the same in every rank order. A byte takes ``byte_ns`` besides the time on the host's link: to copy it
and to add it up. So hosts and pairs have the rate ``1 / (1 / rate + byte_ns)``.

The model ``latency`` is without both: its sums of round trips are no times.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from plink.errors import UsageError, no_choice
from plink.model.schedule import Schedule, dependencies
from solvers.costs.fabric import BYTES_PER_US, Fabric, Vector

_NS_PER_US = 1e3
MODELS = ("latency", "alpha-beta", "contention")
SQUARINGS = 4  # shape 2^4 = 16: see latest()
TIMING_MODELS = ("rounds", "chain", "pipeline")


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
        links=fabric,
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


class Messages(NamedTuple):
    """Messages of a collective that are worked on one after the other. ``rounds``: the most that one rank sends or
    receives in each round, of all rounds; ``busiest``: the most that one rank sends, or receives, in all."""

    rounds: float
    busiest: float

    @classmethod
    def of(
        cls,
        repeat: Vector,
        round_of: npt.NDArray[np.int64],
        source: npt.NDArray[np.int64],
        target: npt.NDArray[np.int64],
    ) -> "Messages":
        """Return those of transfers, as :func:`messages_of_rounds` takes them. ``repeat``: how often each round
        occurs."""
        ranks = int(max(source.max(initial=0), target.max(initial=0))) + 1
        messages = np.unique((round_of * ranks + source) * ranks + target)
        times = repeat[messages // (ranks * ranks)]
        ends = messages // ranks % ranks, messages % ranks
        busiest = max(float(np.bincount(end, times).max(initial=0.0)) for end in ends)
        return cls(float(messages_of_rounds(len(repeat), round_of, source, target) @ repeat), busiest)

    def us(self, overhead_us: float) -> "Messages":
        """Return what both take, microseconds, where a message takes ``overhead_us``."""
        return Messages(self.rounds * overhead_us, self.busiest * overhead_us)


NO_MESSAGES = Messages(0.0, 0.0)


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


@dataclass(frozen=True)
class CostBreakdown:
    """Cost of a schedule: ``cost_us``, the sum over its R rounds.

    ``latency_us`` and ``transfer_us``, shape (R,), are its parts. They do not add up to it under ``latency`` with a
    timing model other than ``rounds``, nor where the cost of ``contention`` is an estimate. ``busiest[r]``: the
    bottleneck of round r. ``slowest``: names of the hosts of the transfer that takes longest alone. Under ``simulated``
    there are no rounds: ``slowest`` is of the transfer that took longest, ``bottleneck`` the link that was busiest and
    the share of the time that it was.
    """

    model: str
    cost_us: float
    latency_us: Vector
    transfer_us: Vector
    busiest: tuple[str, ...]
    slowest: tuple[str, str]
    bottleneck: tuple[str, float] | None = None


def evaluate(
    schedule: Schedule, fabric: Fabric, order: npt.NDArray[np.intp], size_bytes: float, model: str, late: bool = True
) -> CostBreakdown:
    """Return the cost of a schedule of N ranks.

    :param order: shape (N,), the host at each rank; transfers between ranks of one host cost nothing. :param late:
        whether rounds under ``contention`` end by :func:`latest`; if not, by what the busiest link needs, as in
        simulations.
    :raises UsageError: for an unknown model, a size that is not positive, or another number of ranks.
    :raises NoAnswer: when a pair that is used was not measured.
    """
    check(schedule.ranks, order, size_bytes, model)
    used = reduce_phase(schedule) if model == "latency" else slice(0, len(schedule))
    source, target = order[schedule.source[used]], order[schedule.target[used]]
    rounds = schedule.round[used].astype(np.int64)
    hop = fabric.rtt_us[source, target]
    fabric.require(hop, source, target, "")
    number = int(rounds.max()) + 1 if len(rounds) else 0
    longest = np.zeros(number)
    np.maximum.at(longest, rounds, hop)
    if model == "latency":
        slowest = _names(fabric, source, target, hop)
        cost = _latency(schedule, hop, longest, order)
        return CostBreakdown(model, cost, longest, np.zeros(number), ("latency",) * number, slowest)
    moved = np.where(source == target, 0.0, schedule.count[used] * (size_bytes / schedule.chunks))
    rates = pair_rates(fabric)[source, target] * BYTES_PER_US
    alone = np.divide(moved, rates, out=np.zeros_like(moved), where=(moved > 0) & (rates > 0))
    slowest = _names(fabric, source, target, hop / 2 + alone)
    transfers = Transfers(number, rounds, source, target, moved)
    transfer, busiest = np.zeros(number), np.zeros(number, dtype=np.intp)
    names: list[str] = []
    for resource_names, load in resource_loads(fabric, transfers, model) if late else _loads(fabric, transfers):
        index = load.argmax(axis=1)
        most = load[np.arange(number), index]
        better = most > transfer
        transfer[better] = most[better]
        busiest[better] = len(names) + index[better]
        names += resource_names
    latency = longest / 2
    if model == "contention" and timing_of(schedule) == "pipeline":
        latency = mean_latency(fabric, transfers, schedule.source.astype(np.int64) * schedule.ranks + schedule.target)
    if fabric.overhead_us:
        ends = schedule.source[used].astype(np.int64), schedule.target[used].astype(np.int64)
        latency = latency + fabric.overhead_us * messages_of_rounds(number, rounds, *ends)
    what = tuple(
        names[k] if share > 0 else "latency" for k, share in zip(busiest.tolist(), transfer.tolist(), strict=True)
    )
    return CostBreakdown(model, float((latency + transfer).sum()), latency, transfer, what, slowest)


def _names(
    fabric: Fabric, source: npt.NDArray[np.intp], target: npt.NDArray[np.intp], takes: Vector
) -> tuple[str, str]:
    """Return the names of the pair that takes longest."""
    k = int(np.argmax(takes))
    return fabric.names[int(source[k])], fabric.names[int(target[k])]


def check(ranks: int, order: npt.NDArray[np.intp], size_bytes: float, model: str) -> None:
    """Check the arguments of a cost.

    :raises UsageError: naming what is wrong.
    """
    if model not in MODELS:
        raise no_choice("--model", model, MODELS)
    if not 0 < size_bytes < float("inf"):
        raise UsageError(f"--size {size_bytes:g}: give more than 0 bytes")
    if len(order) != ranks:
        raise UsageError(f"the order has {len(order)} ranks, the schedule {ranks}")


def reduce_phase(schedule: Schedule) -> slice:
    """Return the transfers of the rounds up to the last reduction; all of them when nothing is reduced."""
    reducing = np.flatnonzero(~schedule.copies)
    if not len(reducing):
        return slice(0, len(schedule))
    return slice(0, int(np.searchsorted(schedule.round, schedule.round[reducing[-1]], side="right")))


def timing_of(schedule: Schedule) -> str:
    """Return the timing model of a schedule: how its rounds add up under ``latency``.

    :raises UsageError: for an unknown one.
    """
    timing = schedule.timing or "rounds"
    if timing not in TIMING_MODELS:
        raise UsageError(f"timing {timing!r}: choose one of {', '.join(TIMING_MODELS)}")
    return str(timing)


def _latency(schedule: Schedule, hop: Vector, longest: Vector, order: npt.NDArray[np.intp]) -> float:
    timing = timing_of(schedule)
    if timing == "rounds":
        return float(longest.sum())
    used = len(hop)
    if timing == "pipeline":
        links = schedule.source[:used].astype(np.int64) * schedule.ranks + schedule.target[:used]
        return float(hop[np.unique(links, return_index=True)[1]].sum())
    offsets, needed = dependencies(schedule)
    done = np.zeros(used)
    for m in range(used):
        done[m] = hop[m] + max((done[k] for k in needed[offsets[m] : offsets[m + 1]]), default=0.0)
    return float(done[chain_ends(schedule)].max())


def chain_ends(schedule: Schedule) -> npt.NDArray[np.int64]:
    """Return the transfers that end the reduce phase of a chain: the reductions, which a pipelined way back overlaps;
    all transfers where nothing is reduced."""
    reducing = np.flatnonzero(~schedule.copies)
    return reducing if len(reducing) else np.arange(len(schedule))


class Transfers(NamedTuple):
    """Transfers of R ``rounds`` between hosts: ``round``, ``source``, ``target``, ``moved`` (bytes), shape (E,)."""

    rounds: int
    round: npt.NDArray[np.int64]
    source: npt.NDArray[np.intp]
    target: npt.NDArray[np.intp]
    moved: Vector


def mean_latency(fabric: Fabric, transfers: Transfers, pair: npt.NDArray[np.int64]) -> Vector:
    """Return the mean of half the round trips of each round's hops, shape (R,): the latency of a pipeline's round.

    In the steady state of a ring blocks do not wait for whole rounds, but a rank passes on one block at a time. A round
    then takes, on average, the longer of two times: that of the busiest resource for all blocks that cross it, and the
    mean over all hops of the time in which a block that waits for nothing gets to the next rank. These are the two
    kinds of cycles of the event graph (Baccelli, Cohen, Olsder and Quadrat, Synchronization and Linearity, 1992,
    2.5.3). The sum of mean latency and busiest resource is at least the longer one, near it where either is small, and
    linear in the size.

    :param pair: shape (E,), a number for each pair of ranks: its transfers in a round are one hop.
    """
    number, rounds, source, target, _ = transfers
    _, first = np.unique(rounds * (1 + int(pair.max(initial=0))) + pair, return_index=True)
    waits = np.bincount(rounds[first], fabric.rtt_us[source[first], target[first]] / 2, number)
    return np.asarray(waits / np.maximum(np.bincount(rounds[first], minlength=number), 1))


def resource_loads(fabric: Fabric, transfers: Transfers, model: str) -> list[tuple[list[str], Vector]]:
    """Return the microseconds for which every resource is busy in every round, as (names, shape (R, K)): first every
    host (or each of its interfaces) sending and receiving, then, under ``contention``, every group's link out and in.

    :raises NoAnswer: when the bandwidth of a pair that is used was not measured.
    """
    return (_pair_loads if model == "alpha-beta" else _shared_loads)(fabric, transfers)


def crossing_bytes(transfers: Transfers, group_of: npt.NDArray[np.intp], groups: int) -> tuple[Vector, Vector]:
    """Return the bytes that every round sends out of each group, and into it, two of shape (R, G)."""
    leaves, enters = group_of[transfers.source], group_of[transfers.target]
    crossing = np.where(leaves != enters, transfers.moved, 0.0)
    out, into = (_binned(transfers.round, transfers.rounds, ends, groups, crossing) for ends in (leaves, enters))
    return out, into


_Loads = list[tuple[list[str], Vector]]


def _binned(rounds: npt.NDArray[np.int64], number: int, key: npt.NDArray[np.intp], n: int, weight: Vector) -> Vector:
    """Sums of weights by round and key, shape (number, n)."""
    return np.bincount(rounds * n + key, weight, number * n).reshape(number, n).astype(np.float64)


def _pair_loads(fabric: Fabric, transfers: Transfers) -> _Loads:
    """Microseconds for which every host is busy in every round, sending and receiving."""
    number, rounds, source, target, moved = transfers
    rate = pair_rates(fabric)[source, target]
    fabric.require(np.where(moved > 0, rate, 0.0), source, target, " --bandwidth")
    busy = np.divide(moved, rate * BYTES_PER_US, out=np.zeros_like(moved), where=moved > 0)
    return [
        ([f"{name}, {what}" for name in hosts.names], hosts.loads(number, rounds * len(hosts), source, target, busy))
        for hosts, what in zip(fabric.resources, ("sending", "receiving"), strict=True)
    ]


def pair_rates(fabric: Fabric) -> Vector:
    """Return the rate of each pair alone, Gbit/s, shape (N, N): as measured, else the slower of its two hosts, or of
    the interfaces on its path."""
    if fabric.pair_gbps is not None:
        return fabric.pair_gbps
    if fabric.paths is not None:
        return fabric.paths.pair_gbps()
    return np.minimum(fabric.host_out_gbps[:, None], fabric.host_in_gbps[None, :])


def latest(load: Vector) -> Vector:
    """When the last of the links that groups share is done, shape (R,); ``load``: what each needs, shape (R, L).

    TCP does not divide a shared link evenly all the time, so a link is done not at its load x but at about x, and a
    round ends with the latest: of several links that are equally busy one is late more often than one alone. If the
    time of a link is x times a Frechet variable of shape p (the limit of the largest of many with heavy tails), the
    time of the latest of independent links is one again, with the p-norm of their loads in place of x (max-stability:
    the product of exp(-(t/x)^-p) over the links is exp(-(t/X)^-p) with X^p the sum of x^p). A link alone takes its
    load, two equal ones 4.4 % more, and a link half as busy as the busiest counts for nothing. p = 16 was chosen on
    rings of Gloo and Open MPI over 12 orders in a lab (docs/results/cost-models.md), whose times it tells from each
    other where the busiest link is the same; anything from 8 to 64 ranks them nearly alike.
    """
    most: Vector = load.max(axis=1)
    share = load / np.where(most > 0, most, 1.0)[:, None]
    for _ in range(SQUARINGS):
        share *= share
    late: Vector = most * share.sum(axis=1) ** (0.5**SQUARINGS)
    return late


def resource_bytes(fabric: Fabric, transfers: Transfers) -> list[tuple[list[str], Vector, Vector]]:
    """Return what every round puts on every resource, as (names, Gbit/s of shape (K,), bytes of shape (R, K)): hosts
    (or each of their interfaces) sending and receiving, then the links out of and into groups, tier by tier."""
    number, rounds, source, target, moved = transfers
    blocks = [
        (
            [f"{name}, {way}" for name in hosts.names],
            hosts.gbps,
            hosts.loads(number, rounds * len(hosts), source, target, moved),
        )
        for hosts, way in zip(fabric.resources, ("out", "in"), strict=True)
    ]
    for number_of_tier, tier in enumerate(fabric.tiers, 1):
        crossing = crossing_bytes(transfers, tier.group_of, len(tier.out_gbps))
        for way, moving, gbps in zip(("out of", "into"), crossing, (tier.out_gbps, tier.in_gbps), strict=True):
            blocks.append((tier.link_names(fabric.names, number_of_tier, way), gbps, moving))
    return blocks


def _loads(fabric: Fabric, transfers: Transfers) -> _Loads:
    """Microseconds that every resource needs for what every round puts on it."""
    return [(names, moved / (gbps * BYTES_PER_US)) for names, gbps, moved in resource_bytes(fabric, transfers)]


def _shared_loads(fabric: Fabric, transfers: Transfers) -> _Loads:
    """Return :func:`_loads`, where what groups share is stretched so that
    the busiest ends when the latest does."""
    loads = _loads(fabric, transfers)
    of_hosts, of_groups = loads[: len(fabric.resources)], loads[len(fabric.resources) :]
    shared = np.hstack([load for _, load in of_groups])
    most = shared.max(axis=1)
    stretch = np.divide(latest(shared), most, out=np.ones(transfers.rounds), where=most > 0)[:, None]
    return [*of_hosts, *((names, load * stretch) for names, load in of_groups)]
