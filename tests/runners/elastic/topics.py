"""The topic model of the examples as nodes of the tests run it: its result says whether its counts fit its tokens.

Run by nodes of the tests: ``make(["--out", FILE, ...])``.
"""

import argparse
import json
import time
from pathlib import Path

import numpy as np

from examples.elastic_lda import Batch, TopicModel, made
from plink.elastic import Objective, Params, StoppingCriterion

TOPICS, VOCABULARY = 5, 100


class Topics(TopicModel):
    """Slow enough that hosts may come and go meanwhile; every fourth clock of a shard takes longer."""

    def __init__(self, request: argparse.Namespace) -> None:
        data = made(documents=240, vocabulary=VOCABULARY, length=30, topics=TOPICS, seed=1)
        super().__init__(
            data,
            TOPICS,
            StoppingCriterion(clocks=request.clocks),
            shards=request.shards,
            batches=request.batches,
            seed=2,
        )
        self.out, self.work_s = request.out, request.work_s

    def process(self, items: Batch, params: Params) -> Objective:
        slow = (params.shard + params.clock) % 4 == 0
        time.sleep(self.work_s * (4 if slow else 1))
        return super().process(items, params)

    def result(self, params: Params) -> None:
        words, totals, tokens = params.read("words"), params.read("topics")[0], params.read("tokens")
        counted = np.bincount(tokens[tokens > 0] - 1, minlength=TOPICS)
        results = {
            "tokens": int((tokens > 0).sum()), "wanted": len(self.data.word),
            "topics fit tokens": bool((counted == totals).all()),
            "words fit topics": bool((words.sum(axis=0) == totals).all()),
            "words fit documents": bool((words.sum(axis=1) == np.bincount(self.data.word, minlength=VOCABULARY)).all()),
        }  # fmt: skip
        Path(self.out).write_text(json.dumps(results))


def make(arguments: list[str]) -> Topics:
    """The program as told."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", required=True)
    parser.add_argument("--shards", type=int, default=12)
    parser.add_argument("--batches", type=int, default=2)
    parser.add_argument("--clocks", type=int, default=40)
    parser.add_argument("--work-s", type=float, default=0.003)
    return Topics(parser.parse_args(arguments))
