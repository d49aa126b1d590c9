"""Interruptible calls of solvers that run for long and have no progress callback."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

_POLL_INTERVAL_S = 0.1

Result = TypeVar("Result")


def interruptible(call: Callable[[], Result], stop: Callable[[], object], keep_going: Callable[[], bool]) -> Result:
    """Run ``call`` in a thread and return its result; ``stop`` ends it early once ``keep_going`` returns False.

    The caller's thread stays free for signal handlers, which Python runs in the main thread only.
    """
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(call)
        try:
            while not future.done():
                try:
                    future.exception(_POLL_INTERVAL_S)
                except TimeoutError:
                    if not keep_going():
                        stop()
        except BaseException:  # Ctrl-C: do not wait for the rest of the call
            while not future.done():
                stop()
                time.sleep(_POLL_INTERVAL_S)
            raise
        return future.result()
