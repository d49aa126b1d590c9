"""Host key check before any log-in: a server's key is accepted, recorded or refused.

As OpenSSH's ``StrictHostKeyChecking`` ``yes`` and ``accept-new``: a new key may be recorded, a changed one never is.
"""

import base64
import hashlib
import os
import threading
from pathlib import Path

import paramiko

from runners.ssh.known_hosts import CERTIFICATE_AUTHORITY, REVOKED, keys_of, marked
from runners.ssh.settings import DEFAULT_PORT, SshSettings


class HostKeyCheck(paramiko.MissingHostKeyPolicy):
    """For one connection. Paramiko itself knows no hosts here, so that it asks about every key.

    :param guard: held by whoever reads and notes: the same host may be connected to twice at a time.
    """

    def __init__(self, settings: SshSettings, accept_new: bool, guard: threading.Lock) -> None:
        self._name, self._files = _listed_as(settings), settings.known_hosts
        self._accept_new, self._guard = accept_new, guard

    def ask_for_known(self, transport: paramiko.Transport) -> None:
        """Before it starts: a key of a known type, rather than others that the server may have."""
        known_types = {key.get_name() for key in keys_of(self._name, self._files)}
        options = transport.get_security_options()
        options.key_types = tuple(sorted(options.key_types, key=lambda kind: _type_of(kind) not in known_types))

    def missing_host_key(self, client: paramiko.SSHClient, hostname: str, key: paramiko.PKey) -> None:
        """:raises paramiko.SSHException: when the key is not to be trusted; says why."""
        if key.get_base64() in marked(self._files, REVOKED):
            raise paramiko.SSHException(
                f"its host key {_fingerprint(key)} is marked {REVOKED} in known_hosts: whoever answers there may be "
                "somebody else; give the host a new key"
            )
        with self._guard:
            known_keys = keys_of(self._name, self._files)
            if key in known_keys:
                return
            if known_keys:
                raise paramiko.BadHostKeyException(self._name, key, known_keys[0])
            if not self._accept_new:
                authorities = marked(self._files, CERTIFICATE_AUTHORITY)
                hint = f" ({CERTIFICATE_AUTHORITY} lines there count for ssh, not for plink)" if authorities else ""
                raise paramiko.SSHException(
                    f"its host key {_fingerprint(key)} is not known; check it and add it to your known_hosts "
                    f"(ssh-keyscan), or pass --accept-new-host-keys{hint}"
                )
            _note(f"{self._name} {key.get_name()} {key.get_base64()}\n", self._files[0])


def _listed_as(settings: SshSettings) -> str:
    """The name under which known_hosts has a host's keys."""
    if settings.host_key_alias is not None:
        return settings.host_key_alias.lower()
    name = settings.hostname.lower()
    return name if settings.port == DEFAULT_PORT else f"[{name}]:{settings.port}"


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
