"""Solvers that ask nobody whether to go on are ended by whoever called them."""

import threading

import pytest

from solvers.ordering.smt import interruptible


def test_work_is_stopped_once_nobody_wants_it() -> None:
    stopped = threading.Event()
    assert interruptible(lambda: stopped.wait(60), stopped.set, lambda: False)


def test_work_that_ends_is_not_stopped() -> None:
    assert interruptible(lambda: 5, lambda: pytest.fail("it has ended"), lambda: True) == 5


def test_error_of_the_work_is_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        interruptible(lambda: 1 / 0, lambda: None, lambda: True)
