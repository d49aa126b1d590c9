"""known_hosts files as sshd(8) describes them: Paramiko's own reader takes names literally, passes over markers and
breaks off at bad lines.

A line is ``[@MARKER] NAMES KEYTYPE KEY [COMMENT]``.
"""

from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import Path

import paramiko
from paramiko.hostkeys import HostKeyEntry, InvalidHostKey

REVOKED = "@revoked"
CERTIFICATE_AUTHORITY = "@cert-authority"


def keys_of(name: str, files: Iterable[Path], marker: str | None = None) -> list[paramiko.PKey]:
    """All keys of a host, under its name in small letters (``[NAME]:PORT`` on a port of its own), as they are listed;
    with a marker those marked so. Lines that cannot be read are no keys."""
    keys = []
    for words in _lines(files):
        if marker is not None and words.pop(0) != marker:
            continue
        if len(words) < 3 or words[0].startswith(("#", "@")) or not _names(words[0], name):
            continue
        try:
            entry = HostKeyEntry.from_line(" ".join(words))
        except (InvalidHostKey, paramiko.SSHException, ValueError):
            continue
        if entry is not None:
            keys.append(entry.key)
    return keys


def marked(files: Iterable[Path], marker: str) -> frozenset[str]:
    """The keys (base64) with this marker. The names are not looked at: a key that is revoked for one host is stolen."""
    return frozenset(words[3] for words in _lines(files) if len(words) > 3 and words[0] == marker)


def _names(names: str, host: str) -> bool:
    """Whether a line is about a host: its name hashed, or patterns with ``*`` and ``?``; one behind ``!`` excludes."""
    if names.startswith("|1|"):
        try:
            return paramiko.HostKeys.hash_host(host, names) == names
        except (AssertionError, ValueError):  # a salt of no such length, or none at all
            return False
    patterns = names.lower().split(",")
    excluding = [pattern[1:] for pattern in patterns if pattern.startswith("!")]
    including = [pattern for pattern in patterns if not pattern.startswith("!")]
    return matches_any(including, host) and not matches_any(excluding, host)


def matches_any(patterns: Iterable[str], host: str) -> bool:
    """Whether a name matches one of the patterns with ``*`` and ``?`` (ssh_config(5), "PATTERNS")."""
    # A bracket stands for itself here.
    return any(fnmatchcase(host, pattern.replace("[", "[[]")) for pattern in patterns)


def _lines(files: Iterable[Path]) -> list[list[str]]:
    """The words of every line that has any."""
    texts = [path.read_text(errors="replace") for path in files if path.is_file()]
    return [words for text in texts for line in text.splitlines() if (words := line.split())]
