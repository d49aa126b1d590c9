"""A program whose result is known whatever happens to its hosts: what every shard adds at every clock is counted.

Run by nodes of the tests: ``make(["--out", FILE, ...])``.
"""

import argparse
import gc
import json
import os
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from plink.elastic import Adam, App, Objective, Params, StoppingCriterion, Table
from plink.runtime.elastic.host.control_channel import ControlChannel

ROWS = 64
_SLOW = 6  # times as long


class Tally(App[int]):
    """``n``: row p counts the clocks of shard p. ``sum``: rows that a shard draws by chance get its number. ``m`` goes
    from 0 to 1 by steps that depend on what was read. ``fill``: as large as asked."""

    def __init__(self, request: argparse.Namespace) -> None:
        self.options = request
        self.shards, self.batches, self.seed = request.shards, request.batches, 7
        self.stop = StoppingCriterion(request.clocks, request.seconds, patience=3 if request.until else None)
        fill = max(1, request.megabytes * 1024 * 1024 // 8 // 256)
        self.tables: Sequence[Table] = (
            Table("n", self.shards, 1, "int64"), Table("sum", ROWS, 2, "int64"), Table("m", 8, 4, "float64"),
            Table("fill", fill, 256, "float64"),
        )  # fmt: skip
        self.optimisers = {"m": Adam(0.05)} if request.adam else {}

    def load(self, shard: int) -> Sequence[int]:
        if self.options.unless and not Path(self.options.unless).is_file():
            raise FileNotFoundError("no data here")
        time.sleep(self.options.load_s)
        return [shard] * self.batches

    def process(self, items: int, params: Params) -> Objective:
        if items == 0 and (
            self.options.fail == params.clock or (self.options.fail_once and self.options.fail_once.exists())
        ):
            raise ValueError("as was asked for")
        if self.options.exit == params.clock and items == 0:
            os._exit(7)
        if items == self.options.invalid_message and params.clock == 10:
            send_invalid_message(Path(self.options.out).with_suffix(".said"), self.options.junk)
        if self.options.say:
            print(f"\x1b[32mshard {items}\x1b[0m at clock {params.clock}{', and on' * 12}", flush=True)
        marked = slow_file(self.options.out, os.getpid()).exists()
        time.sleep(self.options.work_s * (self.options.slow if self._is_slow() else _SLOW if marked else 1))
        params.update("n", [items], [[1]])
        rows = params.random.integers(0, ROWS, 3)
        params.update("sum", rows, np.column_stack([np.full(3, items + 1), rows]))
        if self.options.large and params.clock >= int(self.options.large[1]):
            table = next(table for table in self.tables if table.name == self.options.large[0])
            most = np.iinfo(table.dtype).max if table.dtype == "int64" else np.finfo(table.dtype).max
            large = float(most) / float(self.options.large[2])
            params.update(table.name, [5], np.full((1, table.width), large).astype(table.dtype))
        m = params.read("m")
        params.update("m", None, (m - 1 if self.optimisers else 0.1 * (1 - m)) / self.shards)
        row = [(items * 7 + params.clock) % self.tables[3].rows]
        params.update("fill", row, params.read("fill", row) * 0 + 1.0)
        if self.options.until:
            return Objective(0.0 if self.options.until.exists() else -float(params.clock), 1.0)
        return Objective(float((1 - m).sum()), m.size)

    def _is_slow(self) -> bool:
        """Whether this process is the slow one: the first that works."""
        if self.options.slow == 1:
            return False
        path = Path(self.options.out).with_suffix(".slow")
        try:
            with path.open("x") as file:
                file.write(str(os.getpid()))
        except FileExistsError:
            return path.read_text() == str(os.getpid())
        return True

    def result(self, params: Params) -> None:
        if self.options.spoilt:
            raise OSError("cannot save")
        results = {table.name: params.read(table.name).tolist() for table in self.tables if table.name != "fill"}
        results["fill"] = float(params.read("fill").sum())
        path = Path(self.options.out)
        path.with_suffix(".new").write_text(json.dumps(results | {"clock": params.clock, "pid": os.getpid()}))
        path.with_suffix(".new").rename(path)


def slow_file(out: str, pid: int) -> Path:
    """A file that makes a process slow while it is there."""
    return Path(out).with_suffix(f".slow-{pid}")


def send_invalid_message(once: Path, junk: bool) -> None:
    """On this node's own line to the controller, unless a node has before; ``junk``: 2 MB that are no message."""
    try:
        once.touch(exist_ok=False)
    except FileExistsError:
        return
    (line,) = (item for item in gc.get_objects() if isinstance(item, ControlChannel))
    for _ in range(20 if junk else 1):
        line.send({"junk": "x" * 100_000} if junk else {"type": "clock", "clock": "ten"})


def make(arguments: list[str]) -> Tally:
    """The program as told."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", required=True)
    parser.add_argument("--shards", type=int, default=12)
    parser.add_argument("--batches", type=int, default=1)
    parser.add_argument("--clocks", type=int, default=40)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--until", type=Path, help="end soon after there is this file; before, the objective improves")
    parser.add_argument("--work-s", type=float, default=0.005)
    parser.add_argument("--slow", type=float, default=1, help="so many times as long, in the process that works first")
    parser.add_argument("--load-s", type=float, default=0.0)
    parser.add_argument("--megabytes", type=int, default=0)
    parser.add_argument("--say", action="store_true", help="print a line, partly in green, for every shard")
    parser.add_argument("--fail", type=int, default=-1)
    parser.add_argument("--fail-once", type=Path, help="raise as soon as there is this file")
    parser.add_argument("--exit", type=int, default=-1, help="a clock at which the process of shard 0 ends")
    parser.add_argument("--spoilt", action="store_true", help="the result cannot be kept")
    parser.add_argument("--unless", default="", help="a file without which no data can be loaded")
    parser.add_argument(
        "--large", nargs=3, metavar=("TABLE", "CLOCK", "TIMES"),
        help="from a clock on every shard adds to row 5 what so many times would be the most that there is room for",
    )  # fmt: skip
    parser.add_argument(
        "--invalid-message", type=int, default=-1, help="a shard whose node says what no node says, once"
    )
    parser.add_argument("--adam", action="store_true", help="makes the steps of ``m``")
    parser.add_argument("--junk", action="store_true", help="that is no message at all")
    return Tally(parser.parse_args(arguments))


def expected_m(clocks: int, adam: bool) -> float:
    """What all of ``m`` must be then."""
    w = mean = square = 0.0
    for clock in range(1, clocks + 1) if adam else ():
        mean, square = 0.9 * mean + 0.1 * (w - 1), 0.999 * square + 0.001 * (w - 1) ** 2
        w -= 0.05 * mean / (1 - 0.9**clock) / ((square / (1 - 0.999**clock)) ** 0.5 + 1e-8)
    return w if adam else 1 - 0.9**clocks


def expected(shards: int, clocks: int | Sequence[int]) -> dict[str, list[list[int]]]:
    """What ``n`` and ``sum`` must be when every shard was worked on once at every clock; ``clocks``: of each shard,
    where they are not the same."""
    clocks = [clocks] * shards if isinstance(clocks, int) else clocks
    n = [[number] for number in clocks]
    total = np.zeros((ROWS, 2), dtype=np.int64)
    for shard, number in enumerate(clocks):
        for clock in range(1, number + 1):
            rows = np.random.default_rng((7, shard, clock)).integers(0, ROWS, 3)
            np.add.at(total, rows, np.column_stack([np.full(3, shard + 1), rows]))
    return {"n": n, "sum": total.tolist()}
