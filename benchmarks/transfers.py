"""MLfabric (Viswanathan and Akella 2020) beside plink's transfers: orders, groups, and its nine settings, simulated.

The simulation of section 7 has 30 workers on 15 hosts, a server of its own, 100 MB at 10 Gbit/s and computations of
160 ms. Time is virtual. Flows share links max-min (:mod:`solvers.simulation.max_min`), whoever planned them; what is
planned and committed is :mod:`plink.model.transfers.arbiter`'s own decision. Messages take no time.
"""

import functools
import heapq
import itertools
import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.record import Bar, each, record
from benchmarks.results import RECORDS
from benchmarks.transfer_aggregation import best_first, grouped, through
from benchmarks.transfer_batches import (
    best_end_in_order_s,
    best_end_s,
    most_kept,
    ordered_as_printed,
    random_batch,
)
from plink.model.rules.ordered import MAX_DELAY
from plink.model.transfers import arbiter
from plink.model.transfers.arbiter import Announced, ArbiterState, Arrived, DropUpdate, TickDue, Transfer
from plink.model.transfers.ordering import ordered
from solvers.compilation import njit
from solvers.simulation.engine import simulate
from solvers.simulation.job import CapacityChanges, Resources, Tasks
from solvers.simulation.max_min import flow_table, insert, refill, remove

HOSTS, WORKERS = 15, 30
SIZE_BYTES, LINK_BYTES_S, COMPUTE_S = 1e8, 1.25e9, 0.16
COMPUTE = {"C1": (0.10, 2), "C2": (0.10, 4), "C3": (0.04, 2)}  # share of computations that are so much slower
_RATES = np.array([1, 2.5, 3.3, 5, 10]) / 10 * LINK_BYTES_S
NETWORKS = {"N1": (0, 0, 0, 0.1, 0.9), "N2": (0, 0.1, 0.1, 0.1, 0.7), "N3": (0.5, 0, 0, 0, 0.5)}
_CHANGE_S = 5.0
_WARM_UP_S, _MEASURED_S, _SEEDS = 10.0, 30.0, 1
# Table 2: MLfabric-A with a bound of 30 over RR-Sync, time to 74 % accuracy.
TABLE_2 = {
    "C1": {"N1": 1.74, "N2": 1.23, "N3": 1.42}, "C2": {"N1": 2.96, "N2": 2.0, "N3": 2.32},
    "C3": {"N1": 1.90, "N2": 1.33, "N3": 1.42},
}  # fmt: skip
_AGGREGATORS = through(7)
WAYS = {  # the bound, and how the arbiter differs from its defaults
    "async": (MAX_DELAY, {"min_transfer_s": np.inf}),
    "bounded:30, no arbiter": (30, {"min_transfer_s": np.inf}),
    "ordered:30, no groups": (30, {"local_groups": False}),
    "ordered:30": (30, {"local_groups": False, "group": _AGGREGATORS}),
    "ordered:45": (45, {"local_groups": False, "group": _AGGREGATORS}),
    "ordered:60": (60, {"local_groups": False, "group": _AGGREGATORS}),
    "ordered:30, local groups": (30, {"group": _AGGREGATORS}),
    "ordered:45, local groups": (45, {"group": _AGGREGATORS}),
}
_READING = ("async", "ordered:30", "ordered:30, local groups")
_BATCHES = {5: 60_000, 10: 30_000, 20: 10_000}
_AS_PRINTED, _EXHAUSTIVE, _PROGRAMMES = 2_000, 1_000, 100
_TIMED_MS = {10: 5, 100: 30, 500: 440, 1000: 1460}  # M 7.4
_SERVER_IN, _SERVER_OUT = 2 * HOSTS, 2 * HOSTS + 1
_MAX_FLOWS = 4 * WORKERS

Vector = npt.NDArray[np.float64]


@njit(cache=True)
def _fair_rates(table: Any, routes: Any, capacity: Any, scratch: Any) -> Any:
    """The max-min fair rate of each flow."""
    links, slots = scratch
    for slot in range(len(routes)):
        insert(table, slot, routes[slot], 1e18)
    for link in range(len(capacity)):
        links[link] = link
    refill(table, capacity, 2, (links, len(capacity)), slots, False)
    rates = table.rate[: len(routes)].copy()
    for slot in range(len(routes)):
        remove(table, slot, 2)
    return rates


