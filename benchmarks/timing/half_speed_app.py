"""Work of a fixed length instead of learning, for ``plink elastic run``, on hosts of which one is at half speed.

Each process takes the next number in a folder; the last one waits twice as long for a shard. Every shard counts its
clocks, which the end of its output says. Options: ``--folder``, ``--hosts``, ``--shards``,
``--clocks``, ``--wait`` (seconds of a shard).
"""

import argparse
import time
from pathlib import Path

from plink.elastic import App, Objective, Params, StoppingCriterion, Table


class HalfSpeed(App[int]):
    """The objective says nothing."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.tables = (Table("clocks", options.shards, 1, "int64"),)
        self.shards, self.stop, self.options = options.shards, StoppingCriterion(clocks=options.clocks), options
        self._wait_s = options.wait * (2 if _number(options.folder, options.hosts) == options.hosts - 1 else 1)

    def load(self, shard: int) -> list[int]:
        """Return the number of the shard."""
        return [shard]

    def process(self, items: int, params: Params) -> Objective:
        """Wait, count."""
        time.sleep(self._wait_s)
        params.update("clocks", [items], [[1]])
        return Objective(0.0, 1.0)

    def result(self, params: Params) -> None:
        """Say how many clocks each shard had; under some rules not all have as many."""
        print(f"clocks {params.read('clocks')[:, 0].tolist()}", flush=True)


def _number(folder: Path, hosts: int) -> int:
    for number in range(hosts):
        try:
            (folder / str(number)).mkdir()
        except FileExistsError:
            continue
        return number
    return hosts


def make(arguments: list[str] | None = None) -> HalfSpeed:
    """Return the program as told on the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--hosts", type=int, default=4)
    parser.add_argument("--shards", type=int, default=28)
    parser.add_argument("--clocks", type=int, default=300)
    parser.add_argument("--wait", type=float, default=0.01)
    return HalfSpeed(parser.parse_args(arguments))
