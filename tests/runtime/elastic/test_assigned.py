"""Who holds workers, lets them go, has them go back or end: they wait as long as they must and no longer."""

import threading
from collections.abc import Callable
from typing import Any

import pytest

from plink.errors import PlinkError
from plink.runtime.elastic.worker.primaries import RolledBack
from plink.runtime.elastic.worker.worker import Assigned, Assignment

_LONG_S = 30.0


def waiting(does: Callable[[], Any]) -> tuple[threading.Thread, list[Any]]:
    """Somebody who begins a clock in a thread; what came of it."""
    result: list[Any] = []

    def run() -> None:
        try:
            result.append(does())
        except PlinkError as error:
            result.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread, result


def test_what_was_added_last_counts() -> None:
    item = Assigned([1, 2])
    item.add(Assignment(3, 0, (1,)))
    assert [item.begin(clock, 0) for clock in (0, 2, 3)] == [(1, 2), (1, 2), (1,)]
    assert item.begun == 3
    with pytest.raises(PlinkError, match="clock 3 has begun"):
        item.add(Assignment(3, 0, (9,)))
    item.add(Assignment(4, 0, None))
    assert item.begin(4, 0) is None


def test_who_is_held_waits_to_be_let_go() -> None:
    item = Assigned([1])
    assert item.begin(0, 0) == (1,)
    assert item.pause(1) == 0
    thread, result = waiting(lambda: item.begin(1, 0))
    thread.join(0.05)
    assert thread.is_alive()
    item.add(Assignment(1, 0, (5,)))
    item.resume()
    thread.join(_LONG_S)
    assert result == [(5,)]


def test_a_roll_back_reaches_who_is_held() -> None:
    item = Assigned([1])
    item.pause(0)
    thread, result = waiting(lambda: item.begin(0, 0))
    item.rolled_back(-1, 7)
    thread.join(_LONG_S)
    assert isinstance(result[0], RolledBack)
    assert (result[0].clock, result[0].generation) == (-1, 7)
    assert item.begin(0, 7) == (1,)  # nothing is held any more


def test_who_ends_waits_for_nothing() -> None:
    item = Assigned([1])
    item.pause(0)
    thread, result = waiting(lambda: item.begin(0, 0))
    item.end()
    thread.join(_LONG_S)
    assert result == [None]


def test_new_generation_waits_for_an_assignment() -> None:
    item = Assigned([1], generation=0, every_generation=True)
    assert item.begin(5, 0) == (1,)
    item.rolled_back(2, 8)
    thread, result = waiting(lambda: item.begin(3, 8))
    with pytest.raises(PlinkError, match="clock 5 has begun"):
        item.add(Assignment(3, 0, (7,)))  # of the old generation
    thread.join(0.05)
    assert thread.is_alive()
    item.add(Assignment(3, 8, (2, 3)))
    thread.join(_LONG_S)
    assert result == [(2, 3)]


def test_what_is_redone_has_the_shards_it_had() -> None:
    item = Assigned([1])
    item.add(Assignment(3, 0, (2,)))
    item.begin(4, 0)
    item.rolled_back(1, 5)
    assert [item.begin(clock, 5) for clock in (2, 3)] == [(1,), (2,)]
