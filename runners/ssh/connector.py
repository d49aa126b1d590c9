"""Connector over SSH. Host keys are always checked."""

import base64
import contextlib
import logging
import os
import select
import shlex
import socket
import subprocess
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import paramiko

from plink.errors import HostError, UnknownHost
from plink.model.hosts import Host
from plink.transport.fleet import LEASE_S
from plink.transport.program import REMOTE_COMMAND
from runners.ssh.host_keys import HostKeyCheck
from runners.ssh.jumps import JumpError, Jumps
from runners.ssh.settings import Identity, SshSettings, load_config, route_to, settings_for

CONNECT_TIMEOUT_S = 10.0
# After the TCP connection stands: banner and key exchange, slow when many handshakes share few cores; then the log-in
# on top of that, and the start of a program.
_SESSION_TIMEOUT_S = 30.0
_LOGIN_TIMEOUT_S = 60.0
_START_TIMEOUT_S = 30.0
_KEEPALIVE_S = 15
_PROXY_EXIT_TIMEOUT_S = 1.0
_EXIT_STATUS_S = 1.0
_READ = 1 << 16


_DEFAULTS = ("id_rsa", "id_ecdsa", "id_ed25519", "id_ecdsa_sk", "id_ed25519_sk")
_BEGIN, _END = b"-----BEGIN OPENSSH PRIVATE KEY-----", b"-----END OPENSSH PRIVATE KEY-----"
_MAGIC = b"openssh-key-v1\0"


class SshConnection:
    """Connection to an agent over SSH.

    :param ends: closes the connection, and releases those that it was tunnelled through.
    """

    def __init__(self, ends: contextlib.ExitStack, channel: paramiko.Channel) -> None:
        self._ends, self._channel = ends, channel
        self._guard = threading.Lock()

    def read(self) -> bytes:
        """Return the next bytes from the agent; empty at the end."""
        try:
            return self._channel.recv(_READ)
        except OSError:
            return b""

    def write(self, data: bytes) -> None:
        """Send bytes to the agent."""
        try:
            self._channel.sendall(data)
        except (EOFError, paramiko.SSHException):  # what paramiko says of a connection that breaks meanwhile
            raise BrokenPipeError("the connection was cut") from None

    def exit_reason(self) -> str:
        """Return the last line on standard error, or the exit status; empty where there is neither."""
        stderr = b""
        self._channel.settimeout(1.0)
        with contextlib.suppress(OSError):
            while data := self._channel.recv_stderr(_READ):
                stderr = (stderr + data)[-_READ:]
        lines = [line.strip() for line in stderr.decode(errors="replace").splitlines() if line.strip()]
        if lines:
            return lines[-1]
        # -1: there is none (the program was killed, or the connection cut).
        self._channel.status_event.wait(_EXIT_STATUS_S)  # it comes after the end of the output
        if self._channel.exit_status_ready() and (code := self._channel.recv_exit_status()) > 0:
            return f"it ended with exit status {code}"
        return ""

    def close(self) -> None:
        """Close the connection, last hop first."""
        with self._guard:
            ends = self._ends.pop_all()
        ends.close()


class _ProxyCommand(paramiko.ProxyCommand):
    """ProxyCommand that may end at any time: Paramiko's then cannot be closed, and reads for ever. A shell runs it, as
    with ``ssh``: it is written for one (quotes, variables, redirections)."""

    def __init__(self, command: str) -> None:
        super().__init__(shlex.join([os.environ.get("SHELL") or "/bin/sh", "-c", f"exec {command}"]))
        self.command = command

    def recv(self, size: int) -> bytes:
        """Return up to ``size`` bytes, none when the command has ended. :raises TimeoutError: as set for sockets."""
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], self.timeout)
        if not ready:
            raise TimeoutError
        return os.read(self.process.stdout.fileno(), size)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            super().close()


def _close(client: paramiko.SSHClient) -> None:
    # A ProxyCommand that has ended already cannot be ended, and a jump host's connection may be closing meanwhile.
    with contextlib.suppress(OSError, EOFError, paramiko.SSHException):
        client.close()


class _NoAnswer(TimeoutError):
    """Nothing answers at the address."""

    limit_s = CONNECT_TIMEOUT_S


class _StepTimeout(TimeoutError):
    """A step after the TCP connection took too long."""


