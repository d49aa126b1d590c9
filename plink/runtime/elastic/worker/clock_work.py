"""The work of one worker at one clock: grains of its shards, in order, with a front and a back.

The worker works them off from the front. What is taken from the back meanwhile is somebody else's to do, or comes back.
A grain sees the parameters as before the clock, and its random numbers belong to it, so it does not matter who does it.
"""

import math
import threading
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Generic, NamedTuple

from plink.elastic.app import App, Items, Objective
from plink.elastic.app_error import MISTAKES, AppError, app_error
from plink.elastic.params import Params, Store
from plink.errors import InputError, PlinkError


class LoadedShards(Generic[Items]):
    """Shards in memory; for any thread. Shards for later are loaded beside the work, and no shard is loaded twice at a
    time."""

    def __init__(self, app: App[Items]) -> None:
        self.app = app
        self._shards: dict[int, Sequence[Items]] = {}
        self._under_way: dict[int, threading.Lock] = {}

    def get(self, shard: int) -> Sequence[Items]:
        """Return a shard's mini-batches, ``app.batches`` of them; loaded if need be.

        :raises PlinkError: what the program raised as such, of a file for example.
        :raises AppError: it raised something else, or gave another number of mini-batches.
        """
        with self._under_way.setdefault(shard, threading.Lock()):
            if shard not in self._shards:
                self._shards[shard] = self._load(shard)
            return self._shards[shard]

    def ahead(self, shards: Iterable[int]) -> None:
        """Load those that are not here; as for :meth:`get`."""
        for shard in shards:
            self.get(shard)

    def here(self) -> list[int]:
        """Return the shards in memory."""
        return sorted(self._shards)

    def _load(self, shard: int) -> Sequence[Items]:
        location = f"app {self.app.name}: load({shard})"
        try:
            batches = self.app.load(shard)
            number = len(batches)
        except PlinkError:
            raise
        except MISTAKES as error:
            raise app_error(location, error) from error
        if number != self.app.batches:
            raise AppError(f"{location} gave {number} mini-batches, not {self.app.batches}")
        return batches


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
        self,
        loaded: LoadedShards[Items],
        store: Store,
        turns: Mapping[int, int],
        grains: Iterable[Grain] | None = None,
    ) -> None:
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
            except MISTAKES as error:
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

    def take_last(self) -> Grain:
        """Give away the last grain."""
        grain = self._grains.pop()
        self._left -= self.cost(grain)
        return grain

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
            except MISTAKES as error:
                raise app_error(f"app {app.name}: part() of {params.location}", error) from error
        score = self._processed(f"app {app.name}: process() of {params.location}", items, params)
        if score is not None:
            self.scores.append(score)

    def _processed(self, location: str, items: Items, params: Params) -> Objective | None:
        score, error = None, None
        try:
            score = self._app.process(items, params)
        except MISTAKES as raised_there:
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
        finite = math.isfinite(score.total) and math.isfinite(score.weight)
        finite = finite and (not score.weight or math.isfinite(float(score.total) / float(score.weight)))
    except (TypeError, ValueError) as error:
        raise AppError(f"{location} returned {message}: an objective and its weight must be numbers") from error
    if not finite:
        raise AppError(f"{location} returned {message}: an objective must be finite (smaller steps may help)")
    if score.weight < 0:
        raise AppError(f"{location} returned {message}: its weight must be 0 or above")
    return score
