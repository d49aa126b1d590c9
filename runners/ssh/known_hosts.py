"""known_hosts files as sshd(8) describes them: Paramiko's own reader passes over markers and breaks off at bad lines.

A line is ``[@MARKER] NAMES KEYTYPE KEY [COMMENT]``.
"""

from collections.abc import Iterable
from pathlib import Path

import paramiko
from paramiko.hostkeys import HostKeyEntry, InvalidHostKey

REVOKED = "@revoked"
CERTIFICATE_AUTHORITY = "@cert-authority"


def load(files: Iterable[Path], into: paramiko.HostKeys) -> None:
    """Add the keys of hosts; for each type of a host's keys the first counts. Lines that cannot be read are no keys."""
    seen = set()
    for words in _lines(files):
        if words[0].startswith(("#", "@")):
            continue
        try:
            entry = HostKeyEntry.from_line(" ".join(words))
        except (InvalidHostKey, paramiko.SSHException, ValueError):
            continue
        if entry is None:
            continue
        kind = entry.key.get_name()
        for name in entry.hostnames:
            if (name, kind) not in seen:
                seen.add((name, kind))
                into.add(name, kind, entry.key)


def marked(files: Iterable[Path], marker: str) -> frozenset[str]:
    """The keys (base64) with this marker. The names are not looked at: a key that is revoked for one host is stolen."""
    return frozenset(words[3] for words in _lines(files) if len(words) > 3 and words[0] == marker)


def _lines(files: Iterable[Path]) -> list[list[str]]:
    """The words of every line that has any."""
    texts = [path.read_text(errors="replace") for path in files if path.is_file()]
    return [words for text in texts for line in text.splitlines() if (words := line.split())]
