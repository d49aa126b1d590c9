"""One format of a rank order."""

from collections.abc import Callable
from dataclasses import dataclass

from plink.model.hosts import Hosts
from plink.model.order import RankOrder


@dataclass(frozen=True)
class Format:
    """A file format of rank orders.

    :param render: gets the hosts in rank order; raises a UsageError where the launcher could not keep it.
    :param command: the command line for the file, with ``{file}`` and ``{ranks}`` (their number) to be filled in; None
        where no launcher reads it.
    """

    name: str
    description: str
    render: Callable[[Hosts, RankOrder], str]
    command: str | None = None
