"""How long SSH waits, and for what: against a server in this process that is slow on purpose."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import paramiko
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

import runners.ssh.connector
from plink.errors import HostError
from plink.model.hosts import Host
from runners.ssh.connector import SshConnector
from runners.ssh.settings import Identity

LATER = 20.0  # s: what no test waits for


def key(path: Path) -> paramiko.Ed25519Key:
    """A new private key."""
    path.write_bytes(Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()))
    return paramiko.Ed25519Key(filename=str(path))


class Slow(paramiko.ServerInterface):
    """Seconds before a log-in, and before a command, is answered."""

    def __init__(self, end: threading.Event, log_in: float = 0, command: float = 0) -> None:
        self.end, self.log_in, self.command = end, log_in, command

    def get_allowed_auths(self, username: str) -> str:
        return "publickey"

    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:
        self.end.wait(self.log_in)
        return paramiko.AUTH_SUCCESSFUL

    def check_channel_request(self, kind: str, chanid: int) -> int:
        return paramiko.OPEN_SUCCEEDED

    def check_channel_exec_request(self, channel: paramiko.Channel, command: bytes) -> bool:
        self.end.wait(self.command)
        return True


Serve = Callable[..., tuple[SshConnector, Host]]


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """Starts a server that is slow to say its banner, to log in, to start a program: a connector, and what to open."""
    end = threading.Event()
    host_key, _ = key(tmp_path / "host_key"), key(tmp_path / "user_key")
    listener = socket.create_server(("127.0.0.1", 0))
    made: list[paramiko.Transport] = []

    def started(banner: float = 0, **slow: float) -> tuple[SshConnector, Host]:
        def listen() -> None:
            connection, _ = listener.accept()
            end.wait(banner)
            made.append(paramiko.Transport(connection))
            made[0].add_server_key(host_key)
            try:
                made[0].start_server(server=Slow(end, **slow))
            except (OSError, EOFError, paramiko.SSHException):
                made[0].close()

        threading.Thread(target=listen, daemon=True).start()
        port = listener.getsockname()[1]
        (tmp_path / "known").write_text(f"[127.0.0.1]:{port} ssh-ed25519 {host_key.get_base64()}\n")
        identity = Identity(tmp_path / "user_key", tmp_path / "known")
        return SshConnector(identity=identity), Host("a", "127.0.0.1", port=port)

    yield started
    end.set()
    listener.close()
    for transport in made:
        transport.close()


@pytest.mark.parametrize(
    ("slow", "limit", "expected"),
    [
        ("banner", "_SESSION_TIMEOUT_S", "no SSH session within 1 s"),
        ("log_in", "_LOGIN_TIMEOUT_S", "not logged in within 1 s"),
        ("command", "_START_TIMEOUT_S", "no program started within 1 s"),
    ],
)
def test_each_step_has_a_limit_and_says_it(
    slow: str, limit: str, expected: str, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also what Paramiko waits for without one: a command that is neither begun nor refused."""
    monkeypatch.setattr(runners.ssh.connector, limit, 1.0)
    connector, host = serve(**{slow: LATER})
    began = time.monotonic()
    with pytest.raises(HostError) as caught:
        connector.open(host)
    assert caught.value.reason == f"SSH: connected, but {expected}; is the host overloaded?"
    assert time.monotonic() - began < LATER / 2


@pytest.mark.parametrize("sent", [b"", b"HTTP/1.1 400 Bad\r\n\r\n"])
def test_port_that_accepts_and_closes(sent: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.sendall(sent)

        threading.Thread(target=answer, daemon=True).start()
        with pytest.raises(HostError, match="connected, but no sshd's banner came; is that its port, is the host over"):
            SshConnector().open(Host("a", "127.0.0.1", port=listener.getsockname()[1]))


def test_a_slow_banner_has_longer_than_a_connection(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """The address answers at once, the sshd there is busy."""
    monkeypatch.setattr(runners.ssh.connector, "CONNECT_TIMEOUT_S", 0.5)
    connector, host = serve(banner=1.5)
    connector.open(host).close()
