"""Topics of documents by collapsed Gibbs sampling (LDA) on plink's elastic parameter server.

    python examples/elastic_lda.py --workers 4
    python examples/elastic_lda.py --docword docword.nips.txt --topics 50

Every token has a topic, which is drawn anew in each iteration given all others (Griffiths and Steyvers, PNAS 2004;
Harlap thesis, 2.3.3). Shards of the documents do so side by side, each with the counts as they were before the clock
and its own draws since (Newman et al., JMLR 2009). Within a shard one token of every document is drawn at a time.

The topics of the tokens are a table, too: so a worker has nothing to lose, and counts always agree with them. Without
--docword the documents are made here.
"""

import argparse
import sys
from dataclasses import dataclass, replace

import numpy as np

from plink.elastic import App, Objective, Params, StoppingCriterion, Table, Values, save_arrays, train
from plink.errors import InputError, PlinkError

_BLOCK = 64  # tokens in a row of the table of their topics
_TOP = 8  # words of a topic that are shown


@dataclass(frozen=True)
class Documents:
    """``doc`` and ``word`` of every token, numbered from 0, shape (tokens,), by document. Where they were made:
    ``truth``, the words' probabilities, shape (topics, vocabulary), and ``floor``, the mean of -log p(token) of one who
    knows all of it. ``names``: of the words, where they have any."""

    doc: np.ndarray
    word: np.ndarray
    documents: int
    vocabulary: int
    truth: np.ndarray | None = None
    floor: float = 0.0
    names: tuple[str, ...] | None = None


def made(documents: int, vocabulary: int, length: int, topics: int, seed: int) -> Documents:
    """As the model says: each document has a few topics, each topic its own words; words of low numbers are frequent
    (1/sqrt(place)), and ``length`` is the mean number of a document's tokens."""
    random = np.random.default_rng(seed)
    frequent = 1 / np.sqrt(np.arange(1, vocabulary + 1))
    truth = random.dirichlet(0.1 * vocabulary * frequent / frequent.sum(), size=topics)
    mixed = random.dirichlet(np.full(topics, 0.1), size=documents)
    lengths = np.maximum(1, random.poisson(length, size=documents))
    doc = np.repeat(np.arange(documents), lengths)
    topic = _drawn(mixed[doc], random)
    cumulative = truth.cumsum(axis=1)
    word = np.empty(len(doc), dtype=np.int64)
    for each in range(topics):
        mine = topic == each
        word[mine] = np.searchsorted(cumulative[each], random.random(mine.sum()) * cumulative[each, -1])
    likely = np.einsum("nk,kn->n", mixed[doc], truth[:, word])
    return Documents(doc, word, documents, vocabulary, truth, float(-np.log(likely).mean()))


