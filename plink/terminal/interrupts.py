"""Handle Ctrl-C, TERM and HUP: the first stops a command cleanly, the second exits at once."""

import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterator
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class SignalHandler:
    """Signal handler: the first signal raises KeyboardInterrupt, or only sets a flag within
    :func:`deferred_interrupts`."""

    def __init__(self) -> None:
        self.number = 0
        self.deferring = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if self.number:
            os._exit(128 + number)
        self.number = number
        with contextlib.suppress(OSError, ValueError):  # a closed terminal is one of the reasons to stop
            by_keys = number == signal.SIGINT
            again = "press Ctrl-C again to exit" if by_keys else f"a second {signal.Signals(number).name} ends it"
            # Not by print: the signal may have come while the stream was written, which cannot be entered twice.
            os.write(sys.stderr.fileno(), f"\nplink: stopping; {again} at once\n".encode())
        if not self.deferring:
            raise KeyboardInterrupt

    @property
    def exit_code(self) -> int:
        """The exit code of a shell: 130 for Ctrl-C."""
        return 128 + (self.number or signal.SIGINT)


def install() -> SignalHandler:
    """Install the handler for these signals, except those that are ignored (as under nohup).

    An interrupt that strikes a function which C code calls, as LLVM does while Numba compiles, can only be reported by
    Python's hook for such exceptions. The handler has reported the signal, so its traceback is not printed.
    """
    handler = SignalHandler()
    sys.unraisablehook = _report_unraisable
    for number in _SIGNALS:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, handler)
    return handler


def _report_unraisable(unraisable: "sys.UnraisableHookArgs") -> None:
    if not issubclass(unraisable.exc_type, KeyboardInterrupt):
        sys.__unraisablehook__(unraisable)


def _installed() -> SignalHandler | None:
    return next((handler for handler in map(signal.getsignal, _SIGNALS) if isinstance(handler, SignalHandler)), None)


def interrupted_exit_code() -> int | None:
    """Return the exit code of a command that a signal has interrupted; None without one."""
    return installed.exit_code if (installed := _installed()) is not None and installed.number else None


@contextlib.contextmanager
def deferred_interrupts() -> Iterator[Callable[[], bool]]:
    """Defer signals within this context; the value it gives returns whether one came."""
    installed = _installed()
    if installed is None:
        yield lambda: False
        return
    installed.deferring = True
    try:
        yield lambda: installed.number != 0
    finally:
        installed.deferring = False