@dataclass(frozen=True)
class Setting:
    """A compute and a network setting of the paper, and random numbers."""

    compute: str
    network: str
    seed: int

    def capacities(self) -> Iterator[tuple[float, Vector]]:
        """Yield when links change, and what they carry then: H ways out, H ways in, the server's in and out."""
        rng = np.random.default_rng([self.seed, 1])
        for k in itertools.count():
            rates = rng.choice(_RATES, 2 * HOSTS, p=NETWORKS[self.network])
            yield k * _CHANGE_S, np.concatenate([rates, [LINK_BYTES_S, LINK_BYTES_S]])

    def computations(self, worker: int) -> Iterator[float]:
        """Yield the seconds that each of a worker's computations takes."""
        rng = np.random.default_rng([self.seed, 2, worker])
        share, factor = COMPUTE[self.compute]
        while True:
            yield COMPUTE_S * (factor if rng.random() < share else 1)


@dataclass
class Course:
    """What came of a simulation after its warm-up: delays of what was committed, and how many updates were dropped
    before their bytes travelled, and refused by the server after. ``ends``: worker and time of each arrival."""

    delays: list[int] = field(default_factory=list)
    dropped: int = 0
    refused: int = 0
    ends: list[tuple[int, float]] = field(default_factory=list)


class Simulation:
    """Workers that compute, announce and send; the arbiter that decides; links that flows share."""

    def __init__(self, setting: Setting, state: ArbiterState, reads: bool = False) -> None:
        self.state, self.course, self.now = state, Course(), 0.0
        self._reads = reads
        self._capacities = setting.capacities()
        self._computations = [setting.computations(worker) for worker in range(WORKERS)]
        self._events: list[tuple[float, int, Any]] = []
        self._count = itertools.count()
        self._flows: dict[int, list[Any]] = {}  # bytes left, way out, way in, what follows
        self._table = flow_table(_MAX_FLOWS, _SERVER_OUT + 1, 2)
        self._scratch = np.zeros(_SERVER_OUT + 1, np.int64), np.zeros(_MAX_FLOWS, np.int64)
        self._change()

    def run(self, until_s: float) -> Course:
        """Go on until a time."""
        for worker in range(WORKERS):
            self._read(worker)
        while self.now < until_s:
            self._advance(until_s)
        return self.course

    def _advance(self, until_s: float) -> None:
        """Go to the next event or end of a flow."""
        flows = list(self._flows.items())
        routes = np.array([flow[1:3] for _, flow in flows], dtype=np.int64).reshape(-1, 2)
        rates = _fair_rates(self._table, routes, self._capacity, self._scratch)
        left = np.array([flow[0] for _, flow in flows])
        ends = self.now + left / rates
        end = min(self._events[0][0], self.state.tick_s, ends.min(initial=np.inf), until_s)
        for (number, flow), rate, done in zip(flows, rates, ends, strict=True):
            flow[0] -= rate * (end - self.now)
            if done <= end + 1e-9:
                del self._flows[number]
                self._at(end, flow[3])
        self.now = end
        if self.state.tick_s <= end:
            self._decide(TickDue())
        while self._events[0][0] <= end:
            heapq.heappop(self._events)[2]()

    def _at(self, at_s: float, action: Any) -> None:
        heapq.heappush(self._events, (at_s, next(self._count), action))

    def _change(self) -> None:
        """Give links their next capacities."""
        at_s, self._capacity = next(self._capacities)
        self._at(at_s + _CHANGE_S, self._change)

    def _flow(self, size_bytes: float, way_out: int, way_in: int, action: Any) -> None:
        self._flows[next(self._count)] = [size_bytes, way_out, way_in, action]

    def _read(self, worker: int) -> None:
        """A worker reads the model, and computes."""
        announced = Announced(worker, worker // 2, SIZE_BYTES, self.state.version)
        if self._reads:
            self._flow(SIZE_BYTES, _SERVER_OUT, HOSTS + worker // 2, lambda: self._compute(announced))
        else:
            self._compute(announced)

    def _compute(self, announced: Announced) -> None:
        self._at(self.now + next(self._computations[announced.worker]), lambda: self._decide(announced))

    def _decide(self, event: arbiter.Event) -> None:
        """Have the arbiter decide, and do what it says."""
        self.state, answers = arbiter.step(self.state, event, self.now)
        for answer in answers:
            match answer:
                case Transfer(number=number, size_bytes=size_bytes):
                    arrive = functools.partial(self._arrive, number)
                    if size_bytes:
                        self._flow(size_bytes, *self.state.ways(answer), arrive)
                    else:
                        self._at(self.now, arrive)
                case DropUpdate(worker):
                    self.course.dropped += self.now >= _WARM_UP_S
                    self._at(self.now, functools.partial(self._read, worker))

    def _arrive(self, number: int) -> None:
        """The server commits what has arrived, unless some of it is too old or was given up."""
        transfer = next((each for each in self.state.transfers if each.number == number), None)
        members = transfer.members if transfer is not None and transfer.target is None else ()
        delays = [self.state.version + k - member.version for k, member in enumerate(members)]
        committed = max(delays, default=0) <= self.state.bound
        if self.now >= _WARM_UP_S:
            self.course.delays += delays if committed else ()
            self.course.refused += 0 if committed else len(members)
        self.course.ends += [(member.worker, self.now) for member in members]
        for member in members:
            self._at(self.now, functools.partial(self._read, member.worker))
        self._decide(Arrived(number, len(delays) * committed))


def batches_in_time(number: int, count: int) -> dict[str, float]:
    """Return of random batches on 15 hosts how many break their bound, ours and as printed, and what is dropped."""
    rng = np.random.default_rng([number, 1])
    broken, printed, dropped, dropped_as_printed = 0, 0, 0, 0
    for k in range(count):
        batch = random_batch(number, rng, HOSTS)
        order = ordered(batch.updates, batch.free, batch.server, 0.0)
        broken += not order.is_in_time(batch.updates)
        dropped += len(order.dropped)
        if k < _AS_PRINTED:
            paper = ordered_as_printed(batch)
            printed += not paper.is_in_time(batch.updates)
            dropped_as_printed += len(paper.dropped)
    compared = min(count, _AS_PRINTED)
    return {
        "batches": count, "broken": broken, "broken_as_printed": printed / compared,
        "dropped": dropped / count, "dropped_as_printed": dropped_as_printed / compared,
    }  # fmt: skip


def sent_of_most() -> dict[str, float]:
    """Return what share of the updates that the best order keeps ours does, of all and in the worst batch."""
    rng = np.random.default_rng(2)
    pairs = []
    for k in range(_EXHAUSTIVE):
        batch = random_batch(2 + k % 6, rng, hosts=int(rng.integers(2, 8)))
        pairs.append((len(ordered(batch.updates, batch.free, batch.server, 0.0).sent), most_kept(batch)))
    ours, most = (sum(column) for column in zip(*pairs, strict=True))
    full = sum(a == b for a, b in pairs) / len(pairs)
    return {"batches": len(pairs), "share": ours / most, "batches_with_as_many": full}


def ends_over_best() -> dict[str, Any]:
    """Return ends of groups by Algorithm 3 over the optimum: in the given order, in any order, all straight."""
    rng = np.random.default_rng(3)
    rows = []
    for k in range(_PROGRAMMES):
        batch = random_batch(2 + k % 5, rng, hosts=int(rng.integers(3, 7)))
        batch = replace(batch, updates=tuple(replace(update, deadline=99) for update in batch.updates))
        order = ordered(batch.updates, batch.free, batch.server, 0.0).sent
        updates = [batch.updates[number] for number in order]
        result = grouped(updates, batch.free, batch.server, batch.aggregators(2), 0.0)
        straight = grouped(updates, batch.free, batch.server, [], 0.0)
        best = best_end_in_order_s(batch, order, 2), best_end_s(batch, 2)
        rows.append((result.end_s / best[0], result.end_s / best[1], straight.end_s / result.end_s))
    in_order, in_any, gain = (np.array(column) for column in zip(*rows, strict=True))
    return {
        "batches": len(rows),
        **{
            f"{name}_{figure}": value
            for name, ratios in (("given_order", in_order), ("any_order", in_any))
            for figure, value in (
                ("within_a_tenth", float(np.mean(ratios <= 1.1))), ("median", float(np.median(ratios))),
                ("worst", float(ratios.max())),
            )
        },
        "straight_over_groups_least": float(gain.min()), "straight_over_groups_median": float(np.median(gain)),
    }  # fmt: skip


def milliseconds(number: int) -> dict[str, float]:
    """Return the CPU time of ordering and grouping a batch, medians of 5, with 7 aggregators."""
    rng, rows = np.random.default_rng(4), []
    for _ in range(5):
        batch = random_batch(number, rng)
        began = time.thread_time()
        order = ordered(batch.updates, batch.free, batch.server, 0.0)
        between = time.thread_time()
        updates = [batch.updates[k] for k in order.sent]
        chosen = best_first(batch.aggregators(number), batch.free, 1e9, 0.0)[:7]
        grouped(updates, batch.free, batch.server, chosen, 0.0)
        rows.append((1e3 * (between - began), 1e3 * (time.thread_time() - between)))
    order_ms, groups_ms = np.median(np.array(rows), axis=0).tolist()
    return {"order_ms": order_ms, "groups_ms": groups_ms, "ms": order_ms + groups_ms}


def course_of(setting: Setting, way: str, reads: bool = False) -> dict[str, Any]:
    """Return what a way commits, drops and delays in a setting."""
    bound, options = WAYS[way]
    state = replace(arbiter.start(bound, [LINK_BYTES_S] * (2 * HOSTS + 1)), **options)  # type: ignore[arg-type]
    course = Simulation(setting, state, reads).run(_WARM_UP_S + _MEASURED_S)
    total = len(course.delays) + course.dropped + course.refused
    quantiles = np.quantile(course.delays, (0.1, 0.25, 0.5, 0.75, 0.9, 1))
    return {
        "committed_s": len(course.delays) / _MEASURED_S, "dropped": course.dropped / total,
        "refused": course.refused / total, "mean_delay": float(np.mean(course.delays)),
        "delays_10_25_50_75_90_100": quantiles.tolist(),
    }  # fmt: skip


def ring_of(setting: Setting) -> dict[str, float]:
    """Return updates a second of a synchronous ring at its bound: the slowest worker's computation, then 2 (N - 1) / N
    of the vector over the slowest way, once or twice a machine (its two GPUs added up before, or each in the ring)."""
    rates = {}
    for name, times in (("once", 1), ("twice", 2)):
        capacities, computations = setting.capacities(), [setting.computations(worker) for worker in range(WORKERS)]
        now, rounds = 0.0, 0
        next_s, capacity = next(capacities)
        while now < _WARM_UP_S + _MEASURED_S:
            while next_s <= now:
                at_s, capacity = next(capacities)
                next_s = at_s + _CHANGE_S
            slowest = float(capacity[: 2 * HOSTS].min())
            now += max(next(each) for each in computations) + times * 2 * (HOSTS - 1) / HOSTS * SIZE_BYTES / slowest
            rounds += 1
        rates[name] = WORKERS * rounds / now
    return rates


def beside_the_engine(setting: Setting, transfers: int = 8) -> float:
    """Return the largest difference, in seconds, between arrivals of plain asynchronous updates here and in
    :mod:`solvers.simulation.engine`, where they are chains of tasks."""
    bound, options = WAYS["async"]
    state = replace(arbiter.start(bound, [LINK_BYTES_S] * (2 * HOSTS + 1)), **options)  # type: ignore[arg-type]
    ends = Simulation(setting, state).run(40.0).ends
    here = np.array([[at_s for worker, at_s in ends if worker == w][:transfers] for w in range(WORKERS)])
    changes = list(itertools.islice(setting.capacities(), 12))
    links = np.arange(2 * HOSTS + 2)
    workers = np.repeat(np.arange(WORKERS), transfers)
    offsets = np.cumsum([0, *(int(k % transfers > 0) for k in range(len(workers)))])
    after = np.array([k - 1 for k in range(len(workers)) if k % transfers], dtype=np.int64)
    lead = [1e6 * s for w in range(WORKERS) for s in itertools.islice(setting.computations(w), transfers)]
    zeros, none = np.zeros(len(workers)), np.full(len(workers), -1)
    resources = Resources(
        changes[0][1] / 1e6, np.array([[host, _SERVER_IN] for host in range(HOSTS)]), np.full(HOSTS, np.inf)
    )
    tasks = Tasks(
        workers // 2, zeros + SIZE_BYTES, np.array(lead), zeros, (offsets, after), none, np.zeros(len(workers), int)
    )
    moves = CapacityChanges(
        np.repeat([1e6 * at_s for at_s, _ in changes[1:]], len(links)), np.tile(links, len(changes) - 1),
        np.concatenate([rates for _, rates in changes[1:]]) / 1e6,
    )  # fmt: skip
    there = simulate(resources, tasks, moves).end_us.reshape(WORKERS, transfers) / 1e6
    alike = there <= there[:, -1].min()  # afterwards the engine's workers have no more to send
    return float(np.abs(here - there)[alike].max())


def settings_simulated() -> dict[str, dict[str, Any]]:
    """Return all ways and the ring's bounds in the nine settings, means of seeds, beside Table 2."""
    names = [(c, n) for c in COMPUTE for n in NETWORKS]
    calls = [(Setting(c, n, seed), way) for c, n in names for way in WAYS for seed in range(_SEEDS)]
    courses = dict(zip(calls, each(course_of, calls), strict=True))
    figures: dict[str, dict[str, Any]] = {}
    for c, n in names:
        settings = [Setting(c, n, seed) for seed in range(_SEEDS)]
        rows = {way: _mean([courses[setting, way] for setting in settings]) for way in WAYS}
        ring = _mean([ring_of(setting) for setting in settings])
        ratio = rows["ordered:30"]["committed_s"] / ring["once"]
        figures[f"{c}-{n}"] = {
            "ways": rows, "ring": ring, "ordered_30_over_ring": ratio, "table_2": TABLE_2[c][n],
            "matched": abs(ratio / TABLE_2[c][n] - 1) <= 0.1,
        }  # fmt: skip
    return figures


def _mean(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the mean of each figure; of delays the largest."""
    return {
        key: np.max([row[key] for row in rows], axis=0).tolist() if key.startswith("delays") else
        float(np.mean([row[key] for row in rows])) for key in rows[0]
    }  # fmt: skip


def _reading() -> dict[str, Any]:
    """Return the same where each read of the model takes its bytes out of the server, in C1-N1."""
    calls = [(Setting("C1", "N1", 0), way, True) for way in _READING]
    return dict(zip(_READING, each(course_of, calls), strict=True))


PARTS: dict[str, Callable[[], dict[str, Any]]] = {
    "orders": lambda: dict(zip(map(str, _BATCHES), each(batches_in_time, list(_BATCHES.items())), strict=True)),
    "sent_of_most": sent_of_most,
    "groups": ends_over_best,
    "times": lambda: {str(number): milliseconds(number) for number in _TIMED_MS},
    "engine_difference_s": lambda: {network: beside_the_engine(Setting("C2", network, 0)) for network in NETWORKS},
    "settings": settings_simulated,
    "reads": _reading,
}


def main() -> int:
    """Run, or with ``--only NAME,NAME`` some parts of it, and record; the exit code."""
    path = RECORDS / "transfers.json"
    names = sys.argv[sys.argv.index("--only") + 1].split(",") if "--only" in sys.argv else list(PARTS)
    before = json.loads(path.read_text())["figures"] if path.exists() else {}
    figures = {name: PARTS[name]() if name in names else before.get(name) for name in PARTS}
    missing = [name for name, figure in figures.items() if figure is None]
    if missing:
        print(f"nothing was recorded before of {', '.join(missing)}: run them, too", file=sys.stderr)
        return 2
    orders, groups, settings = figures["orders"], figures["groups"], figures["settings"]

    def gain(network: str, way: str) -> float:
        rows = [row["ways"] for name, row in settings.items() if name.endswith(network)]
        return min(float(row[way]["committed_s"] / row["async"]["committed_s"]) for row in rows)

    above = max(
        row["ways"][way]["delays_10_25_50_75_90_100"][-1] - bound
        for row in settings.values() for way, (bound, _) in WAYS.items()
    )  # fmt: skip
    bars = [
        Bar("M1: batches that break their bound", sum(row["broken"] for row in orders.values()), at_most=0),
        Bar("M1: kept of what any order keeps, to 7 updates", figures["sent_of_most"]["share"], at_least=0.9),
        Bar("M2: within a tenth of the integer programme", groups["any_order_within_a_tenth"], at_least=0.9),
        Bar("M2: within a tenth of the best groups in order", groups["given_order_within_a_tenth"], at_least=0.9),
        Bar("M2: all straight over groups, least", groups["straight_over_groups_least"], at_least=1),
        *(
            Bar(f"M3: ms for {number} updates", figures["times"][str(number)]["ms"], ms)
            for number, ms in _TIMED_MS.items()
        ),
        Bar("M4: seconds from the engine's arrivals", max(figures["engine_difference_s"].values()), at_most=1e-3),
        Bar("M4: versions above the bound", above, at_most=0),
        Bar("M4: N1, ordered:30 over async", gain("N1", "ordered:30"), at_least=1.75),
        Bar("M4: N2, ordered:30 over async", gain("N2", "ordered:30"), at_least=1.5),
        Bar("M4: N1, with local groups", gain("N1", "ordered:30, local groups"), at_least=2.1),
        Bar("M4: N2, with local groups", gain("N2", "ordered:30, local groups"), at_least=1.85),
    ]
    configuration = {
        "hosts": HOSTS, "workers": WORKERS, "bytes": SIZE_BYTES, "link_bytes_s": LINK_BYTES_S, "compute_s": COMPUTE_S,
        "warm_up_s": _WARM_UP_S, "measured_s": _MEASURED_S, "seeds": _SEEDS,
    }  # fmt: skip
    return record("transfers", configuration, figures, bars, names)


if __name__ == "__main__":
    sys.exit(main())
