"""Ctrl-C, TERM and HUP: the first ends a command in order, the second leaves at once."""

import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterator
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class SignalHandler:
    """The handler: the first signal raises KeyboardInterrupt, or is only noted where a search keeps what it has."""

    def __init__(self) -> None:
        self.number = 0
        self.deferring = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if self.number:
            os._exit(128 + number)
        self.number = number
        with contextlib.suppress(OSError):  # a closed terminal is one of the reasons to stop
            print("\nplink: stopping; once more to leave at once", file=sys.stderr, flush=True)
        if not self.deferring:
            raise KeyboardInterrupt

    @property
    def exit_code(self) -> int:
        """As a shell says it: 130 for Ctrl-C."""
        return 128 + (self.number or signal.SIGINT)


def install() -> SignalHandler:
    """Handle these signals from now on, but those that are ignored: under nohup a closed terminal is survived."""
    handler = SignalHandler()
    for number in _SIGNALS:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, handler)
    return handler


@contextlib.contextmanager
def deferred_interrupts() -> Iterator[Callable[[], bool]]:
    """Within it a signal ends nothing by itself: ask now and then whether one came."""
    installed = next(
        (handler for handler in map(signal.getsignal, _SIGNALS) if isinstance(handler, SignalHandler)), None
    )
    if installed is None:
        yield lambda: False
        return
    installed.deferring = True
    try:
        yield lambda: installed.number != 0
    finally:
        installed.deferring = False
