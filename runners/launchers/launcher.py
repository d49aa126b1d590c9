"""What has to be known of a launcher that others wrote."""

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from plink.model.hosts import Hosts
from runners.job.job import Job
from runners.job.runner import Command, Watch


class Launcher(Protocol):
    """What has to be known of a launcher: the files it reads, its command, how its output tells ranks apart.

    ``rank_variables``: the environment variables in which it tells a process its rank, the first that is set counts.
    ``interface_variables``: what makes its ranks use the interface that leads to the others, ``{}`` standing for it;
    set where a rank's environment has them not.
    """

    name: str
    rank_variables: tuple[str, ...]
    interface_variables: Mapping[str, str]

    def files(self, hosts: Hosts, job: Job) -> dict[str, str]:
        """What it reads, text by file name; they are written into the run's folder.

        :raises UsageError: when it could not keep this order, or is not there.
        """

    def command(
        self, hosts: Hosts, job: Job, folder: Path, words: Sequence[str], forwarded: Sequence[str] = ()
    ) -> Command:
        """The command that runs ``words`` once a rank; ``folder``, absolute, holds the files.

        ``forwarded``: names of variables of its environment that the ranks get; their values stand in no command.
        """

    def allocation(
        self, hosts: Hosts, job: Job, folder: Path, watch: Watch
    ) -> contextlib.AbstractContextManager[dict[str, str]]:
        """Hold the hosts while both jobs run; gives what is added to the environment of their commands."""

    def told_apart(self, stream: str, line: str) -> Iterable[tuple[int | None, str, str]]:
        """(rank, stream, piece) of what stands in one line that the launcher printed; rank None: it said that itself.

        What ranks print comes in frames: it holds no ``[`` but those of the launcher's own marks.
        """

    def first_failure(self, own_lines: Sequence[str]) -> tuple[int, int] | None:
        """(rank, exit code) of the first rank that failed, by what the launcher said itself; None: it does not tell."""