class _Transport(paramiko.Transport):
    """Transport that raises when the key exchange times out, where Paramiko's goes on."""

    def start_client(self, event: threading.Event | None = None, timeout: float | None = None) -> None:
        super().start_client(event, timeout)
        if not self.initial_kex_done:
            raise _StepTimeout(f"no SSH session within {timeout:.0f} s")

    @property
    def preferred_keys(self) -> tuple[str, ...]:
        """Host key algorithms in order. Paramiko adds those of certificates, also of those that are theirs already."""
        return tuple(dict.fromkeys(name for name in super().preferred_keys if name.count("-cert-") < 2))


@contextlib.contextmanager
def _within(seconds: float, what: str, client: paramiko.SSHClient) -> Iterator[None]:
    """Close the connection when the time is over: some of what Paramiko waits for has no limit of its own."""
    late = threading.Event()

    def end() -> None:
        late.set()
        _close(client)

    alarm = threading.Timer(seconds, end)
    alarm.daemon = True
    alarm.start()
    try:
        yield
    except Exception:
        if not late.is_set():
            raise
    finally:
        alarm.cancel()
    if late.is_set():
        raise _StepTimeout(f"{what} within {seconds:.0f} s")


class SshConnector:
    """Connector over SSH.

    :param accept_new_host_keys: record the keys of unknown hosts instead of refusing them.
    :param identity: key and known hosts to use instead of the user's own configuration.
    :param heartbeat_timeout_s: seconds after which a host that acknowledges nothing counts as lost.
    """

    def __init__(
        self, accept_new_host_keys: bool = False, identity: Identity | None = None, heartbeat_timeout_s: float = LEASE_S
    ) -> None:
        logging.getLogger("paramiko").setLevel(logging.CRITICAL)  # what it logs is raised as well
        self.accept_new_host_keys, self.identity, self._heartbeat_timeout_s = (
            accept_new_host_keys,
            identity,
            heartbeat_timeout_s,
        )
        self._config = load_config()
        self._known_hosts_guard = threading.Lock()
        self._jumps = Jumps(self._log_in)

    def settings(self, host: Host) -> SshSettings:
        """Return the settings of a host. :raises HostError: when the configuration cannot be read; says why."""
        try:
            return settings_for(host, self._config, self.identity)
        except (OSError, ValueError) as error:
            raise HostError(host.name, _explain(error)) from None

    def open(self, host: Host) -> SshConnection:
        """Log in and start the bootstrap.

        :raises HostError: when any step fails; says which and why.
        """
        try:
            with contextlib.ExitStack() as ends:
                if host.key and not Path(host.key).expanduser().is_file():
                    raise ValueError(f"there is no key file {host.key}")
                settings = self.settings(host)
                route = route_to(settings, self._config)
                client = self._log_in(settings, self._jumps.tunnel(route, settings, ends), ends)
                transport = client.get_transport()
                assert transport is not None
                transport.set_keepalive(_KEEPALIVE_S)
                with _within(_START_TIMEOUT_S, "no program started", client):
                    channel = transport.open_session(timeout=_START_TIMEOUT_S)
                    channel.exec_command(REMOTE_COMMAND)
                return SshConnection(ends.pop_all(), channel)
        except JumpError as error:
            raise HostError(host.name, f"its jump host {error.jump}: {_explain(error.cause)}") from None
        except socket.gaierror:
            raise UnknownHost(host.name, "its name does not resolve; check the spelling or give address=...") from None
        except (OSError, EOFError, paramiko.SSHException, ValueError) as error:
            raise HostError(host.name, _explain(error)) from None

    def _log_in(
        self, settings: SshSettings, through: paramiko.Channel | None, ends: contextlib.ExitStack
    ) -> paramiko.SSHClient:
        """Log in to one hop."""
        client = paramiko.SSHClient()
        ends.callback(_close, client)
        check = HostKeyCheck(settings, self.accept_new_host_keys, self._known_hosts_guard)
        client.set_missing_host_key_policy(check)
        # There is no parameter for it.
        if settings.identities_only:
            client._agent = ChosenKeys(settings.keys, settings.identity_agent)  # type: ignore[attr-defined]
        elif settings.identity_agent is not None:
            client._agent = AgentAt(settings.identity_agent)  # type: ignore[attr-defined]

        def transport(*arguments: Any, **more: Any) -> paramiko.Transport:
            made = _Transport(*arguments, **more)
            check.ask_for_known(made)
            return made

        sock: socket.socket | paramiko.Channel | paramiko.ProxyCommand
        if through is not None:
            sock = through
        elif settings.proxy_command is not None:
            sock = _ProxyCommand(settings.proxy_command)
        else:
            sock = _connect(settings)
            # A machine that loses its power says nothing: unanswered lease renewals are what tells that it is gone.
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(self._heartbeat_timeout_s * 1000))
        try:
            with _within(_LOGIN_TIMEOUT_S, "not logged in", client):
                client.connect(
                    settings.hostname,
                    port=settings.port,
                    username=settings.user,
                    # The stubs know neither the list of keys nor the socket-likes that paramiko takes.
                    key_filename=[key for key in settings.keys if Path(key).is_file()] or None,  # type: ignore[arg-type]
                    pkey=certified_key(settings.keys, settings.certificates),
                    sock=sock,
                    look_for_keys=not settings.keys,
                    timeout=_SESSION_TIMEOUT_S,
                    banner_timeout=_LOGIN_TIMEOUT_S,
                    auth_timeout=_LOGIN_TIMEOUT_S,
                    transport_factory=transport,
                )
        except (EOFError, _StepTimeout, paramiko.SSHException):
            if isinstance(sock, paramiko.ProxyCommand):
                with contextlib.suppress(subprocess.TimeoutExpired):  # it may have closed its output a moment ago
                    sock.process.wait(_PROXY_EXIT_TIMEOUT_S)
                    raise paramiko.SSHException(f"its ProxyCommand ended: {sock.command}") from None
            raise
        return client


