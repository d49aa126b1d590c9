"""One format of a rank order, and checks of what its launcher would lose or cannot name."""

import re
from collections.abc import Callable
from dataclasses import dataclass

from plink.errors import UsageError
from plink.model.hosts import Host, Hosts
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


def check_spelling(form: str, hosts: Hosts, allowed: re.Pattern[str], takes: str) -> None:
    """Check that the launcher can read every host's address.

    :raises UsageError: naming the first host whose address does not match ``allowed``; ``takes`` says what would.
    """
    for host in hosts:
        if not allowed.fullmatch(host.address):
            raise UsageError(f"--format {form}: host {host.name} has the address {host.address}, but {takes}")


def check_distinct(form: str, hosts: Hosts, identity_of: Callable[[Host], str], consequence: str) -> None:
    """Check that no two hosts are the same to the launcher.

    :raises UsageError: naming the first two that do; ``consequence`` says what the launcher makes of it.
    """
    first: dict[str, Host] = {}
    for host in hosts:
        text = identity_of(host)
        if text in first:
            raise UsageError(
                f"--format {form}: hosts {first[text].name} and {host.name} are both {text}, and {consequence}"
            )
        first[text] = host
