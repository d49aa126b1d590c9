"""Jobs that were run, as they are kept: a folder each under ``.plink/runs`` with what was asked for, the proof, how it
ended, and what every rank printed."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from plink.errors import InputError, PlinkError, UsageError
from plink.model.hosts import Hosts, hosts_from_json
from plink.model.storage import read_document, write_document
from plink.records.run_logs import Logs

T = TypeVar("T")

SCHEMA = "plink.run/1"
_FILE = "run.json"
LAST = "last"


@dataclass(frozen=True)
class Run:
    """One run as its file has it. ``document``: ``plink.run/1``; its ``exit_code`` is None while it runs, and for good
    where plink itself was killed."""

    folder: Path
    document: dict[str, Any]

    @property
    def id(self) -> str:
        """Its name, which is its folder's."""
        return self.folder.name

    @property
    def started(self) -> str:
        """When, in UTC (ISO 8601)."""
        return str(self.document.get("started", ""))

    def hosts(self) -> Hosts:
        """In rank order, as they were reached.

        :raises InputError: when the file does not tell.
        """
        location = str(self.folder / _FILE)
        return hosts_from_json(self.document.get("hosts"), self.document.get("lab"), location)

    def text(self, key: str) -> str:
        """:raises InputError: when that is not there, or no text."""
        return self._value(str, key, self.document.get(key))

    def texts(self, key: str) -> tuple[str, ...]:
        """:raises InputError: when that is not there, or no list of texts."""
        return tuple(self._value(list[str], key, self.document.get(key)))

    def settings(self) -> dict[str, str]:
        """The environment that was asked for.

        :raises InputError: when that is no object of texts.
        """
        return self._value(dict[str, str], "env", self.document.get("env", {}))

    def _value(self, kind: type[T], key: str, value: object) -> T:
        from plink.documents.codec import convert  # completion of run ids in a shell does without

        return convert(kind, value, str(self.folder / _FILE), key)

    def machines(self) -> dict[str, dict[str, Any]]:
        """What was known of the hosts from when they were measured; empty where the file does not tell."""
        value = self.document.get("machines")
        identities = value if isinstance(value, dict) else {}
        return {name: machine for name, machine in identities.items() if isinstance(machine, dict)}


class Record:
    """A run while it happens. What cannot be written is told once, by ``trouble``, and the job goes on without."""

    def __init__(self, folder: Path, request: dict[str, Any], logs: Path | None = None) -> None:
        """:raises PlinkError: when the folder cannot be made."""
        self.folder = folder
        self._write_error: str | None = None
        try:
            folder.mkdir(parents=True, mode=0o700)  # what was given by --env may be nobody else's business
        except OSError as error:
            raise PlinkError(f"cannot keep the run in {folder}: {error.strerror}") from None
        self.logs = logs or folder / "logs"
        self._logs = Logs(self.logs)
        # Of a run that never gets any further the file says so.
        self._request = request | {"schema": SCHEMA, "id": folder.name, "exit_code": None, "seconds": None,
                               "proof": None, "failure": None}  # fmt: skip
        write_document(folder / _FILE, self._request)

    @property
    def write_error(self) -> str | None:
        """What could not be written, and why."""
        return self._logs.write_error or self._write_error

    def line(self, rank: int | None, stream: str, line: str) -> None:
        """One line that a rank, or the launcher (None), printed."""
        self._logs.line(rank, stream, line)

    def finish(self, result: dict[str, Any]) -> None:
        """How it ended, as :meth:`runners.job.result.RunResult.to_json` says it; closes the logs."""
        self._logs.close()
        try:
            write_document(self.folder / _FILE, self._request | result | {"id": self.folder.name})
        except PlinkError as error:
            self._write_error = str(error)


def runs_in(folder: Path) -> Iterator[Run]:
    """The runs kept in a folder, the latest first; what is no run is passed over."""
    runs = []
    for path in folder.glob(f"*/{_FILE}"):
        with contextlib.suppress(InputError):
            runs.append(Run(path.parent, read_document(path)))
    yield from sorted(runs, key=lambda run: (run.started, run.id), reverse=True)


def run_named(folder: Path, name: str) -> Run:
    """The run whose id begins so, or the latest one (``last``).

    :raises UsageError: when there is none, or more than one.
    """
    matches = [run for run in runs_in(folder) if name == LAST or run.id.startswith(name)]
    if not matches:
        raise UsageError(f"no run {name} in {folder}; `plink runs` lists them")
    if len(matches) > 1 and name != LAST and matches[0].id != name:
        exact = [run for run in matches if run.id == name]
        if not exact:
            raise UsageError(
                f"{name} is the beginning of {len(matches)} runs: {', '.join(run.id for run in matches[:4])}"
            )
        return exact[0]
    return matches[0]
