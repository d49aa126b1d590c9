"""A program small enough to know what must come out: weighted means of numbers, found by steps."""

from collections.abc import Sequence

import numpy as np

from plink.elastic import App, Objective, Params, StoppingCriterion, Table, Values

Numbers = np.ndarray


class Means(App[Numbers]):
    """``m`` goes to the mean of the data's rows; ``n`` counts items exactly; ``r`` adds up random numbers of shards."""

    tables = (Table("m", 1, 3, "float64"), Table("n", 5, 1, "int64"), Table("r", 8, 2, "float64"))

    def __init__(self, shards: int = 8, batches: int = 2, stop: StoppingCriterion | None = None) -> None:
        self.shards, self.batches, self.stop, self.seed = shards, batches, stop or StoppingCriterion(clocks=10), 3
        self.data = np.random.default_rng(5).normal(size=(shards, batches, 20, 3))
        self.loads: list[int] = []

    def initial(self, table: str, rows: range, random: np.random.Generator) -> Values | None:
        return random.normal(size=(len(rows), 2)) if table == "r" else None

    def load(self, shard: int) -> Sequence[Numbers]:
        self.loads.append(shard)
        return list(self.data[shard])

    def process(self, items: Numbers, params: Params) -> Objective:
        mean = params.read("m", [0])[0]
        params.update("m", [0], [(items - mean).sum(axis=0) / (self.shards * 20)])
        assert (params.read("m", [0])[0] == mean).all()  # what it adds is for the next clock
        params.update("n", [1, 4, 1], [[len(items)], [1], [1]])
        params.update("r", [params.shard % 8], params.random.normal(size=(1, 2)))
        return Objective(float(((items - mean) ** 2).sum()), len(items))
