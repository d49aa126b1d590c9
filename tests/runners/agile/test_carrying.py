"""Moves of partitions in each other's way: when the next one begins, by how the one before it ended."""

import heapq
import itertools
from collections.abc import Callable
from typing import Any

import pytest

from runners.agile.carrying import Carrier
from runners.agile.channel import Channel
from runners.agile.member import Member
from solvers.agile import actions as act
from solvers.agile.events import Event, Moved
from tests.solvers.agile.jobs import running
from tests.solvers.agile.world import warn


class Desk:
    """Host 1 of four transient ones has two partitions and was warned: both moves are under way, in told time."""

    def __init__(self, seconds: float = 30.0) -> None:
        self.now = 0.0
        self.said: list[dict[str, Any]] = []
        self.events: list[Event] = []
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        world = running(1, 4, partitions=4)
        moves = [one for one in warn(world, 1, seconds=seconds) if isinstance(one, act.Drain | act.HandOver)]
        members = {
            host.number: Member(host.number, host.name, host.tier.value, 1, address=f"{host.number}:1")
            for host in world.state.hosts
        }
        self.channel = Channel(self.said.append, 1)
        carrier = Carrier(
            self.channel, members, lambda: world.state, self.events.append, self._later, pytest.fail,
            lambda host, pieces, why: pytest.fail(why), lambda text: None, lambda host: True, lambda: self.now,
            {1: seconds},
        )  # fmt: skip
        assert [one.source for one in moves] == [1, 1]
        for move in moves:
            carrier.move(move)
        self.until(0.0)

    def _later(self, seconds: float, does: Callable[[], None]) -> None:
        heapq.heappush(self._timers, (self.now + seconds, next(self._order), does))

    def until(self, now: float) -> None:
        """Time passes."""
        while self._timers and self._timers[0][0] <= now:
            self.now, _, does = heapq.heappop(self._timers)
            does()
        self.now = now

    def told(self) -> list[int]:
        """Partitions that were sent on their way."""
        return [word["partition"] for word in self.said if word["do"] == "prepare"]

    def answer(self, why: str | None) -> None:
        """The latest of them is there, or not."""
        word = self.said[-1]
        self.channel.answered(word["to"], {"id": word["id"], "why": why, "kind": "PlinkError"})


def test_after_a_move_its_hosts_are_left_to_the_job_for_three_times_as_long() -> None:
    desk = Desk()
    (first,) = desk.told()
    desk.until(1.0)
    desk.answer(None)
    assert [event.partition for event in desk.events if isinstance(event, Moved)] == [first]
    desk.until(3.9)
    assert desk.told() == [first]
    desk.until(4.2)
    assert len(set(desk.told())) == 2


def test_after_a_move_that_failed_nobody_rests() -> None:
    """There is nothing of the job's to make up for, and the time of the warning runs."""
    desk = Desk()
    (first,) = desk.told()
    desk.until(1.0)
    desk.answer("the connection was lost")
    desk.until(1.2)
    assert len(set(desk.told())) == 2
    assert desk.told()[0] == first
    assert not desk.events


def test_nobody_rests_longer_than_a_warning_allows() -> None:
    """A quarter of it, counted from when the move was decided on."""
    desk = Desk(seconds=8.0)
    desk.until(1.0)
    desk.answer(None)
    desk.until(1.9)
    assert len(desk.told()) == 1
    desk.until(2.3)
    assert len(desk.told()) == 2
