"""Limits of launchers: refuses orders that they would lose, and hosts that they cannot name."""

import re
from collections.abc import Callable

from plink.errors import UsageError
from plink.model.hosts import Host, Hosts


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
