"""Replicas that may be behind by a bounded distance: bytes to the reliable host, distances, work lost (MLfabric, 7.3).

A matrix factorisation of 8 MB trains under BSP, really; beside it each bound has primaries and replicas of its own,
plink's own partitions, which get the same updates. A round of pushes begins when a primary says so, and takes so many
clocks. Bytes and distances do not depend on the machine; distances are taken between the vectors of primaries and
replicas at every clock of every partition, whatever plink says of them.
"""

import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

from benchmarks.record import Bar, record
from examples.elastic_mf import MatrixFactorisation, made
from plink.elastic import StoppingCriterion, Values
from plink.model.divergence import DivergenceBound
from plink.runtime.elastic.arrays.layout import Layout, run_of
from plink.runtime.elastic.arrays.row_blocks import RowBlock
from plink.runtime.elastic.partition.divergence import ReplicaDistances
from plink.runtime.elastic.partition.partition import Partition

_USERS, _MOVIES, _RATINGS, _RANK, _SHARDS, _PARTITIONS = 6000, 2000, 20_000, 255, 2, 4
_CLOCKS = 20 if "--short" in sys.argv else 160
_SHARES = (0.0, 0.005, 0.01, 0.02, 0.05, 1.0)  # of the norm of what is learnt in all; 0: none, 1: the plateau
_COURSES = ((1, _SHARES), (3, (0.0, 0.05)))  # clocks that a round takes
_TO = "replica:1"
_PLATEAU, _MF_BAR = 4.0, 0.05


class Updates:
    """What the workers add at a clock to tables that they read; the program's ``params``."""

    def __init__(self, tables: dict[str, Values]) -> None:
        self.tables = tables
        self.added = {name: np.zeros_like(values) for name, values in tables.items()}

    def read(self, name: str, rows: Any) -> Values:
        """Return rows of a table."""
        result: Values = self.tables[name][rows]
        return result

    def update(self, name: str, rows: Any, difference: Values) -> None:
        """Add to rows of a table."""
        self.added[name][rows] += difference.astype(np.float32)


def training() -> Iterator[dict[str, Values]]:
    """Train, and yield what each clock adds to every row; first the first values."""
    data = made(_USERS, _MOVIES, _RATINGS, 16, 0.3, seed=1)
    app = MatrixFactorisation(data, _RANK, StoppingCriterion(clocks=_CLOCKS), shards=_SHARDS, seed=2)
    shards = [app.load(shard)[0] for shard in range(_SHARDS)]
    tables = {
        table.name: app.initial(table.name, range(table.rows), np.random.default_rng(number)).astype(np.float32)
        for number, table in enumerate(app.tables)
    }
    yield {name: values.copy() for name, values in tables.items()}
    for _ in range(_CLOCKS):
        updates = Updates(tables)
        for shard in shards:
            app.process(shard, updates)  # type: ignore[arg-type]
        for name, added in updates.added.items():
            tables[name] += added
        yield updates.added


