"""Calls into solvers that run for long without asking anybody whether to go on."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

_LOOK_S = 0.1

Result = TypeVar("Result")


def interruptible(work: Callable[[], Result], stop: Callable[[], object], keep_going: Callable[[], bool]) -> Result:
    """The result of ``work``, done in a thread; ``stop`` makes it end early once ``keep_going`` says no.

    The caller's thread stays free for signal handlers, which Python runs in the main thread only.
    """
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(work)
        try:
            while not future.done():
                try:
                    future.exception(_LOOK_S)
                except TimeoutError:
                    if not keep_going():
                        stop()
        except BaseException:  # Ctrl-C: nobody waits for the rest of the work
            while not future.done():
                stop()
                time.sleep(_LOOK_S)
            raise
        return future.result()
