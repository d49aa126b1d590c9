"""Records of jobs, a folder each under ``.plink/runs``: request, verified placement, result, and every rank's
output."""

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
AGILEML = "agileml"  # the backend of an elastic job


@dataclass(frozen=True)
class Run:
    """A recorded run. One run as its file has it. ``document``: ``plink.run/1``; its ``exit_code`` is None while it
    runs, and for good where plink itself was killed."""

    folder: Path
    document: dict[str, Any]

    @property
    def id(self) -> str:
        """Its id, which is its folder's name."""
        return self.folder.name

    @property
    def started(self) -> str:
        """Its start in UTC (ISO 8601)."""
        return str(self.document.get("started", ""))

    def hosts(self) -> Hosts:
        """Return its hosts in rank order.

        :raises InputError: when the file does not tell.
        """
        location = str(self.folder / _FILE)
        return hosts_from_json(self.document.get("hosts"), self.document.get("lab"), location)

    def text(self, key: str) -> str:
        """Return a text of the document.

        :raises InputError: when that is not there, or no text.
        """
        return self._value(str, key, self.document.get(key))

    def texts(self, key: str) -> tuple[str, ...]:
        """Return a list of texts of the document.

        :raises InputError: when that is not there, or no list of texts.
        """
        return tuple(self._value(list[str], key, self.document.get(key)))

    def settings(self) -> dict[str, str]:
        """Return the environment that was requested.

        :raises InputError: when that is no object of texts.
        """
        return self._value(dict[str, str], "env", self.document.get("env", {}))

    def _value(self, kind: type[T], key: str, value: object) -> T:
        from plink.documents.codec import convert  # completion of run ids in a shell does without

        return convert(kind, value, str(self.folder / _FILE), key)

    def machines(self) -> dict[str, dict[str, Any]]:
        """Return the hosts' identities when they were measured; empty where the file has none."""
        value = self.document.get("machines")
        identities = value if isinstance(value, dict) else {}
        return {name: machine for name, machine in identities.items() if isinstance(machine, dict)}


class Record:
    """Writer of a run's record. The first write error is kept in ``write_error``; the job goes on."""

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
        """The first write error, None without any."""
        return self._logs.write_error or self._write_error

    def line(self, rank: int | None, stream: str, line: str) -> None:
        """Record one line of a rank, or (rank None) of the launcher."""
        self._logs.line(rank, stream, line)

    def finish(self, result: dict[str, Any]) -> None:
        """Record the result, as of :meth:`runners.job.result.RunResult.to_json`, and close the logs."""
        self._logs.close()
        try:
            write_document(self.folder / _FILE, self._request | result | {"id": self.folder.name})
        except PlinkError as error:
            self._write_error = str(error)


def runs_in(folder: Path) -> Iterator[Run]:
    """Yield the recorded runs in a folder, the latest first."""
    runs = []
    for path in folder.glob(f"*/{_FILE}"):
        with contextlib.suppress(InputError):
            runs.append(Run(path.parent, read_document(path)))
    yield from sorted(runs, key=lambda run: (run.started, run.id), reverse=True)


def run_named(folder: Path, name: str) -> Run:
    """Return the run whose id begins so, or the latest one (``last``).

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
