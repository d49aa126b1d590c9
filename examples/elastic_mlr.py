"""Multinomial logistic regression by SGD on plink's elastic parameter server.

    python examples/elastic_mlr.py --workers 4
    python examples/elastic_mlr.py --libsvm mnist.scale --batches 20

p(class k | x) is softmax of w_k . x (Harlap thesis, 2.3.2); the last number of w_k is its bias. Steps are the mean
slope over the global mini-batch, so the same however many workers there are. Without --libsvm the data are made here.
"""

import argparse
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from plink.elastic import App, Objective, Params, StoppingCriterion, Table, Values, save_arrays, train
from plink.errors import InputError, PlinkError


@dataclass(frozen=True)
class Labelled:
    """``x``: shape (items, features), an array or sparse by rows; ``y``: shape (items,), the classes from 0. ``best``:
    how often one who knows how the data were made would be right. ``labels``: what the file calls the classes."""

    x: Any
    y: np.ndarray
    classes: int
    best: float = 0.0
    labels: np.ndarray | None = None


def made(items: int, features: int, classes: int, apart: float, seed: int) -> Labelled:
    """Normal clouds around centres that are ``apart`` from the origin, some classes more frequent than others; for
    such data the model is the true one."""
    random = np.random.default_rng(seed)
    centres = random.normal(size=(classes, features))
    centres *= apart / np.linalg.norm(centres, axis=1, keepdims=True)
    share = random.dirichlet(np.full(classes, 10.0))
    y = random.choice(classes, size=items, p=share)
    x = centres[y] + random.normal(size=(items, features))
    scores = x @ centres.T - (centres**2).sum(axis=1) / 2 + np.log(share)  # log of Bayes's rule, but for a constant
    return Labelled(x.astype(np.float32), y, classes, float((scores.argmax(axis=1) == y).mean()))


def read_libsvm(path: str) -> Labelled:
    """``label index:value ...`` a line, indices from 1 and rising; labels are numbered anew, in their order.

    :raises InputError: a line is not like that.
    """
    labels: list[float] = []
    values: list[float] = []
    columns: list[int] = []
    starts = [0]
    try:
        with open(path, encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                words = line.partition("#")[0].split()
                if not words:
                    continue
                try:
                    labels.append(float(words[0]))
                    last = 0
                    for word in words[1:]:
                        index, value = word.split(":")
                        if int(index) <= last or not np.isfinite(float(value)):
                            raise ValueError
                        last = int(index)
                        columns.append(last - 1)
                        values.append(float(value))
                    if not np.isfinite(labels[-1]):
                        raise ValueError
                except ValueError:
                    reason = f"no label and rising index:value pairs: {line.strip()[:60]!r}"
                    raise InputError(f"{path}, line {number}", reason) from None
                starts.append(len(columns))
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(path, str(error)) from error
    if not columns:
        raise InputError(path, "it has no data")
    classes, y = np.unique(labels, return_inverse=True)
    x = sparse.csr_matrix((np.array(values, dtype=np.float32), columns, starts), shape=(len(y), max(columns) + 1))
    return Labelled(x, y, len(classes), labels=classes)


class LogisticRegression(App[Labelled]):
    """The objective is the mean of -log p(class of x | x), as of before each step."""

    def __init__(
        self, data: Labelled, stop: StoppingCriterion, *, shards: int = 16, batches: int = 4, step: float = 0.5,
        decay: float = 1e-5, seed: int = 0, save: str | None = None,
    ) -> None:  # fmt: skip
        self.data, self.step, self.decay, self.result_file = data, step, decay, save
        self.stop, self.shards, self.batches, self.seed = stop, shards, batches, seed
        self.tables = (Table("weights", data.classes, data.x.shape[1] + 1),)
        self._order = np.random.default_rng(seed).permutation(len(data.y))

    def load(self, shard: int) -> list[Labelled]:
        """In a random order: files are often sorted by label."""
        parts = [
            self._order[shard * self.batches + batch :: self.shards * self.batches] for batch in range(self.batches)
        ]
        return [Labelled(self.data.x[part], self.data.y[part], self.data.classes) for part in parts]

    def process(self, items: Labelled, params: Params) -> Objective:
        """This shard's part of the mean slope."""
        weights = params.read("weights")
        wrong = probabilities(weights, items.x)
        mine = np.arange(len(items.y)), items.y
        loss = -np.log(np.maximum(wrong[mine], 1e-300)).sum()
        wrong[mine] -= 1
        slope = np.column_stack([wrong.T @ items.x, wrong.sum(axis=0)])
        share = self.batches / len(self.data.y)
        params.update("weights", None, -self.step * (share * slope + self.decay / self.shards * weights))
        return Objective(float(loss), len(items.y))

    def result(self, params: Params) -> None:
        """As :meth:`keep`."""
        self.keep(params.read("weights"))

    def keep(self, weights: Values) -> None:
        """Say how often they are right about the data; keep them in a file, if one was named, with the labels."""
        right = (probabilities(weights, self.data.x).argmax(axis=1) == self.data.y).mean()
        cached = f" ({self.data.best:.4f} by the weights that made them)" if self.data.best else ""
        print(f"{right:.4f} right{cached}", flush=True)
        if self.result_file:
            labels = np.arange(self.data.classes) if self.data.labels is None else self.data.labels
            print(f"saved in {save_arrays(self.result_file, weights=weights, labels=labels)}", flush=True)


def probabilities(weights: Values, x: Any) -> Values:
    """Of each class for each item, shape (items, classes)."""
    scores = np.asarray(x @ weights[:, :-1].T, dtype=np.float64) + weights[:, -1]
    scores = np.exp(scores - scores.max(axis=1, keepdims=True)) if len(scores) else scores
    return scores / scores.sum(axis=1, keepdims=True)


def make(arguments: list[str] | None = None) -> tuple[LogisticRegression, argparse.Namespace]:
    """The program as told on the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--libsvm", help="a file in LIBSVM's format")
    parser.add_argument("--items", type=int, default=20_000)
    parser.add_argument("--features", type=int, default=100)
    parser.add_argument("--classes", type=int, default=10)
    parser.add_argument("--apart", type=float, default=2.5, help="of the centres from the origin")
    parser.add_argument("--shards", type=int, default=16)
    parser.add_argument("--batches", type=int, default=4, help="mini-batches of an iteration")
    parser.add_argument("--clocks", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument(
        "--save", metavar="FILE", help="where to keep the weights (.npz); in an elastic job on a reliable host"
    )
    request = parser.parse_args(arguments)
    data = (
        read_libsvm(request.libsvm) if request.libsvm
        else made(request.items, request.features, request.classes, request.apart, request.seed)
    )  # fmt: skip
    stop = StoppingCriterion(clocks=request.clocks)
    app = LogisticRegression(
        data, stop, shards=request.shards, batches=request.batches, seed=request.seed, save=request.save
    )  # fmt: skip
    return app, request


def main() -> None:
    app, request = make()
    trained = train(app, workers=request.workers, say=lambda line: print(line, file=sys.stderr))
    for objective in trained.objectives:
        print(f"{objective:.4f} nats an item")
    app.keep(trained.tables["weights"])


if __name__ == "__main__":
    try:
        main()
    except PlinkError as error:
        sys.exit(f"error: {error}")
