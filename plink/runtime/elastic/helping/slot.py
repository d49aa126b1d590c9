"""One worker's right to compute: its own work and its help for others are never under way at the same time."""

import contextlib
import threading
import time
from collections.abc import Iterator


class ComputeSlot:
    """Right to compute, of a worker and the thread that helps others in its place. The helping thread goes first: it
    asks only for what is more urgent, or while the worker waits."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._holder: str | None = None
        self._helper_waits = False
        self.waited_s = 0.0  # by the worker, while it held the slot

    @contextlib.contextmanager
    def worker(self) -> Iterator[None]:
        """Hold it as the worker."""
        self._take()
        try:
            yield
        finally:
            self._give()

    @contextlib.contextmanager
    def released(self) -> Iterator[None]:
        """Release it while the worker waits for servers, if it holds it."""
        if self._holder != "worker":
            yield
            return
        begun = time.perf_counter()
        self._give()
        try:
            yield
        finally:
            self._take()
            self.waited_s += time.perf_counter() - begun

    @contextlib.contextmanager
    def helper(self) -> Iterator[None]:
        """Hold it as the helping thread."""
        with self._changed:
            self._helper_waits = True
            self._changed.wait_for(lambda: self._holder is None)
            self._holder, self._helper_waits = "helper", False
        try:
            yield
        finally:
            self._give()

    def _take(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._holder is None and not self._helper_waits)
            self._holder = "worker"

    def _give(self) -> None:
        with self._changed:
            self._holder = None
            self._changed.notify_all()
