"""Names of hosts, their addresses and labs: what plink takes for one, and what it refuses."""

import re

from plink.errors import InputError

# Letters of DNS names, IPv4 and IPv6 addresses (with a zone) and folder-free user names: nothing a shell, ssh or a
# launcher's own hostfile syntax would read as more than a name, and no leading dash that would make it an option.
_NAME = re.compile(r"[A-Za-z0-9_:][A-Za-z0-9._:%-]{0,252}")
_LAB_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,15}")


def check_name(text: object, location: str, what: str = "host name") -> str:
    """Return the text if it can be a host's name or address.

    :raises InputError: when it is no string, or holds what a shell or a hostfile would read as more than a name.
    """
    if not isinstance(text, str) or not _NAME.fullmatch(text):
        raise InputError(location, f"{text!r} cannot be a {what} (letters, digits, '.', '-', '_', ':' only)")
    return text


def check_lab_name(text: object, location: str) -> str:
    """Return the text if it can be a lab's name: 1 to 16 lower-case letters, digits and dashes."""
    if not isinstance(text, str) or not _LAB_NAME.fullmatch(text):
        raise InputError(location, f"{text!r} cannot be a lab's name (1 to 16 lower-case letters, digits and dashes)")
    return text
