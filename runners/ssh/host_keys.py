"""Host key check before any log-in: a server's key or certificate is accepted, recorded or refused.

As OpenSSH's ``StrictHostKeyChecking`` ``yes`` and ``accept-new``: a new key may be recorded, a changed one never is.
"""

import base64
import hashlib
import os
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

import paramiko
from paramiko.hostkeys import HostKeyEntry, InvalidHostKey

from plink.transport.command_output import run_to_end
from runners.ssh.settings import DEFAULT_PORT, SshSettings

# Host certificates of OpenSSH (PROTOCOL.certkeys), verified as ``ssh`` does: Paramiko only takes the key out.
#
# As in OpenSSH from 10.3 on principals are patterns, and a certificate without any counts for no host.


_HOST = 2
# Fields of the public key itself.
_KEY_FIELDS = {"ssh-rsa": 2, "ssh-ed25519": 1}
_ECDSA_FIELDS = 2
_SUFFIX = "-cert-v01@openssh.com"


REVOKED = "@revoked"
CERTIFICATE_AUTHORITY = "@cert-authority"
_CERTIFICATE = "-cert-v01@openssh.com"
_REVOKED_LIMIT_S = 10.0


class InvalidCertificate(Exception):
    """A host certificate does not vouch for the host; one line that follows "its host certificate"."""


def authority_of(certificate: bytes) -> bytes:
    """Return the public key (RFC 4253, 6.6) that signed a certificate, as that says itself; empty if unreadable."""
    return _Fields(certificate).authority


def verify(certificate: bytes, authorities: Iterable[bytes], host: str, algorithms: Sequence[str]) -> None:
    """Verify that an authority vouches for a host, now.

    :param authorities: public keys. :param host: its name, in small letters.
    :param algorithms: of signatures that count (ssh_config(5), CASignatureAlgorithms).
    :raises InvalidCertificate: when none does; says why.
    """
    fields = _Fields(certificate)
    if fields.authority not in authorities:
        raise InvalidCertificate("is signed by an authority that no @cert-authority line has for it")
    if not fields.is_signed(algorithms):
        raise InvalidCertificate("has an invalid signature")
    if fields.kind != _HOST:
        raise InvalidCertificate("is one for users")
    if time.time() < fields.valid_after:
        raise InvalidCertificate(f"is valid only from {_moment(fields.valid_after)} on")
    if time.time() >= fields.valid_before:
        raise InvalidCertificate(f"expired at {_moment(fields.valid_before)}")
    principals = list(_strings(fields.principals))
    if not matches_any(principals, host):
        raise InvalidCertificate(f"is for {', '.join(principals) or 'no host by name'}, not for {host}")
    if fields.critical_options:
        raise InvalidCertificate("has critical options, and none is known")


class _Fields:
    """The fields of a certificate; whatever is missing is empty or 0, as Paramiko reads it: it is not signed then."""

    def __init__(self, certificate: bytes) -> None:
        message = paramiko.Message(certificate)
        plain = message.get_binary().decode(errors="replace").removesuffix(_SUFFIX)
        for _ in range(1 + _KEY_FIELDS.get(plain, _ECDSA_FIELDS)):  # a nonce before them
            message.get_binary()
        message.get_int64()  # serial number
        self.kind = message.get_int()
        message.get_binary()  # its name
        self.principals = message.get_binary()
        self.valid_after, self.valid_before = message.get_int64(), message.get_int64()
        self.critical_options = message.get_binary()
        message.get_binary()  # extensions: none is for hosts
        message.get_binary()  # reserved
        self.authority = message.get_binary()
        self._signed, self._signature = message.get_so_far(), message.get_binary()
        self._is_whole = self._signed + len(self._signature).to_bytes(4, "big") + self._signature == certificate

    def is_signed(self, algorithms: Sequence[str]) -> bool:
        """Whether the signature is the authority's, by one of these algorithms."""
        try:
            algorithm = paramiko.Message(self._signature).get_text()
            key = paramiko.PKey.from_type_string(paramiko.Message(self.authority).get_text(), self.authority)
            return (
                self._is_whole
                and algorithm in algorithms
                and key.verify_ssh_sig(self._signed, paramiko.Message(self._signature))
            )
        except Exception:  # Paramiko and its library have many words for keys and signatures that are none
            return False


def _strings(data: bytes) -> Iterable[str]:
    message = paramiko.Message(data)
    while message.get_remainder():
        yield message.get_binary().decode(errors="replace")


def _moment(seconds: int) -> str:
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(seconds))
    except (OverflowError, ValueError, OSError):
        return "a time beyond all calendars"


# known_hosts files as sshd(8) describes them: Paramiko's own reader takes names literally, passes over markers and
# breaks off at bad lines.
#
# A line is ``[@MARKER] NAMES KEYTYPE KEY [COMMENT]``.


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


