"""Keys to log in with: in ssh-agent where only those of the identity files may be offered (ssh_config(5),
IdentitiesOnly), in an agent elsewhere (IdentityAgent), and with a certificate elsewhere (CertificateFile).

A key file with a passphrase cannot be read here, but which key it is can: by ``KEY.pub``, or by the public part of
OpenSSH's own format (PROTOCOL.key), which is not encrypted.
"""

import base64
import contextlib
import socket
from collections.abc import Iterable
from pathlib import Path

import paramiko

_DEFAULTS = ("id_rsa", "id_ecdsa", "id_ed25519", "id_ecdsa_sk", "id_ed25519_sk")
_BEGIN, _END = b"-----BEGIN OPENSSH PRIVATE KEY-----", b"-----END OPENSSH PRIVATE KEY-----"
_MAGIC = b"openssh-key-v1\0"


class AgentAt(paramiko.Agent):
    """The agent at a socket; it has no keys where none answers."""

    def __init__(self, path: str) -> None:
        paramiko.agent.AgentSSH.__init__(self)  # the agent's own looks for SSH_AUTH_SOCK
        sock = socket.socket(socket.AF_UNIX)
        try:
            sock.connect(path)
        except OSError:
            sock.close()
        else:
            self._connect(sock)  # type: ignore[attr-defined]


class ChosenKeys:
    """Subset of :class:`paramiko.Agent`'s keys; connects to the agent only when they are used.

    :param files: of private keys; none: SSH's own. :param socket_path: of the agent; None: SSH_AUTH_SOCK.
    """

    def __init__(self, files: Iterable[str], socket_path: str | None = None) -> None:
        self._files = [Path(file) for file in files] or [Path("~/.ssh").expanduser() / name for name in _DEFAULTS]
        self._socket_path = socket_path
        self._agent: paramiko.Agent | None = None

    def get_keys(self) -> tuple[paramiko.AgentKey, ...]:
        """Return those in the agent, in the order of the files."""
        public_keys = [public for file in self._files if (public := public_part(file)) is not None]
        if not public_keys:
            return ()
        self._agent = self._agent or (AgentAt(self._socket_path) if self._socket_path else paramiko.Agent())
        agent_keys = {key.blob: key for key in self._agent.get_keys()}
        return tuple(agent_keys[public] for public in public_keys if public in agent_keys)

    def close(self) -> None:
        """Disconnect from the agent."""
        if self._agent is not None:
            self._agent.close()


def public_part(file: Path) -> bytes | None:
    """The public key of a private key's file (RFC 4253, 6.6), which may itself be a public key; None if unknown."""
    for path in (Path(f"{file}.pub"), file):
        with contextlib.suppress(OSError, ValueError, IndexError):
            data = path.read_bytes().strip()
            if not data.startswith(_BEGIN):
                return base64.b64decode(data.split()[1], validate=True)
            inside = base64.b64decode(data.removeprefix(_BEGIN).removesuffix(_END))
            message = paramiko.Message(inside.removeprefix(_MAGIC))
            for _ in ("cipher", "derivation", "its options"):
                message.get_binary()
            message.get_int()  # keys: one
            return message.get_binary()
    return None


def certified_key(keys: Iterable[str], certificates: Iterable[str]) -> paramiko.PKey | None:
    """The first private key that a certificate file is for, with that; None where there is none."""
    files = [Path(key) for key in keys if Path(key).is_file()]
    for certificate in certificates:
        for file in files:
            # Paramiko and its library have many words for keys that they cannot read.
            with contextlib.suppress(Exception):
                key = paramiko.PKey.from_path(file)
                key.load_certificate(certificate)
                assert key.public_blob is not None
                if paramiko.PKey.from_type_string(key.get_name(), key.public_blob.key_blob).asbytes() == key.asbytes():
                    return key
    return None
