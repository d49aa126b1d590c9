"""Matrix factorisation by SGD, as recommendation systems use it, on plink's elastic parameter server.

    python examples/elastic_mf.py --workers 4
    python examples/elastic_mf.py --ratings ml-20m/ratings.csv --rank 32 --batches 8

A rating of movie i by user u is near mean + L[u] . R[i] (Harlap thesis, 2.3.1). Steps are those of AdaGrad (Duchi et
al., JMLR 2011) with one sum of squares a row, so that movies with many ratings take no greater strides than others.
Every row of a table has its factors and, last, that sum. Without --ratings the data are made here.
"""

import argparse
import sys
from dataclasses import dataclass

import numpy as np

from plink.elastic import App, Objective, Params, StoppingCriterion, Table, Values, save_arrays, train
from plink.errors import InputError, PlinkError


@dataclass(frozen=True)
class Ratings:
    """Of ``users`` by ``movies``, numbered from 0: three arrays of shape (ratings,). ``floor`` is the root mean square
    of what no factors can explain, where the data were made."""

    user: np.ndarray
    movie: np.ndarray
    stars: np.ndarray
    users: int
    movies: int
    floor: float = 0.0


def made(users: int, movies: int, ratings: int, rank: int, noise: float, seed: int) -> Ratings:
    """Tastes are normal, popularity falls as 1/sqrt(place), and stars are given in halves from 0.5 to 5."""
    random = np.random.default_rng(seed)
    left = random.normal(scale=0.8 / rank**0.25, size=(users, rank))
    right = random.normal(scale=0.8 / rank**0.25, size=(movies, rank))
    popular = 1 / np.sqrt(np.arange(1, movies + 1))
    user = random.integers(users, size=ratings)
    movie = random.permutation(movies)[random.choice(movies, size=ratings, p=popular / popular.sum())]
    exact = np.empty(ratings)
    for at in range(0, ratings, 4096):  # not the factors of all ratings at once, which take more than all the rest
        some = slice(at, at + 4096)
        exact[some] = np.clip(3.0 + np.einsum("nk,nk->n", left[user[some]], right[movie[some]]), 0.5, 5)
    stars = np.clip(np.round((exact + random.normal(scale=noise, size=ratings)) * 2) / 2, 0.5, 5)
    return Ratings(user, movie, stars, users, movies, float(np.sqrt(np.mean((stars - exact) ** 2))))


