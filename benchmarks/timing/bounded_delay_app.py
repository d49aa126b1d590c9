"""Asynchronous work of a fixed length on one model that every step reads and changes, for ``plink elastic run``: how
many updates a second a server's link carries under a consistency rule (MLfabric, Viswanathan and Akella 2020, 7).

A step reads the whole model, waits, and adds to all of it; a worker has one shard. Shard 0, that of the server's host,
only waits, so that the server is one of its own. Options: ``--seconds``, ``--wait``
(seconds of a step), ``--slow`` (share of steps that take ``--times`` as long), ``--bytes`` of the model, ``--shards``.
"""

import argparse
import time

import numpy as np

from plink.elastic import App, Objective, Params, StoppingCriterion, Table

_WIDTH = 64


class Waiting(App[int]):
    """The objective says nothing."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.tables = (Table("model", options.bytes // (4 * _WIDTH), _WIDTH),)
        self.shards, self.stop, self._options = options.shards, StoppingCriterion(seconds=options.seconds), options
        self._rows = np.arange(self.tables[0].rows)
        self._difference = np.full((len(self._rows), _WIDTH), 2.0**-20, dtype=np.float32)

    def load(self, shard: int) -> list[int]:
        """Return nothing worth reading."""
        return [shard]

    def process(self, items: int, params: Params) -> Objective:
        """Read, wait, add."""
        if params.shard:
            params.read("model", self._rows)
        slow = params.random.random() < self._options.slow
        time.sleep(self._options.wait * (self._options.times if slow else 1))
        if params.shard:
            params.update("model", self._rows, self._difference)
        return Objective(0.0, 1.0)


def make(arguments: list[str] | None = None) -> Waiting:
    """Return the program as told on the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--wait", type=float, default=0.16)
    parser.add_argument("--slow", type=float, default=0.1)
    parser.add_argument("--times", type=float, default=2)
    parser.add_argument("--bytes", type=int, default=1_000_000)
    parser.add_argument("--shards", type=int, default=31)
    return Waiting(parser.parse_args(arguments))
