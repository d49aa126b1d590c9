"""Write the output of a job's ranks: a file per rank and stream, and one of all."""

import threading
from collections import OrderedDict
from pathlib import Path
from typing import TextIO

from plink.errors import PlinkError

_MAX_OPEN_FILES = 128  # at a time: a process may have 1,024, and a job thousands of ranks
_FLUSH_INTERVAL_S = 1.0


class Logs:
    """Log files of a run: ``rank-R.out``, ``rank-R.err`` and ``all.log`` in a folder. Files of an earlier run are
    overwritten.

    What cannot be written is told once, by ``trouble``, and the job goes on without. Lines are in the files a second
    after they were printed, so that they can be watched, and most are there when plink itself is killed.
    """

    def __init__(self, folder: Path) -> None:
        """:raises PlinkError: when the folder cannot be made."""
        self.folder = folder
        self.write_error: str | None = None
        self._files: OrderedDict[Path, TextIO] = OrderedDict()
        self._started: set[Path] = set()
        self._lock = threading.Lock()
        self._closed = threading.Event()
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise PlinkError(f"cannot keep logs in {folder}: {error.strerror}") from None

    def line(self, rank: int | None, stream: str, line: str) -> None:
        """Write one line of a rank, or (rank None) of the launcher."""
        if self.write_error is not None:
            return
        source = "launcher" if rank is None else f"rank-{rank}"
        with self._lock:
            if not self._started:  # nothing has to be flushed before
                threading.Thread(target=self._flush_periodically, daemon=True, name="plink-logs").start()
            try:
                self._file(self.folder / f"{source}.{stream}").write(f"{line}\n")
                self._file(self.folder / "all.log").write(f"[{'-' if rank is None else rank}] {line}\n")
            except OSError as error:
                self.write_error = f"the logs in {self.folder} end here: {error.strerror}"

    def close(self) -> None:
        """Write what is buffered and close the files."""
        self._closed.set()
        with self._lock:
            for file in self._files.values():
                try:
                    file.close()
                except OSError as error:
                    self.write_error = (
                        self.write_error or f"the logs in {self.folder} are not complete: {error.strerror}"
                    )
            self._files.clear()

    def _flush_periodically(self) -> None:
        while not self._closed.wait(_FLUSH_INTERVAL_S):
            with self._lock:
                try:
                    for file in self._files.values():
                        file.flush()
                except OSError as error:
                    self.write_error = self.write_error or f"the logs in {self.folder} end here: {error.strerror}"

    def _file(self, path: Path) -> TextIO:
        file = self._files.pop(path, None)
        if file is None:
            if len(self._files) >= _MAX_OPEN_FILES:
                self._files.popitem(last=False)[1].close()
            file = path.open("a" if path in self._started else "w", encoding="utf-8", errors="surrogateescape")
            self._started.add(path)
        self._files[path] = file
        return file