class Course:
    """Primaries and replicas under one bound; 0: as fast as the network takes it, a push every ``round_clocks``."""

    def __init__(self, layout: Layout, bound: float, round_clocks: int) -> None:
        self.layout, self.bound, self.round_clocks = layout, bound, round_clocks
        self.primaries = [Partition(layout, number, history=True) for number in range(_PARTITIONS)]
        self.replicas = [Partition(layout, number, history=True) for number in range(_PARTITIONS)]
        for primary in self.primaries:
            primary.admit({0: 0})
            primary.replicas = {_TO: -1}
            if bound:
                primary.distances = ReplicaDistances(DivergenceBound(bound), layout, primary.number, ())
        self.bytes = self.rounds = self.waits = 0
        self.watermark, self.since = -1, -1  # of the round under way, and when it began; -1: none is
        self.squares = [0.0] * _PARTITIONS
        self.largest, self.most_lost, self.by_clock = 0.0, 0, list[int]()
        self.alone = set[int]()  # clocks that are farther by themselves, and follow when replicas have all before

    def clock(self, clock: int, added: dict[str, Values]) -> None:
        """Add a clock, and push what is due."""
        for primary in self.primaries:
            blocks = []
            for table, name in enumerate(added):
                values = added[name][primary.number :: _PARTITIONS]
                rows = np.flatnonzero(values.any(axis=1)).astype(np.uint32)
                blocks.append(RowBlock(table, run_of(rows), values[rows]))
            primary.update(0, clock, 0, True, blocks)
            self._measure(primary.number)
        if any(primary.clock < clock for primary in self.primaries):
            self.waits += 1
            while any(primary.clock < clock for primary in self.primaries):
                self._end_round(max(self.watermark, min(primary.clock for primary in self.primaries)))
        elif self.since >= 0 and clock >= self.since + self.round_clocks:
            self._end_round(self.watermark)
        if self.since < 0 and any(self._due(primary) for primary in self.primaries):
            self.watermark, self.since = clock, clock
        self.most_lost = max(self.most_lost, clock - self.primaries[0].replicas[_TO])
        self.by_clock.append(self.bytes)

    def _due(self, primary: Partition) -> bool:
        return primary.distances is None or primary.distances.report(primary.clock).due

    def _end_round(self, watermark: int) -> None:
        """Push up to a clock; what waited for it is added."""
        self.rounds, self.since = self.rounds + 1, -1
        for primary, replica in zip(self.primaries, self.replicas, strict=True):
            push = primary.take_delta(_TO, watermark)
            self.bytes += sum(block.values.nbytes for block in push.blocks)
            replica.apply_delta(push)
            primary.arrived(_TO, push)
            primary.truncate(watermark)
            replica.truncate(watermark)
        for primary in self.primaries:
            primary.advance()
            self._measure(primary.number)

    def _measure(self, number: int) -> None:
        """Take the distance of all partitions, of which one has changed."""
        pairs = zip(self.primaries[number].values, self.replicas[number].values, strict=True)
        self.squares[number] = sum(float(((ours - theirs).astype(np.float64) ** 2).sum()) for ours, theirs in pairs)
        distance = sum(self.squares) ** 0.5
        pairs = zip(self.primaries, self.replicas, strict=True)
        if distance > self.bound and max(primary.clock - replica.clock for primary, replica in pairs) == 1:
            self.alone.add(self.primaries[number].clock)
        else:
            self.largest = max(self.largest, distance)


def _norm() -> float:
    """The norm of what is learnt."""
    total: dict[str, Values] = {}
    for added in training():
        total = {name: values + total.get(name, 0) for name, values in added.items()}
    return float(sum((values.astype(np.float64) ** 2).sum() for values in total.values()) ** 0.5)


def main() -> int:
    """Run and record; the exit code."""
    data = made(_USERS, _MOVIES, _RATINGS, 16, 0.3, seed=1)
    layout = Layout(tuple(MatrixFactorisation(data, _RANK, StoppingCriterion(clocks=1)).tables), _PARTITIONS)
    norm = _norm()
    courses = {(share, length): Course(layout, share * norm, length) for length, shares in _COURSES for share in shares}
    for clock, added in enumerate(training()):
        for course in courses.values():
            course.clock(clock, added)
    rows = []
    for (share, length), course in courses.items():
        plain, half = courses[0.0, length], _CLOCKS // 2
        rows.append({
            "share": share, "bound": course.bound, "round_clocks": length, "bytes": course.bytes,
            "rounds": course.rounds, "waits": course.waits, "fewer": plain.bytes / course.bytes,
            "fewer_second_half": (plain.bytes - plain.by_clock[half]) / (course.bytes - course.by_clock[half]),
            "largest_distance": course.largest, "alone": len(course.alone), "most_clocks_lost": course.most_lost,
        })  # fmt: skip
        print(rows[-1], flush=True)
    over = [row["largest_distance"] / row["bound"] for row in rows if row["share"]]
    at = {(row["share"], row["round_clocks"]): row for row in rows}
    bars = [
        Bar("largest true distance over its bound, but for clocks farther by themselves", max(over), at_most=1.0),
        Bar("bytes at the plateau: so many times fewer", at[1.0, 1]["fewer"], at_least=_PLATEAU),
        Bar("bytes at 5 % of the norm: so many times fewer", at[_MF_BAR, 1]["fewer"], at_least=_PLATEAU),
    ]  # fmt: skip
    settings = {
        "users": _USERS, "movies": _MOVIES, "rank": _RANK, "ratings": _RATINGS, "clocks": _CLOCKS,
        "partitions": _PARTITIONS, "courses": _COURSES,
    }  # fmt: skip
    return record("divergence", settings, {"norm": norm, "courses": rows}, bars)


if __name__ == "__main__":
    sys.exit(main())