class HostKeyCheck(paramiko.MissingHostKeyPolicy):
    """For one connection. Paramiko itself knows no hosts here, so that it asks about every key.

    :param guard: held by whoever reads and notes: the same host may be connected to twice at a time.
    """

    def __init__(self, settings: SshSettings, accept_new: bool, guard: threading.Lock) -> None:
        self._settings, self._host = settings, (settings.host_key_alias or settings.hostname).lower()
        has_own_port = settings.host_key_alias is None and settings.port != DEFAULT_PORT
        # The name under which known_hosts has a host's keys. Where it has none, the name without the port may vouch for
        # a key, but not against it.
        self._name = f"[{self._host}]:{settings.port}" if has_own_port else self._host
        self._files = (*settings.known_hosts, *settings.global_known_hosts)
        self._accept_new, self._guard = accept_new or settings.accept_new_keys, guard

    def ask_for_known(self, transport: paramiko.Transport) -> None:
        """Before it starts: a certificate where somebody vouches for the host, else a key of a known type, rather than
        others that the server may have."""
        known_types = {key.get_name() for key in self._keys() or self._keys_without_port()}
        options = transport.get_security_options()
        plain = sorted(options.key_types, key=lambda kind: _type_of(kind) not in known_types)
        certified = [f"{kind}{_CERTIFICATE}" for kind in plain] if self._authorities() else []
        options.key_types = (*certified, *plain)

    def missing_host_key(self, client: paramiko.SSHClient, hostname: str, key: paramiko.PKey) -> None:
        """:raises paramiko.SSHException: when the key is not to be trusted; says why."""
        certificate = key.public_blob.key_blob if key.public_blob else None
        self._refuse_revoked(key, certificate)
        authorities, hint = self._authorities(), ""
        if certificate is not None and authorities:
            try:
                verify(certificate, [key.asbytes() for key in authorities], self._host, self._settings.ca_signatures)
                return
            except InvalidCertificate as error:  # the key itself may be known
                hint = f" (its host certificate {error})"
        elif authorities:
            hint = f" (it has no host certificate for the {CERTIFICATE_AUTHORITY} lines there)"
        with self._guard:
            known_keys = self._keys()
            if key in (known_keys or self._keys_without_port()):
                return
            if known_keys:
                raise paramiko.BadHostKeyException(self._name, key, known_keys[0])
            if not self._accept_new:
                raise paramiko.SSHException(
                    f"its host key {_fingerprint(key)} is not known; check it and add it to your known_hosts "
                    f"(ssh-keyscan), or pass --accept-new-host-keys{hint}"
                )
            for path in self._settings.known_hosts[:1]:
                name = paramiko.HostKeys.hash_host(self._name) if self._settings.hash_names else self._name
                try:
                    _note(f"{name} {key.get_name()} {key.get_base64()}\n", path)
                except OSError as error:
                    raise paramiko.SSHException(
                        f"its new host key cannot be recorded in {path}: {error.strerror}; name another "
                        "UserKnownHostsFile in ~/.ssh/config (/dev/null: none)"
                    ) from None

    def _keys(self, marker: str | None = None) -> list[paramiko.PKey]:
        return keys_of(self._name, self._files, marker)

    def _keys_without_port(self, marker: str | None = None) -> list[paramiko.PKey]:
        return keys_of(self._host, self._files, marker) if self._host != self._name else []

    def _authorities(self) -> list[paramiko.PKey]:
        return self._keys(CERTIFICATE_AUTHORITY) or self._keys_without_port(CERTIFICATE_AUTHORITY)

    def _refuse_revoked(self, key: paramiko.PKey, certificate: bytes | None) -> None:
        revoked = marked(self._files, REVOKED)
        if key.get_base64() in revoked:
            raise paramiko.SSHException(
                f"its host key {_fingerprint(key)} is marked {REVOKED} in known_hosts: whoever answers there may be "
                "somebody else; give the host a new key"
            )
        if certificate is not None and base64.b64encode(authority_of(certificate)).decode() in revoked:
            raise paramiko.SSHException(
                f"the authority of its host certificate is marked {REVOKED} in known_hosts: whoever answers there may "
                "be somebody else; have the host's key signed by another"
            )
        if (path := _listed(certificate or key.asbytes(), self._settings.revoked_host_keys)) is not None:
            raise paramiko.SSHException(
                f"its host key {_fingerprint(key)} is listed in {path} (RevokedHostKeys), or that cannot be read; "
                "try `ssh` to it by hand"
            )


def _listed(key: bytes, revoked: Iterable[Path]) -> Path | None:
    """The first RevokedHostKeys file (ssh-keygen(1), "KEY REVOCATION LISTS") that has a key, or cannot be read."""
    for path in revoked:
        with tempfile.NamedTemporaryFile("w", prefix="plink-key-") as file:
            file.write(f"{paramiko.Message(key).get_text()} {base64.b64encode(key).decode()}\n")
            file.flush()
            try:
                if run_to_end(["ssh-keygen", "-Q", "-f", str(path), file.name], _REVOKED_LIMIT_S).returncode != 0:
                    return path
            except (OSError, subprocess.SubprocessError):
                return path
    return None


def _type_of(algorithm: str) -> str:
    """The type of key that a signature algorithm uses: RSA's keys have several (RFC 8332)."""
    return "ssh-rsa" if algorithm.startswith("rsa-sha2-") else algorithm


def _note(entry: str, path: Path) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with path.open("a+b") as file:
        if file.tell():  # a last line that somebody left without an end
            file.seek(-1, os.SEEK_END)
            entry = entry if file.read() == b"\n" else "\n" + entry
        file.write(entry.encode())


def _fingerprint(key: paramiko.PKey) -> str:
    return "SHA256:" + base64.b64encode(hashlib.sha256(key.asbytes()).digest()).decode().rstrip("=")
