"""What a format is."""

from collections.abc import Callable
from dataclasses import dataclass

from plink.model.hosts import Hosts
from plink.model.order import RankOrder


@dataclass(frozen=True)
class Format:
    """One way to write an order down.

    ``render`` is given the hosts in rank order and raises a UsageError where the launcher could not keep it;
    ``command`` is what to type with the file, ``{file}`` and ``{ranks}`` (their number) to be filled in, None where no
    launcher reads it.
    """

    name: str
    description: str
    render: Callable[[Hosts, RankOrder], str]
    command: str | None = None
