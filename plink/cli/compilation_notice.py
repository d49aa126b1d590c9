"""Print a line on a terminal while a command waits for functions to be compiled, which happens once on a machine."""

import contextlib
import sys
import threading
import time
from collections.abc import Iterator

from plink.cli import screen

_DELAY_S = 0.5
_NOTICE = "compiling, once on this machine"


@contextlib.contextmanager
def compilation_notice(is_json: bool, delay_s: float = _DELAY_S) -> Iterator[None]:
    """Print the notice once, when functions are still being compiled ``delay_s`` after the first of them began to be.

    As a progress bar, it is for terminals only, and not with ``-q`` or for a JSON result.
    """
    if is_json or not sys.stderr.isatty():
        yield
        return
    from solvers.compilation import watch_compilation

    notice = _Notice(delay_s)
    end = watch_compilation(notice.update)
    try:
        yield
    finally:
        end()
        notice.update(False)


class _Notice:
    def __init__(self, delay_s: float) -> None:
        self._delay_s, self._shown = delay_s, False
        self._first: float | None = None
        self._timer: threading.Timer | None = None

    def update(self, compiling: bool) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if not compiling or self._shown:
            return
        now = time.monotonic()
        self._first = now if self._first is None else self._first
        left_s = self._first + self._delay_s - now
        if left_s <= 0:
            self._show()
            return
        self._timer = threading.Timer(left_s, self._show)
        self._timer.daemon = True
        self._timer.start()

    def _show(self) -> None:
        self._shown = True
        screen.say(_NOTICE)
