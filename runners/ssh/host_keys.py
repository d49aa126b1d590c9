"""Host key check before any log-in: a server's key or certificate is accepted, recorded or refused.

As OpenSSH's ``StrictHostKeyChecking`` ``yes`` and ``accept-new``: a new key may be recorded, a changed one never is.
"""

import base64
import hashlib
import os
import subprocess
import tempfile
import threading
from collections.abc import Iterable
from pathlib import Path

import paramiko

from plink.transport.command_output import run_to_end
from runners.ssh.certificates import InvalidCertificate, authority_of, verify
from runners.ssh.known_hosts import CERTIFICATE_AUTHORITY, REVOKED, keys_of, marked
from runners.ssh.settings import DEFAULT_PORT, SshSettings

_CERTIFICATE = "-cert-v01@openssh.com"
_REVOKED_LIMIT_S = 10.0


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