def _connect(settings: SshSettings) -> socket.socket:
    """Connect to the first of the host's addresses that answers."""
    addresses = socket.getaddrinfo(settings.hostname, settings.port, settings.family, socket.SOCK_STREAM)
    limit_s, refusal = settings.connect_timeout_s or CONNECT_TIMEOUT_S, OSError("no address")
    for family, kind, protocol, _, address in addresses:
        sock = socket.socket(family, kind, protocol)
        sock.settimeout(limit_s)
        try:
            if settings.bind_address is not None:
                sock.bind((settings.bind_address, 0))
            sock.connect(address)
            return sock
        except OSError as error:
            sock.close()
            refusal = error
            if isinstance(error, TimeoutError):
                refusal = _NoAnswer()
                refusal.limit_s = limit_s
    raise refusal


def _explain(error: Exception) -> str:
    if isinstance(error, _StepTimeout):
        return f"SSH: connected, but {error}; is the host overloaded?"
    if str(error).startswith("Error reading SSH protocol banner"):  # paramiko's
        return "SSH: connected, but no sshd's banner came; is that its port, is the host overloaded?"
    if isinstance(error, socket.gaierror):
        return "its name does not resolve; check the spelling in ~/.ssh/config"
    if isinstance(error, paramiko.ChannelException):
        return f"SSH: it opens no channel: {error.text}"
    if isinstance(error, TimeoutError):
        limit_s = error.limit_s if isinstance(error, _NoAnswer) else CONNECT_TIMEOUT_S
        return f"no answer to SSH within {limit_s:.0f} s; check the address and the firewall"
    if isinstance(error, ConnectionRefusedError):
        return "SSH connection refused; is sshd running, and on this port?"
    if isinstance(error, paramiko.BadHostKeyException):
        return (
            "its host key has CHANGED since it was noted in known_hosts; if you know why, remove the old line first "
            "(plink refuses it whatever StrictHostKeyChecking says)"
        )
    if isinstance(error, paramiko.PasswordRequiredException):
        return "the key is protected by a passphrase; load it into ssh-agent (ssh-add)"
    if isinstance(error, paramiko.AuthenticationException):
        return "SSH log-in refused; try `ssh` to it by hand, or set user= and key= in the hosts file"
    if isinstance(error, OSError) and error.strerror:
        return f"SSH: {error.strerror}"
    return f"SSH: {' '.join(str(error).split()) or type(error).__name__}"


# Keys to log in with: in ssh-agent where only those of the identity files may be offered (ssh_config(5),
# IdentitiesOnly), in an agent elsewhere (IdentityAgent), and with a certificate elsewhere (CertificateFile).
#
# A key file with a passphrase cannot be read here, but which key it is can: by ``KEY.pub``, or by the public part of
# OpenSSH's own format (PROTOCOL.key), which is not encrypted.


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