def read_ratings(path: str) -> Ratings:
    """MovieLens: ``ratings.csv`` (user,movie,stars,time below a heading) or ``ratings.dat`` (with ``::``); users and
    movies are numbered anew, in their order. :raises InputError: a line is not like that."""
    result: list[tuple[int, int, float]] = []
    try:
        with open(path, encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                if number == 1 and line.lower().startswith("userid"):
                    continue
                parts = line.strip().split("::" if "::" in line else ",")
                try:
                    user, movie, stars = int(parts[0]), int(parts[1]), float(parts[2])
                    if len(parts) not in (3, 4) or min(user, movie) < 0 or not 0 <= stars <= 10:
                        raise ValueError
                except (ValueError, IndexError):
                    raise InputError(f"{path}, line {number}", f"no user,movie,stars,time: {line.strip()!r}") from None
                result.append((user, movie, stars))
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(path, str(error)) from error
    if not result:
        raise InputError(path, "it has no ratings")
    columns = np.array(result)
    users, user = np.unique(columns[:, 0], return_inverse=True)
    movies, movie = np.unique(columns[:, 1], return_inverse=True)
    return Ratings(user, movie, columns[:, 2], len(users), len(movies))


@dataclass(frozen=True)
class Batch:
    """Some ratings: the users and movies among them, rising, and for every rating the places of its own there."""

    users: np.ndarray
    user: np.ndarray
    movies: np.ndarray
    movie: np.ndarray
    stars: np.ndarray


class MatrixFactorisation(App[Batch]):
    """The objective is half the mean square error, as of before each step."""

    def __init__(
        self, data: Ratings, rank: int, stop: StoppingCriterion, *, shards: int = 16, batches: int = 1,
        step: float = 0.2, decay: float = 0.02, seed: int = 0, save: str | None = None,
    ) -> None:  # fmt: skip
        self.data, self.rank, self.step, self.decay, self.result_file = data, rank, step, decay, save
        self.stop, self.shards, self.batches, self.seed = stop, shards, batches, seed
        self.tables = (Table("users", data.users, rank + 1), Table("movies", data.movies, rank + 1))
        self.mean = data.stars.mean()
        self._order = np.random.default_rng(seed).permutation(len(data.stars))

    def initial(self, table: str, rows: range, random: np.random.Generator) -> Values:
        """Small factors, and no squares yet."""
        del table
        factors = random.normal(scale=0.3 / self.rank**0.5, size=(len(rows), self.rank))
        return np.pad(factors, ((0, 0), (0, 1)))

    def load(self, shard: int) -> list[Batch]:
        """The ratings are dealt out in a random order, or shards would have users of their own."""
        result = []
        for batch in range(self.batches):
            mine = self._order[shard * self.batches + batch :: self.shards * self.batches]
            users, user = np.unique(self.data.user[mine], return_inverse=True)
            movies, movie = np.unique(self.data.movie[mine], return_inverse=True)
            result.append(Batch(users, user, movies, movie, self.data.stars[mine] - self.mean))
        return result

    def result(self, params: Params) -> None:
        """As :meth:`keep`."""
        self.keep(params.read("users"), params.read("movies"))

    def keep(self, users: Values, movies: Values) -> None:
        """The factors, without the sums of squares, in a file, if one was named."""
        if self.result_file:
            saved = save_arrays(self.result_file, users=users[:, :-1], movies=movies[:, :-1], mean=self.mean)
            print(f"saved in {saved}", flush=True)

    def process(self, items: Batch, params: Params) -> Objective:
        """One step for every user and movie among the ratings."""
        left, right = params.read("users", items.users), params.read("movies", items.movies)
        ours, theirs = left[items.user, :-1], right[items.movie, :-1]
        error = items.stars - np.einsum("nk,nk->n", ours, theirs)
        params.update("users", items.users, self._steps(left, items.user, error[:, None] * theirs - self.decay * ours))
        params.update(
            "movies", items.movies, self._steps(right, items.movie, error[:, None] * ours - self.decay * theirs)
        )
        return Objective(float(error @ error) / 2, len(error))

    def _steps(self, rows: Values, places: np.ndarray, slopes: Values) -> Values:
        """What to add to rows, shape (rows, rank + 1), given the slope of every rating, shape (ratings, rank)."""
        order = np.argsort(places, kind="stable")
        starts = np.flatnonzero(np.diff(places[order], prepend=-1))
        sums = np.add.reduceat(slopes[order], starts, axis=0) if len(order) else np.zeros((0, self.rank))
        squares = np.add.reduceat((slopes[order] ** 2).sum(axis=1), starts) if len(order) else np.zeros(0)
        # Other shards add to the same row at this clock, by what they alone know: assume as much as here of each.
        seen = rows[:, -1] + self.shards * squares + 1e-8
        return np.column_stack([self.step * sums / np.sqrt(seen)[:, None], squares])


def make(arguments: list[str] | None = None) -> tuple[MatrixFactorisation, argparse.Namespace]:
    """The program as told on the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ratings", help="MovieLens ratings.csv or ratings.dat")
    parser.add_argument("--users", type=int, default=2000)
    parser.add_argument("--movies", type=int, default=500)
    parser.add_argument("--count", type=int, default=100_000, help="ratings to make")
    parser.add_argument("--noise", type=float, default=0.3, help="in stars")
    parser.add_argument("--rank", type=int, default=8)
    parser.add_argument("--shards", type=int, default=16)
    parser.add_argument("--batches", type=int, default=1, help="mini-batches of an iteration")
    parser.add_argument("--clocks", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument(
        "--save", metavar="FILE", help="where to keep the factors (.npz); in an elastic job on a reliable host"
    )
    request = parser.parse_args(arguments)
    data = (
        read_ratings(request.ratings) if request.ratings
        else made(request.users, request.movies, request.count, request.rank, request.noise, request.seed)
    )  # fmt: skip
    stop = StoppingCriterion(clocks=request.clocks)
    app = MatrixFactorisation(
        data, request.rank, stop, shards=request.shards, batches=request.batches, seed=request.seed, save=request.save
    )  # fmt: skip
    return app, request


def main() -> None:
    app, request = make()
    trained = train(app, workers=request.workers, say=lambda line: print(line, file=sys.stderr))
    for objective in trained.objectives:
        print(f"{(2 * objective) ** 0.5:.4f} stars (root mean square; {app.data.floor:.4f} is noise)")
    app.keep(trained.tables["users"], trained.tables["movies"])


if __name__ == "__main__":
    try:
        main()
    except PlinkError as error:
        sys.exit(f"error: {error}")
