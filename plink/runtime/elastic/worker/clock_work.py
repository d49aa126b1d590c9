"""The work of one worker at one clock: grains of its shards, in order, with a front and a back.

The worker works them off from the front. What is taken from the back meanwhile is somebody else's to do, or comes back.
A grain sees the parameters as before the clock, and its random numbers belong to it, so it does not matter who does it.
"""

import math
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Generic, NamedTuple

from plink.elastic.app import App, Items
from plink.elastic.app_error import AppError, app_error
from plink.elastic.objective import Objective
from plink.elastic.params import Params, Store
from plink.errors import InputError, PlinkError
from plink.runtime.elastic.worker.loaded_shards import LoadedShards


class Grain(NamedTuple):
    """Part ``number`` of a shard's mini-batch, of ``app.grains``."""

    shard: int
    number: int


class ClockWork(Generic[Items]):
    """Grains of one clock, in order; for the worker's thread.

    :param loaded: the program, with the shards in memory.
    :param store: what the program reads and adds to.
    :param turns: of each shard which of its mini-batches it is, counted from 1 over the whole job.
    :param grains: those to work on; None: all of these shards.
    :ivar turns: as above.
    :ivar scores: of the grains that were worked on here.
    """

    def __init__(
        self, loaded: LoadedShards[Items], store: Store, turns: Mapping[int, int],
        grains: Iterable[Grain] | None = None,
    ) -> None:  # fmt: skip
        self._loaded, self._app, self._store, self.turns = loaded, loaded.app, store, turns
        if grains is None:
            grains = (Grain(shard, number) for shard in turns for number in range(self._app.grains))
        self._grains = deque(grains)
        self._costs: dict[Grain, float] = {}
        self._left = float(len(self._grains))
        self.scores: list[Objective] = []

    def __len__(self) -> int:
        """Return how many grains are left."""
        return len(self._grains)

    @property
    def left(self) -> float:
        """Return what the grains that are left cost."""
        return self._left if self._grains else 0.0

    def cost(self, grain: Grain) -> float:
        """Return what a grain costs: 1 unless the program said otherwise when it was asked last."""
        return self._costs.get(grain, 1.0)

    def ask_costs(self) -> None:
        """Ask the program what the grains cost. :raises AppError: it made a mistake."""
        app = self._app
        if type(app).cost is App.cost:
            return
        for grain in self._grains:
            location = f"app {app.name}: cost() of shard {grain.shard}, grain {grain.number}"
            try:
                cost = float(app.cost(self._items(grain.shard), grain.number))
            except PlinkError:
                raise
            except Exception as error:
                raise app_error(location, error) from error
            if not 0 < cost < math.inf:
                raise AppError(f"{location} returned {cost}, which must be above 0")
            self._costs[grain] = cost
        self._left = sum(map(self.cost, self._grains))

    def work_off(self) -> None:
        """Work on what is left, from the front.

        :raises AppError: the program made a mistake. :raises PlinkError: a server's error.
        """
        while self._grains:
            self.work_next()

    def work_next(self) -> Grain:
        """Work on the first of what is left and return it; as :meth:`work_off`."""
        grain = self._grains.popleft()
        self._left -= self.cost(grain)
        self._work(grain)
        return grain

    def take_from_back(self, count: int) -> list[Grain]:
        """Give away up to so many of the last grains, in order."""
        taken = [self._grains.pop() for _ in range(min(count, len(self._grains)))]
        self._left -= sum(map(self.cost, taken))
        return taken[::-1]

    def take_back(self, grains: Iterable[Grain]) -> None:
        """Work on these here after all, at the end."""
        before = len(self._grains)
        self._grains.extend(grains)
        self._left += sum(self.cost(self._grains[index]) for index in range(before, len(self._grains)))

    def _items(self, shard: int) -> Items:
        return self._loaded.get(shard)[(self.turns[shard] - 1) % self._app.batches]

    def _work(self, grain: Grain) -> None:
        app, many = self._app, self._app.grains > 1
        turn = self.turns[grain.shard]
        items = self._items(grain.shard)
        params = Params(self._store, app.seed, grain.shard, turn, grain.number if many else None)
        if many:
            try:
                items = app.part(items, grain.number)
            except Exception as error:
                raise app_error(f"app {app.name}: part() of {params.location}", error) from error
        score = self._processed(f"app {app.name}: process() of {params.location}", items, params)
        if score is not None:
            self.scores.append(score)

    def _processed(self, location: str, items: Items, params: Params) -> Objective | None:
        score, error = None, None
        try:
            score = self._app.process(items, params)
        except Exception as raised_there:
            error = raised_there
        # Errors of servers come first, whatever the program made of them: it may be that all is to be done again.
        if params.failed is not None and not isinstance(params.failed, InputError):
            raise params.failed
        if error is not None:
            raise app_error(location, error) from error
        if params.failed is not None:
            raise AppError(f"{location}: {params.failed}")
        return None if score is None else _checked(location, score)


def _checked(location: str, score: object) -> Objective:
    if not isinstance(score, Objective):
        raise AppError(f"{location} returned {type(score).__name__}, which must be an Objective or None")
    message = " ".join(str(score).split())
    try:
        finite = math.isfinite(score.total) and 0 <= score.weight < math.inf
    except (TypeError, ValueError) as error:
        raise AppError(f"{location} returned {message}: an objective and its weight must be numbers") from error
    if not finite:
        raise AppError(f"{location} returned {message}: an objective must be finite (smaller steps may help)")
    return score
