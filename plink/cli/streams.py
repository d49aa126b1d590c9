"""Standard output and error that survive write errors, as of a full disk: reported once, and the command goes on."""

import io
import os
import select
import sys
from collections.abc import Callable
from typing import BinaryIO, TextIO

_FAILED_CODE = 1


class _Output(io.FileIO):
    """One of the two streams. After a write error other than a closed pipe, output is dropped."""

    def __init__(self, descriptor: int, on_error: Callable[[OSError], None]) -> None:
        super().__init__(descriptor, "w", closefd=False)
        self.error: OSError | None = None
        self._on_error = on_error

    def write(self, data: "bytes | bytearray | memoryview", /) -> int:  # type: ignore[override]
        """Return the number of bytes written; after an error, of all of them."""
        while self.error is None:
            try:
                written = super().write(data)
            except BrokenPipeError:
                raise
            except OSError as error:
                self.error = error
                self._on_error(error)
                break
            if written is not None:
                return written
            select.select([], [self], [])  # another program has made it non-blocking
        return memoryview(data).nbytes


def run_guarded(command: Callable[[], int]) -> int:
    """Run the command with both streams guarded; return its exit code, 1 instead of 0 where output was lost.

    Streams that were closed before the program began count too: what is written to standard output is lost, and told.
    """
    stderr_was_closed = _reopen()
    error = _Output(2, lambda error: None)
    output = _Output(1, _report_error)
    # On a descriptor of its own: what Python made of the old ones would be written at its end once more.
    sys.stderr = _text(error, sys.stderr, "backslashreplace")
    sys.stdout = _text(output, sys.stdout, None)
    code = command()
    for descriptor, stream in ((1, sys.stdout), (2, sys.stderr)):
        try:
            stream.flush()
        except (
            BrokenPipeError
        ):  # what is left would fail once more when the interpreter ends, with an exit code of its own
            os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)
    output_lost = output.error is not None or (error.error is not None and not stderr_was_closed)
    return _FAILED_CODE if output_lost and code == 0 else code


def _reopen() -> bool:
    """Open those of the first three descriptors that are closed, so that no connection takes their place. Return
    whether standard error was."""
    was_closed = []
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
            was_closed.append(False)
        except OSError:
            # Standard output is opened so that writing fails as it would have.
            os.open(os.devnull, os.O_WRONLY if descriptor == 2 else os.O_RDONLY)
            was_closed.append(True)
    return was_closed[2]


def _text(raw: _Output, old: TextIO | None, errors: str | None) -> TextIO:
    encoding = getattr(old, "encoding", None) or "utf-8"
    errors = errors or getattr(old, "errors", None) or "strict"
    lines = errors == "backslashreplace" or raw.isatty()
    buffered: BinaryIO = io.BufferedWriter(raw)  # type: ignore[type-var]  # its stubs know no write of FileIO's own
    return io.TextIOWrapper(buffered, encoding, errors, line_buffering=lines)


def _report_error(error: OSError) -> None:
    message = f"cannot write to standard output: {error.strerror}; nothing more is written there"
    print(f"plink: error: {message}", file=sys.stderr, flush=True)
