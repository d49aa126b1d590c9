"""Work of a fixed length instead of learning, for ``plink elastic run``: how a job scales on hosts with
cores of their own, told by hosts that share two.

Each of 240 shards reads half of 4,000 vectors at every clock, waits, and adds to them: the parameters go to real
servers on real connections, only the computing is a wait. Options: ``--clocks``, ``--wait`` (seconds of a shard),
``--rows`` (vectors).
"""

import argparse
import time

import numpy as np

from plink.elastic import App, Objective, Params, StoppingCriterion, Table

_SHARDS, _ROWS, _WIDTH = 240, 4000, 31


class Waiting(App[range]):
    """The objective says nothing."""

    def __init__(self, clocks: int, wait_s: float, rows: int = _ROWS) -> None:
        self.tables = (Table("counts", rows, _WIDTH),)
        self._rows = rows
        self.shards, self.stop, self._wait_s = _SHARDS, StoppingCriterion(clocks=clocks), wait_s

    def load(self, shard: int) -> list[range]:
        """Return every second row, the even ones or the odd."""
        return [range(shard % 2, self._rows, 2)]

    def process(self, items: range, params: Params) -> Objective:
        """Read, wait, add."""
        rows = np.array(items)
        params.read("counts", rows)
        time.sleep(self._wait_s)
        params.update("counts", rows, np.ones((len(rows), _WIDTH), dtype=np.float32))
        return Objective(0.0, 1.0)


def make(arguments: list[str] | None = None) -> tuple[Waiting, argparse.Namespace]:
    """Return the program as told on the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clocks", type=int, default=10)
    parser.add_argument("--wait", type=float, default=0.1)
    parser.add_argument("--rows", type=int, default=_ROWS)
    options = parser.parse_args(arguments)
    return Waiting(options.clocks, options.wait, options.rows), options


def main() -> None:
    """In this process, for trying it."""
    from plink.elastic import train

    train(make()[0], workers=2)


if __name__ == "__main__":
    main()
