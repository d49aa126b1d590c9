"""Seconds that a rank reports: of training, not of evaluations nor of draining and filling for them."""

import pytest

from plink.runtime.pipeline.executor import StageTimes

WARM_UP, FORWARD_S, BACKWARD_S = 2, 1.0, 2.0


class Rank:
    """A rank of a pipeline with a clock of its own."""

    def __init__(self, drained_ends: int = 0) -> None:
        self.times = StageTimes(drained_ends)
        self.now = 0.0

    def forward(self) -> None:
        self.now += FORWARD_S
        self.times.after_forward(self.now)

    def backward(self, wait_s: float = 0.0) -> None:
        self.times.wait_backward_s.append(wait_s)
        self.now += wait_s + BACKWARD_S
        self.times.after_end(self.now)

    def train(self, minibatches: int) -> None:
        """The pipeline fills, is full, and drains."""
        for _ in range(min(WARM_UP, minibatches)):
            self.forward()
        for number in range(minibatches):
            if number + WARM_UP < minibatches:
                self.forward()
            self.backward(7.0 if number == 0 else 0.5)

    def train_in_batches(self, batches: int, size: int) -> None:
        """As kinds that flush do."""
        for _ in range(batches):
            for _ in range(size):
                self.forward()
            for number in range(size):
                self.backward(7.0 if number == 0 else 0.5)

    def evaluate(self, seconds: float) -> None:
        self.times.begin_evaluation()
        self.now += seconds
        self.times.end_evaluation(self.now)


@pytest.mark.parametrize("evaluation_s", [0.0, 40.0, 1000.0])
def test_evaluations_are_not_time_of_minibatches(evaluation_s: float) -> None:
    rank = Rank()
    rank.train(12)
    before = sum(rank.times.wait_backward_s)
    for _ in range(3):
        rank.evaluate(evaluation_s)
        rank.train(12)
    assert rank.times.interval_s() == pytest.approx(FORWARD_S + BACKWARD_S + 0.5)
    assert len(rank.times.ends) == 48
    document = rank.times.seconds()
    # The first and the last time it filled or drained is the job's own; between them are those of evaluations.
    share = document["wait_backward_s"] / (rank.now - document["evaluation_s"])
    assert 0.5 / 3.5 <= share < before / 35
    assert document["evaluation_s"] > 3 * evaluation_s


def test_draining_is_not_time_of_minibatches() -> None:
    rank = Rank()
    rank.train(10)
    assert rank.times.interval_s() == pytest.approx(3.5)


def test_flushes_are_time_of_minibatches() -> None:
    """A batch of 4 takes 7 + 3 * 0.5 in waits, and 4 * 3 of passes."""
    rank = Rank(drained_ends=4)
    rank.train_in_batches(5, 4)
    rank.evaluate(500.0)
    rank.train_in_batches(3, 4)
    assert rank.times.interval_s() == pytest.approx((8.5 + 12) / 4)
    assert rank.times.seconds()["evaluation_s"] == pytest.approx(500 + 7 + 4 * FORWARD_S + BACKWARD_S)


def test_evaluation_after_every_minibatch() -> None:
    """There is no interval to report."""
    rank = Rank()
    for _ in range(8):
        rank.train(1)
        rank.evaluate(10.0)
    assert rank.times.interval_s() is None
    assert rank.times.seconds().get("wait_backward_s", 0.0) <= 7.0