def read_docword(path: str) -> Documents:
    """UCI's bag of words: three lines with the numbers of documents, words and lines to come, then ``document word
    count``, numbered from 1. :raises InputError: a line is not like that, or they are not as many as the third says."""
    result: list[tuple[int, int, int]] = []
    heading: list[int] = []
    try:
        with open(path, encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                try:
                    numbers = [int(word) for word in line.split()]
                except ValueError:
                    numbers = []
                if number <= 3:
                    if len(numbers) != 1 or numbers[0] < 1:
                        raise InputError(f"{path}, line {number}", f"no number above 0: {line.strip()[:60]!r}")
                    heading += numbers
                    continue
                if len(numbers) != 3 or min(numbers) < 1:
                    raise InputError(f"{path}, line {number}", f"no document, word and count: {line.strip()[:60]!r}")
                for value, most, what in zip(numbers, heading[:2], ("document", "word"), strict=False):
                    if value > most:
                        raise InputError(f"{path}, line {number}", f"{what} {value}, of which there are {most}")
                result.append((numbers[0] - 1, numbers[1] - 1, numbers[2]))
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(path, str(error)) from error
    if len(heading) < 3 or len(result) != heading[2]:
        raise InputError(
            path, f"{len(result)} lines, its heading says {heading[2] if len(heading) == 3 else 'nothing'}"
        )
    columns = np.array(sorted(result))
    doc, word = (np.repeat(columns[:, column], columns[:, 2]) for column in (0, 1))
    return Documents(doc, word, heading[0], heading[1])


def read_words(path: str, vocabulary: int) -> tuple[str, ...]:
    """One a line, as UCI's vocab.*.txt. :raises InputError: they are not as many as the documents have."""
    try:
        with open(path, encoding="utf-8") as file:
            words = tuple(file.read().split())
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(path, str(error)) from error
    if len(words) != vocabulary:
        raise InputError(path, f"{len(words)} words; the documents are of {vocabulary}")
    return words


@dataclass(frozen=True)
class Batch:
    """Some documents: which rows of the table of topics are theirs, the words among them, rising, and for every token
    its document's and its word's place. ``turns``: tokens, one of every document that has so many, in each."""

    rows: range
    words: np.ndarray
    doc: np.ndarray
    word: np.ndarray
    turns: list[np.ndarray]


class TopicModel(App[Batch]):
    """The objective is the mean of -log p(token | all other tokens) while they are drawn, in nats.

    :param alpha: pseudo-counts of topics in a document. :param beta: of words in a topic.
    """

    def __init__(
        self, data: Documents, topics: int, stop: StoppingCriterion, *, shards: int = 16, batches: int = 1,
        alpha: float = 0.1, beta: float = 0.05, seed: int = 0, save: str | None = None,
    ) -> None:  # fmt: skip
        self.data, self.topics, self.alpha, self.beta, self.result_file = data, topics, alpha, beta, save
        self.stop, self.shards, self.batches, self.seed = stop, shards, batches, seed
        self._part = data.doc % (shards * batches)
        blocks = -(-np.bincount(self._part, minlength=shards * batches) // _BLOCK)
        self._ends = blocks.cumsum()
        self.tables = (
            Table("words", data.vocabulary, topics, "int32"),
            Table("topics", 1, topics, "int64"),
            Table("tokens", int(self._ends[-1]), _BLOCK, "int32"),  # topics from 1; 0: it has none yet
        )

    def load(self, shard: int) -> list[Batch]:
        """Documents in turns; their tokens in a random order, that of the shard."""
        random = np.random.default_rng((self.seed, shard))
        return [self._batch(shard * self.batches + batch, random) for batch in range(self.batches)]

    def process(self, items: Batch, params: Params) -> Objective:
        """Draw the topic of every token anew."""
        tokens, vocabulary = len(items.doc), self.data.vocabulary
        before = params.read("tokens", items.rows)
        topic = before.reshape(-1)[:tokens].astype(np.int64) - 1
        words = params.read("words", items.words)
        totals = params.read("topics")[0]
        words_before, totals_before = words.copy(), totals.copy()
        documents = np.zeros((items.doc.max(initial=-1) + 1, self.topics), dtype=np.int64)
        cached = np.flatnonzero(topic >= 0)
        np.add.at(documents, (items.doc[cached], topic[cached]), 1)
        loss = 0.0
        for turn in items.turns:
            old, doc, word = topic[turn], items.doc[turn], items.word[turn]
            had = np.flatnonzero(old >= 0)
            in_document, in_words, in_all = documents[doc], words[word], np.tile(totals, (len(turn), 1))
            for counts in (in_document, in_words, in_all):  # all tokens but this one
                counts[had, old[had]] -= 1
            likely = (in_document + self.alpha) * (np.maximum(in_words, 0) + self.beta)
            likely /= np.maximum(in_all, 0) + vocabulary * self.beta
            loss -= np.log(likely.sum(axis=1) / (in_document.sum(axis=1) + self.topics * self.alpha)).sum()
            new = topic[turn] = _drawn(likely, params.random)
            for change, who, what in ((-1, had, old[had]), (1, slice(None), new)):
                documents[doc[who], what] += change  # no document is there twice
                np.add.at(words, (word[who], what), change)
                totals += change * np.bincount(what, minlength=self.topics)
        after = np.zeros_like(before)
        after.reshape(-1)[:tokens] = topic + 1
        params.update("tokens", items.rows, after - before)
        params.update("words", items.words, words - words_before)
        params.update("topics", [0], [totals - totals_before])
        return Objective(float(loss), tokens)

    def result(self, params: Params) -> None:
        """As :meth:`keep`."""
        self.keep(params.read("words"))

    def keep(self, words: Values) -> None:
        """Show the likeliest words of each topic (their numbers, where they have no names), the largest topic first;
        keep the words' probabilities in a file, if one was named, with what else it takes to find the topics of another
        document."""
        counts = words.T.astype(np.float64)
        for topic in np.argsort(-counts.sum(axis=1), kind="stable"):
            top = np.argsort(-counts[topic], kind="stable")[:_TOP]
            share = counts[topic].sum() / max(1.0, counts.sum())
            names = [str(word) if self.data.names is None else self.data.names[word] for word in top]
            print(f"topic {topic} ({share:.1%} of the tokens): {' '.join(names)}", flush=True)
        if self.result_file:
            likely = (counts + self.beta) / (counts.sum(axis=1, keepdims=True) + self.beta * self.data.vocabulary)
            cached = np.array(self.data.names or (), str)
            saved = save_arrays(
                self.result_file, topics=likely, counts=words.T, alpha=self.alpha, beta=self.beta, words=cached
            )
            print(f"saved in {saved}", flush=True)

    def _batch(self, part: int, random: np.random.Generator) -> Batch:
        mine = np.flatnonzero(self._part == part)
        mine = mine[np.lexsort((random.random(len(mine)), self.data.doc[mine]))]
        _, starts, doc, lengths = np.unique(
            self.data.doc[mine], return_index=True, return_inverse=True, return_counts=True
        )
        words, word = np.unique(self.data.word[mine], return_inverse=True)
        turns = [starts[lengths > turn] + turn for turn in range(int(lengths.max(initial=0)))]
        first = int(self._ends[part - 1]) if part else 0
        return Batch(range(first, int(self._ends[part])), words, doc, word, turns)


def _drawn(likely: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """One column for each row of shape (rows, columns), as likely as the numbers there say."""
    cumulative = likely.cumsum(axis=1)
    at = random.random(len(likely)) * cumulative[:, -1]
    return np.minimum((cumulative <= at[:, None]).sum(axis=1), likely.shape[1] - 1)


def make(arguments: list[str] | None = None) -> tuple[TopicModel, argparse.Namespace]:
    """The program as told on the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--docword", help="a file in the format of UCI's bags of words")
    parser.add_argument("--words", metavar="FILE", help="its vocab.*.txt: the words, one a line")
    parser.add_argument("--documents", type=int, default=2000)
    parser.add_argument("--vocabulary", type=int, default=2000)
    parser.add_argument("--length", type=int, default=100, help="of a document, on average")
    parser.add_argument("--topics", type=int, default=20)
    parser.add_argument("--shards", type=int, default=16)
    parser.add_argument("--batches", type=int, default=1, help="mini-batches of an iteration")
    parser.add_argument("--clocks", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument(
        "--save", metavar="FILE", help="where to keep the topics (.npz); in an elastic job on a reliable host"
    )
    request = parser.parse_args(arguments)
    if request.words and not request.docword:
        parser.error("--words goes with --docword")
    data = (
        read_docword(request.docword) if request.docword
        else made(request.documents, request.vocabulary, request.length, request.topics, request.seed)
    )  # fmt: skip
    if request.words:
        data = replace(data, names=read_words(request.words, data.vocabulary))
    stop = StoppingCriterion(clocks=request.clocks)
    app = TopicModel(
        data, request.topics, stop, shards=request.shards, batches=request.batches, seed=request.seed, save=request.save
    )  # fmt: skip
    return app, request


def main() -> None:
    app, request = make()
    trained = train(app, workers=request.workers, say=lambda line: print(line, file=sys.stderr))
    cached = f" ({app.data.floor:.4f} by the topics that made them)" if app.data.floor else ""
    for objective in trained.objectives:
        print(f"{objective:.4f} nats a token{cached}")
    app.keep(trained.tables["words"])


if __name__ == "__main__":
    try:
        main()
    except PlinkError as error:
        sys.exit(f"error: {error}")
