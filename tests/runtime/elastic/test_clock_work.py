"""The work of one clock: every grain is worked on once, in order, wherever the shift is cut."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plink.elastic import App, AppError, Objective, Params, StoppingCriterion, Table, Values, train
from plink.runtime.elastic.worker.clock_work import ClockWork, Grain, LoadedShards
from tests.runtime.elastic.small_app import Means, Numbers


class Noted(App[list[int]]):
    """Notes the parts that it works on; a mini-batch is 12 numbers."""

    tables = (Table("n", 1, 1, "int64"),)

    def __init__(self, shards: int, grains: int) -> None:
        self.shards, self.grains, self.stop = shards, grains, StoppingCriterion(clocks=1)
        self.noted: list[tuple[int, int, list[int]]] = []

    def load(self, shard: int) -> list[list[int]]:
        return [[12 * shard + number for number in range(12)]]

    def part(self, items: list[int], grain: int) -> list[int]:
        if grain == 7:
            raise ValueError("as was asked for")
        return items[12 * grain // self.grains : 12 * (grain + 1) // self.grains]

    def process(self, items: list[int], params: Params) -> Objective | None:
        self.noted.append((params.shard, params.grain, items))
        return Objective(1.0, len(items)) if items else None


class Nowhere:
    """A store that nobody asks."""

    def table(self, name: str) -> Table:
        raise AssertionError

    def read(self, table: str, rows: object, *, own: bool = True) -> Values:
        raise AssertionError

    def update(self, table: str, rows: object, deltas: object) -> None:
        raise AssertionError


def shift(app: App[Any], shards: tuple[int, ...]) -> ClockWork[Any]:
    return ClockWork(LoadedShards(app), Nowhere(), dict.fromkeys(shards, 1))


@given(st.integers(1, 6), st.lists(st.tuples(st.booleans(), st.integers(0, 9)), max_size=6))
def test_every_grain_is_done_once_in_order(grains: int, orders: list[tuple[bool, int]]) -> None:
    """Some are taken from the back, and some of those come back."""
    app = Noted(4, grains)
    made = shift(app, (1, 3))
    away: list[Grain] = []
    for takes, count in orders:
        if takes:
            before = len(made)
            away = [made.take_last() for _ in range(min(count, before))][::-1] + away
            assert len(made) == max(0, before - count)
        else:
            made.take_back(away[:count])
            away = away[count:]
    made.work_off()
    assert len(made) == 0
    done = [Grain(shard, number) for shard, number, _ in app.noted]
    assert sorted(done + away) == [Grain(shard, number) for shard in (1, 3) for number in range(grains)]
    assert done == sorted(done)
    assert len(made.scores) == len(done)
    if not away:
        assert [number for _, _, items in app.noted for number in items] == [*range(12, 24), *range(36, 48)]


def test_mistake_in_a_part_names_shard_and_grain() -> None:
    with pytest.raises(AppError, match=r"part\(\) of shard 2, grain 7, at clock 1 raised ValueError: as was"):
        shift(Noted(4, 8), (2,)).work_off()


class CutMeans(Means):
    """In parts of a few rows each."""

    def part(self, items: Numbers, grain: int) -> Numbers:
        result: Numbers = np.array_split(items, self.grains)[grain]
        return result


@pytest.mark.parametrize("workers", [1, 3])
def test_grains_add_up_to_the_shard(workers: int) -> None:
    whole, cut = Means(), CutMeans()
    cut.grains = 4
    item, other = train(whole), train(cut, workers=workers)
    np.testing.assert_allclose(other.tables["m"], item.tables["m"], rtol=1e-9)
    assert other.tables["n"][1] == item.tables["n"][1] + 3 * item.tables["n"][4]  # a 1 for every part, beside its items
    assert other.tables["n"][4] == 4 * item.tables["n"][4]
    np.testing.assert_allclose(other.objectives, item.objectives)


def test_grains_have_random_numbers_of_their_own() -> None:
    store = Nowhere()
    drawn = {grain: Params(store, 3, 1, 2, grain).random.random() for grain in (0, 1, 2)}
    assert len(set(drawn.values())) == 3
    assert Params(store, 3, 1, 2).random.random() == np.random.default_rng((3, 1, 2)).random()
