"""What launchers cannot say: orders they would lose or hosts they cannot name are refused, never written down."""

import re
from collections.abc import Callable

from plink.errors import UsageError
from plink.model.hosts import Host, Hosts


def check_spelling(form: str, hosts: Hosts, allowed: re.Pattern[str], takes: str) -> None:
    """Every host's address has a form that the launcher reads.

    :raises UsageError: naming the first host whose address does not match ``allowed``; ``takes`` says what would.
    """
    for host in hosts:
        if not allowed.fullmatch(host.address):
            raise UsageError(f"--format {form}: host {host.name} has the address {host.address}, but {takes}")


def check_distinct(form: str, hosts: Hosts, seen_as: Callable[[Host], str], why: str) -> None:
    """No two hosts look alike to the launcher.

    :raises UsageError: naming the first two that do; ``why`` says what the launcher makes of it.
    """
    first: dict[str, Host] = {}
    for host in hosts:
        text = seen_as(host)
        if text in first:
            raise UsageError(f"--format {form}: hosts {first[text].name} and {host.name} are both {text}, and {why}")
        first[text] = host
