"""Ctrl-C, TERM and HUP: the first ends a command in order, the second leaves at once."""

import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterator
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stop:
    """The handler: the first signal raises KeyboardInterrupt, or is only noted where a search keeps what it has."""

    def __init__(self) -> None:
        self.number = 0
        self.noting = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if self.number:
            os._exit(128 + number)
        self.number = number
        with contextlib.suppress(OSError):  # a closed terminal is one of the reasons to stop
            print("\nplink: stopping; once more to leave at once", file=sys.stderr, flush=True)
        if not self.noting:
            raise KeyboardInterrupt

    @property
    def exit_code(self) -> int:
        """As a shell says it: 130 for Ctrl-C."""
        return 128 + (self.number or signal.SIGINT)


def install() -> Stop:
    """Handle these signals from now on, but those that are ignored: under nohup a closed terminal is survived."""
    stop = Stop()
    for number in _SIGNALS:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, stop)
    return stop


@contextlib.contextmanager
def noted() -> Iterator[Callable[[], bool]]:
    """Within it a signal ends nothing by itself: ask now and then whether one came."""
    stop = next((one for one in map(signal.getsignal, _SIGNALS) if isinstance(one, Stop)), None)
    if stop is None:
        yield lambda: False
        return
    stop.noting = True
    try:
        yield lambda: stop.number != 0
    finally:
        stop.noting = False
