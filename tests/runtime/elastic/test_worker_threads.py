"""What a host's workers are told: whom it stands in for, and for how long."""

from typing import Any

from plink.runtime.elastic.worker.worker import Assigned
from plink.runtime.elastic.worker.worker_threads import WorkerThreads, _Running


class Client:
    """Of a worker that does nothing."""

    given_up = False

    def give_up(self) -> None:
        self.given_up = True


class RecordedThreads(WorkerThreads):
    """Workers that are begun on paper."""

    def __init__(self) -> None:
        nothing: Any = None
        super().__init__(nothing, nothing, lambda message: None, 0.0)
        self.begun_as: list[tuple[int, int | None, _Running]] = []

    def _start(
        self, number: int, assigned: Assigned, shards: tuple[int, ...], clock: int, generation: int,
        until: int | None = None
    ) -> None:  # fmt: skip
        client: Any = Client()
        self._running[number] = _Running(client, assigned, shards, until)
        self.begun_as.append((clock, until, self._running[number]))


def test_longer_takeover() -> None:
    workers = RecordedThreads()
    workers.take_over(4, [(0, [1])], 2, 5, 0)
    workers.take_over(4, [(0, [1])], 2, 5, 0)  # said twice
    workers.take_over(4, [(0, [1])], 2, 3, 0)
    assert [(clock, until) for clock, until, _ in workers.begun_as] == [(2, 5)]
    workers.take_over(4, [(0, [1]), (5, [1, 2])], 3, 9, 0)
    (_, _, before), (clock, until, now) = workers.begun_as
    assert (clock, until, before.ended, now.ended) == (3, 9, True, False)
    assert before.assigned.begin(4, 0) is None
    assert [now.assigned.begin(clock, 0) for clock in (3, 5, 9)] == [(1,), (1, 2), None]
    assert workers.takeovers() == {4: 9}


def test_takeover_continues_after_a_roll_back() -> None:
    """Before its thread has noticed that it was ended."""
    workers = RecordedThreads()
    workers.take_over(4, [(0, [1])], 2, 5, 0)
    workers.rolled_back(1, 3)
    workers.take_over(4, [(0, [1])], 2, 4, 3)
    assert [until for _, until, _ in workers.begun_as] == [5, 4]


def test_independent_worker_is_not_taken_over() -> None:
    workers = RecordedThreads()
    workers.assign({4: [1]}, 0, 0)
    workers.take_over(4, [(0, [1])], 2, 9, 0)
    assert workers.own() == {4: (1,)}
    assert len(workers.begun_as) == 1
