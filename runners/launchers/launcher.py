"""Protocol of an external launcher (mpirun, srun, ...)."""

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from plink.model.dry_run import LaunchCommand
from plink.model.hosts import Hosts
from runners.job.job import Job
from runners.job.runner import RunContext


class Launcher(Protocol):
    """An external launcher: the files it reads, its command, and how its output names ranks.

    :ivar rank_variables: environment variables in which it passes the rank to a process; the first that is set counts.
    :ivar interface_variables: set, unless they are set already, so that its ranks use the interface that leads to the
        other hosts; ``{}`` stands for it.
    """

    name: str
    rank_variables: tuple[str, ...]
    interface_variables: Mapping[str, str]

    def files(self, hosts: Hosts, job: Job) -> dict[str, str]:
        """Return the files that it reads, text by file name; they are written into the run's folder.

        :raises UsageError: when it could not keep this order, or is not installed.
        """

    def command(
        self, hosts: Hosts, job: Job, folder: Path, arguments: Sequence[str], forwarded: Sequence[str] = ()
    ) -> LaunchCommand:
        """Return the command that runs ``arguments`` once a rank.

        :param folder: absolute, of the files. :param forwarded: names of variables of its environment that ranks get.
        """

    def allocation(
        self, hosts: Hosts, job: Job, folder: Path, context: RunContext
    ) -> contextlib.AbstractContextManager[dict[str, str]]:
        """Hold the hosts during the dry run and the job; gives variables for the environment of both commands."""

    def parse_output_line(self, stream: str, line: str) -> Iterable[tuple[int | None, str, str]]:
        """Yield (rank, stream, part) for the parts of one line of the launcher's output; rank None: its own text.

        Output of ranks is in frames: it holds no ``[`` but those of the launcher's own marks.
        """

    def first_failure(self, own_lines: Sequence[str]) -> tuple[int, int] | None:
        """Return (rank, exit code) of the first rank that failed, by the launcher's own lines; None if unknown."""
