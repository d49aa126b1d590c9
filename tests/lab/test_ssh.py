"""SSH as a user's own `ssh` would do it: host keys, ports, jump hosts, and what is said when it does not work.

Against an sshd of our own on a port of 127.0.0.1, with HOME in a temporary folder.
"""

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from plink.model.hosts import Host
from plink.remote.fleet import Fleet
from plink.remote.program import AgentProgram
from runners.lab.sshd import _write_key
from runners.ssh.connector import SshConnector
from tests.conftest import plink
from tests.lab.waiting import until

pytestmark = pytest.mark.lab

PROGRAM = AgentProgram(("tests.remote.fleet_agent",))


def free_port() -> int:
    """A TCP port that nobody listens on."""
    import socket

    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


@dataclass
class Server:
    """One sshd: its port, the public half of its host key, its log."""

    folder: Path
    settings: str = ""
    port: int = field(default_factory=free_port)
    process: "subprocess.Popen[bytes] | None" = None

    @property
    def log(self) -> str:
        """What it wrote so far."""
        return (self.folder / "log").read_text()

    @property
    def known_hosts_line(self) -> str:
        """Its line in a known_hosts file."""
        return f"[127.0.0.1]:{self.port} {(self.folder / 'host_key.pub').read_text()}\n"

    def start(self) -> None:
        """Make its keys if it has none, start it, wait until it answers."""
        self.folder.mkdir(exist_ok=True)
        for name in ("host_key", "user_key"):
            if not (self.folder / name).exists():
                (self.folder / f"{name}.pub").write_text(_write_key(self.folder / name))
        (self.folder / "config").write_text(
            f"Port {self.port}\nListenAddress 127.0.0.1\nHostKey {self.folder}/host_key\nPidFile none\n"
            f"AuthorizedKeysFile {self.folder}/user_key.pub\nStrictModes no\nUsePAM no\nLogLevel VERBOSE\n"
            f"PasswordAuthentication no\nPermitRootLogin prohibit-password\n{self.settings}\n"
        )
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        command = ["/usr/sbin/sshd", "-D", "-f", f"{self.folder}/config", "-E", f"{self.folder}/log"]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
        until(lambda: (self.folder / "log").exists() and "Server listening" in self.log, 10, "sshd to listen")

    def stop(self) -> None:
        """End it."""
        if self.process is not None:
            self.process.terminate()
            self.process.wait(timeout=10)


@dataclass
class User:
    """Somebody with a home of their own and a folder they type in."""

    home: Path
    folder: Path

    @property
    def known_hosts(self) -> Path:
        """Their known_hosts file."""
        return self.home / ".ssh" / "known_hosts"

    def know(self, *servers: Server) -> None:
        """Note these servers' host keys."""
        self.known_hosts.write_text("".join(server.known_hosts_line for server in servers))

    def list_hosts(self, *lines: str) -> None:
        """Write the hosts file."""
        (self.folder / "hosts.txt").write_text("\n".join(lines) + "\n")

    def plink(self, *words: str, **more: str) -> "subprocess.CompletedProcess[str]":
        """Type a command."""
        return plink(*words, cwd=self.folder, **{"HOME": str(self.home), "SSH_AUTH_SOCK": "", **more})


@pytest.fixture
def user(tmp_path: Path) -> User:
    """Somebody who never used SSH."""
    (tmp_path / "home" / ".ssh").mkdir(parents=True, mode=0o700)
    (tmp_path / "here").mkdir()
    return User(tmp_path / "home", tmp_path / "here")


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[list[Server]]:
    """Two servers with keys of their own."""
    made = [Server(tmp_path / "a"), Server(tmp_path / "b")]
    for server in made:
        server.start()
    yield made
    for server in made:
        server.stop()


def line(name: str, server: Server) -> str:
    """A server as a line of a hosts file."""
    return f"{name} address=127.0.0.1 port={server.port} key={server.folder}/user_key"


def errors(done: "subprocess.CompletedProcess[str]") -> str:
    """The one error line; fails when there is none, or more than that."""
    lines = [text for text in done.stderr.splitlines() if text.startswith("plink: error: ")]
    assert len(lines) == 1, done.stderr
    assert done.stderr.splitlines()[-1] == lines[0]
    assert "Traceback" not in done.stderr
    return lines[0]


def test_known_hosts_with_keys_from_the_hosts_file(user: User, servers: list[Server]) -> None:
    """Port and key from the hosts file, host keys from ~/.ssh/known_hosts."""
    user.know(*servers)
    user.list_hosts(line("a", servers[0]))
    done = user.plink("launch", "--hosts", "hosts.txt", "echo", "fine")
    assert (done.returncode, done.stdout) == (0, "[0] fine\n"), done.stderr


def test_an_unknown_host_key_is_refused_with_the_hint(user: User, servers: list[Server]) -> None:
    """Nobody vouches for the host: its fingerprint, and the two ways on; nothing is noted, nothing runs."""
    user.list_hosts(line("a", servers[0]))
    done = user.plink("launch", "--hosts", "hosts.txt", "true")
    assert done.returncode == 1
    messages = errors(done)
    fingerprint = subprocess.run(
        ["ssh-keygen", "-lf", f"{servers[0].folder}/host_key.pub"], capture_output=True, text=True, check=True
    ).stdout.split()[1]
    for part in ("a: ", fingerprint, "known_hosts", "--accept-new-host-keys"):
        assert part in messages
    assert not user.known_hosts.exists()
    assert "Accepted" not in servers[0].log


def test_accepting_new_host_keys_notes_them(user: User, servers: list[Server]) -> None:
    """Noted as OpenSSH does, so that the next time needs no option; an unfinished last line is left whole."""
    user.list_hosts(line("a", servers[0]))
    user.known_hosts.write_text(servers[1].known_hosts_line.rstrip("\n"))
    words = ("launch", "--hosts", "hosts.txt")
    assert user.plink(*words, "--accept-new-host-keys", "true").returncode == 0
    noted = [text.split()[:3] for text in user.known_hosts.read_text().splitlines()]
    assert noted == [server.known_hosts_line.split()[:3] for server in reversed(servers)]
    assert user.plink(*words, "true").returncode == 0
    assert user.known_hosts.stat().st_mode & 0o022 == 0


@pytest.mark.parametrize("words", [(), ("--accept-new-host-keys",)])
def test_a_changed_host_key_is_refused_always(user: User, servers: list[Server], words: tuple[str, ...]) -> None:
    """Somebody else may answer there: refused also with --accept-new-host-keys, and nothing is noted."""
    user.list_hosts(line("a", servers[0]))
    user.known_hosts.write_text(f"[127.0.0.1]:{servers[0].port} {(servers[1].folder / 'host_key.pub').read_text()}\n")
    before = user.known_hosts.read_text()
    done = user.plink("launch", *words, "--hosts", "hosts.txt", "true")
    assert done.returncode == 1
    assert "host key has CHANGED" in errors(done)
    assert user.known_hosts.read_text() == before
    assert "Accepted" not in servers[0].log


ALIAS = "Host a\n  HostKeyAlias Node-A\n"
NAMES_OF_ONE_HOST = [
    # what the hosts file says, what known_hosts says, ~/.ssh/config
    ("LocalHost", "[localhost]:{port}", ""),
    ("localhost", "[LocalHost]:{port}", ""),
    ("127.0.0.1", "[127.0.0.*]:{port}", ""),
    ("127.0.0.1", "[10.*]:{port},[127.0.?.1]:{port},![127.0.0.2]:{port}", ""),
    ("127.0.0.1", "node-a", ALIAS),
]


@pytest.mark.parametrize(("address", "names", "config"), NAMES_OF_ONE_HOST)
@pytest.mark.parametrize("words", [(), ("--accept-new-host-keys",)])
def test_a_changed_host_key_is_refused_under_any_name_of_the_host(
    user: User, servers: list[Server], words: tuple[str, ...], address: str, names: str, config: str
) -> None:
    """As `ssh` does: names in capitals, patterns, HostKeyAlias; nothing is noted, and nobody logs in."""
    (user.home / ".ssh" / "config").write_text(config)
    user.list_hosts(line("a", servers[0]).replace("address=127.0.0.1", f"address={address}"))
    public = (servers[1].folder / "host_key.pub").read_text()
    user.known_hosts.write_text(f"{names.format(port=servers[0].port)} {public}\n")
    before = user.known_hosts.read_text()
    done = user.plink("launch", *words, "--hosts", "hosts.txt", "true")
    assert done.returncode == 1, done.stderr
    assert "host key has CHANGED" in errors(done)
    assert user.known_hosts.read_text() == before
    assert "Accepted" not in servers[0].log


def test_a_host_is_known_under_any_of_its_names_and_keys(user: User, servers: list[Server]) -> None:
    """The same lines, with the right key behind another one of the same type."""
    publics = [(server.folder / "host_key.pub").read_text() for server in reversed(servers)]
    for address, names, config in NAMES_OF_ONE_HOST:
        (user.home / ".ssh" / "config").write_text(config)
        user.list_hosts(line("a", servers[0]).replace("address=127.0.0.1", f"address={address}"))
        where = names.format(port=servers[0].port)
        user.known_hosts.write_text("".join(f"{where} {public}\n" for public in publics))
        done = user.plink("launch", "--hosts", "hosts.txt", "true")
        assert done.returncode == 0, done.stderr


def test_a_new_host_key_is_noted_under_the_alias(user: User, servers: list[Server]) -> None:
    """HostKeyAlias, in small letters and without a port, as `ssh` writes it."""
    (user.home / ".ssh" / "config").write_text(ALIAS)
    user.list_hosts(line("a", servers[0]))
    done = user.plink("launch", "--hosts", "hosts.txt", "--accept-new-host-keys", "true")
    assert done.returncode == 0, done.stderr
    assert user.known_hosts.read_text().startswith("node-a ssh-ed25519 ")


@pytest.mark.parametrize("words", [(), ("--accept-new-host-keys",)])
@pytest.mark.parametrize("is_known", [True, False])
def test_a_revoked_host_key_is_refused_always(
    user: User, servers: list[Server], words: tuple[str, ...], is_known: bool
) -> None:
    """Marked as ssh-keygen's users mark a key that was stolen; before any log-in, also where another line knows it."""
    user.list_hosts(line("a", servers[0]))
    public = (servers[0].folder / "host_key.pub").read_text()
    user.known_hosts.write_text(f"@revoked * {public}\n" + servers[0].known_hosts_line * is_known)
    before = user.known_hosts.read_text()
    done = user.plink("launch", *words, "--hosts", "hosts.txt", "true")
    assert done.returncode == 1
    assert "a: SSH: its host key SHA256:" in errors(done)
    assert "is marked @revoked in known_hosts" in errors(done)
    assert user.known_hosts.read_text() == before
    assert "Accepted" not in servers[0].log


def test_a_certificate_authority_vouches_for_nobody_here(user: User, servers: list[Server]) -> None:
    """`ssh` would take a certificate; plink says that it does not look at those lines."""
    user.list_hosts(line("a", servers[0]))
    public = (servers[1].folder / "host_key.pub").read_text()
    user.known_hosts.write_text(f"@cert-authority * {public}\n")
    done = user.plink("launch", "--hosts", "hosts.txt", "true")
    assert done.returncode == 1
    assert "is not known" in errors(done)
    assert "@cert-authority lines there count for ssh, not for plink" in errors(done)
    user.known_hosts.write_text(f"@cert-authority * {public}\n{servers[0].known_hosts_line}")
    assert user.plink("launch", "--hosts", "hosts.txt", "true").returncode == 0


def test_lines_that_cannot_be_read_are_passed_over(user: User, servers: list[Server]) -> None:
    """As `ssh` does: somebody's slip in a long file is no reason to reach nobody. Names may be hashed."""
    user.list_hosts(line("a", servers[0]))
    user.known_hosts.write_text(f"# mine\n\nx ssh-ed25519 AAA\ny ssh-what AAAA\nz\n\xff\n{servers[0].known_hosts_line}")
    done = user.plink("launch", "--hosts", "hosts.txt", "true")
    assert done.returncode == 0, done.stderr
    user.know(servers[0])
    subprocess.run(["ssh-keygen", "-H", "-f", str(user.known_hosts)], capture_output=True, check=True)
    assert "127.0.0.1" not in user.known_hosts.read_text()
    done = user.plink("launch", "--hosts", "hosts.txt", "true")
    assert done.returncode == 0, done.stderr


def test_a_refused_connection(user: User, servers: list[Server]) -> None:
    """No sshd on that port: said within a second or two."""
    user.list_hosts(line("a", servers[0]).replace(str(servers[0].port), str(free_port())))
    began = time.monotonic()
    done = user.plink("launch", "--hosts", "hosts.txt", "true")
    assert done.returncode == 1
    assert "a: SSH connection refused" in errors(done)
    assert time.monotonic() - began < 5


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[str]:
    """The socket of an ssh-agent that has no keys."""
    path = str(tmp_path / "agent")
    process = subprocess.Popen(["ssh-agent", "-D", "-a", path], stdout=subprocess.DEVNULL)
    until(lambda: Path(path).exists(), 10, "ssh-agent to listen")
    yield path
    process.terminate()
    process.wait(timeout=10)


@pytest.mark.parametrize("public", [True, False])
def test_only_the_keys_that_the_configuration_names(
    user: User, servers: list[Server], agent: str, tmp_path: Path, public: bool
) -> None:
    """IdentitiesOnly and a key with a passphrase: ssh-agent is asked for that key, and no other is offered."""

    def load(key: str) -> None:
        subprocess.run(["ssh-add", "-q", key], env={**os.environ, "SSH_AUTH_SOCK": agent}, check=True)

    mine = user.home / ".ssh" / "mine"
    shutil.copy(servers[0].folder / "user_key", mine)
    if public:
        shutil.copy(servers[0].folder / "user_key.pub", f"{mine}.pub")
    subprocess.run(["ssh-keygen", "-q", "-p", "-N", "secret", "-f", str(mine)], check=True)
    (user.home / ".ssh" / "config").write_text(
        f"Host a\n  HostName 127.0.0.1\n  Port {servers[0].port}\n  User root\n"
        f"  IdentityFile {mine}\n  IdentitiesOnly yes\n"
    )
    user.know(*servers)
    user.list_hosts("a")
    words = ("launch", "--hosts", "hosts.txt", "true")
    load(f"{servers[1].folder}/user_key")
    refused = user.plink(*words, SSH_AUTH_SOCK=agent)
    assert "the key is protected by a passphrase; load it into ssh-agent (ssh-add)" in errors(refused)
    load(f"{servers[0].folder}/user_key")
    done = user.plink(*words, SSH_AUTH_SOCK=agent)
    assert done.returncode == 0, done.stderr
    assert "Failed publickey" not in servers[0].log


def test_a_refused_log_in(user: User, servers: list[Server]) -> None:
    """The key of another host: says what to try."""
    user.know(*servers)
    user.list_hosts(line("a", servers[0]).replace(f"{servers[0].folder}/user_key", f"{servers[1].folder}/user_key"))
    done = user.plink("launch", "--hosts", "hosts.txt", "true")
    assert done.returncode == 1
    assert "a: SSH log-in refused" in errors(done)


def test_a_key_file_that_is_not_there(user: User, servers: list[Server]) -> None:
    """A typing error in the hosts file, said as such."""
    user.know(*servers)
    user.list_hosts(line("a", servers[0]) + "x")
    done = user.plink("launch", "--hosts", "hosts.txt", "true")
    assert done.returncode == 1
    assert f"{servers[0].folder}/user_keyx" in errors(done)


def test_a_name_that_does_not_resolve(user: User) -> None:
    """A typing error, exit code 2, for probe and launch; nothing is begun."""
    user.list_hosts("no-such-host.invalid", "other-host.invalid")
    for words in (("probe", "hosts.txt"), ("launch", "--hosts", "hosts.txt", "true")):
        done = user.plink(*words)
        assert done.returncode == 2, done.stderr
        assert "no-such-host.invalid: its name does not resolve" in errors(done)
    assert not (user.folder / ".plink/network.json").exists()


@pytest.mark.parametrize("name", ["a..b", "x" * 64 + ".example"])
def test_a_name_that_cannot_be_resolved_at_all(user: User, name: str) -> None:
    """Names that no resolver takes end as those that no resolver knows."""
    user.list_hosts(name, "other-host.invalid")
    done = user.plink("probe", "hosts.txt")
    assert done.returncode == 2, done.stderr
    assert "does not resolve" in errors(done)


def test_a_host_without_python(user: User, tmp_path: Path) -> None:
    """Says that python3 is what is missing."""
    # The login shell's start files may set PATH: a command of our own comes after them.
    bare = tmp_path / "bare"
    bare.write_text('#!/bin/sh\nPATH=/nonexistent\neval "$SSH_ORIGINAL_COMMAND"\n')
    bare.chmod(0o755)
    server = Server(tmp_path / "c", f"ForceCommand {bare}")
    server.start()
    try:
        user.know(server)
        user.list_hosts(line("bare", server))
        done = user.plink("launch", "--hosts", "hosts.txt", "true")
    finally:
        server.stop()
    assert done.returncode == 1
    messages = errors(done)
    assert "bare: " in messages
    assert "python3" in messages
    assert "not found" in messages


def test_something_that_is_not_ssh(user: User) -> None:
    """A port that takes the connection and is no sshd."""
    import socket
    import threading

    with socket.create_server(("127.0.0.1", 0)) as listener:

        def greet() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.sendall(b"HTTP/1.0 400 Bad Request\r\n\r\n" * 200)

        threading.Thread(target=greet, daemon=True).start()
        user.list_hosts(f"web address=127.0.0.1 port={listener.getsockname()[1]}")
        done = user.plink("launch", "--hosts", "hosts.txt", "true")
    assert done.returncode == 1
    assert "web: SSH: " in errors(done)


def test_a_greeting_of_the_login_shell_is_passed_over(user: User, servers: list[Server], tmp_path: Path) -> None:
    """What a login prints on standard output is not taken for the agent's words."""
    shell = tmp_path / "greet"
    shell.write_text(
        '#!/bin/sh\necho "Welcome to host"\necho \'{"type": "ready"}\'\n"$@"\nexec sh -c "$SSH_ORIGINAL_COMMAND"\n'
    )
    shell.chmod(0o755)
    server = Server(tmp_path / "d", f"ForceCommand {shell}")
    server.start()
    try:
        user.know(server)
        user.list_hosts(line("d", server))
        done = user.plink("launch", "--hosts", "hosts.txt", "echo", "fine")
    finally:
        server.stop()
    assert (done.returncode, done.stdout) == (0, "[0] fine\n"), done.stderr


def test_a_jump_host_from_the_users_configuration(user: User, servers: list[Server]) -> None:
    """HostName, Port, IdentityFile, User and ProxyJump of ~/.ssh/config; both hops' host keys are checked."""
    jump, inner = servers
    (user.home / ".ssh" / "config").write_text(
        f"Host gate\n  HostName 127.0.0.1\n  Port {jump.port}\n  User root\n  IdentityFile {jump.folder}/user_key\n"
        f"Host inner\n  HostName 127.0.0.1\n  Port {inner.port}\n  User root\n  IdentityFile {inner.folder}/user_key\n"
        "  ProxyJump gate\n"
    )
    user.list_hosts("inner")
    user.know(jump)
    refused = user.plink("launch", "--hosts", "hosts.txt", "true")
    assert refused.returncode == 1
    assert "host key" in errors(refused)
    user.know(jump, inner)
    done = user.plink("launch", "--hosts", "hosts.txt", "echo", "fine")
    assert (done.returncode, done.stdout) == (0, "[0] fine\n"), done.stderr
    assert "Accepted publickey" in jump.log
    assert "Accepted publickey" in inner.log
    user.know(inner)
    refused = user.plink("launch", "--hosts", "hosts.txt", "true")
    assert refused.returncode == 1
    assert "host key" in errors(refused)


def jumping(user: User, jump: Server, inner: Server, through: str = "127.0.0.1") -> None:
    """A configuration in which hosts n... lie behind a jump host."""
    (user.home / ".ssh" / "config").write_text(
        f"Host n*\n  HostName 127.0.0.1\n  Port {inner.port}\n  User root\n  IdentityFile {inner.folder}/user_key\n"
        f"  ProxyJump root@{through}:{jump.port}\n"
        f"Host {through}\n  IdentityFile {jump.folder}/user_key\n"
    )


def test_many_hosts_behind_one_jump_host(user: User, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One log-in there for all of them, however few it takes at a time; it ends with the last, and is made again."""
    monkeypatch.setenv("HOME", str(user.home))
    monkeypatch.setenv("SSH_AUTH_SOCK", "")
    jump, inner = Server(tmp_path / "j", "MaxStartups 2:100:2"), Server(tmp_path / "i", "MaxStartups 99")
    hosts = [Host(f"n{number}", f"n{number}") for number in range(16)]
    over = re.compile("Disconnected from|Connection closed by|Connection reset by")
    jump.start()
    inner.start()
    try:
        user.know(jump, inner)
        jumping(user, jump, inner)
        connector = SshConnector()
        for turn in (1, 2):
            with Fleet(connector, PROGRAM) as fleet:
                assert fleet.start(hosts, {"first": "hello"}) == {}
                assert len(fleet.alive) == len(hosts)
            until(lambda turn=turn: len(over.findall(jump.log)) == turn, 10, "the connection to the jump host to end")
        assert jump.log.count("Accepted publickey") == 2
        assert inner.log.count("Accepted publickey") == 32
    finally:
        jump.stop()
        inner.stop()


def test_a_jump_host_that_is_the_trouble_is_named(user: User, servers: list[Server]) -> None:
    """Not the host behind it: one that does not resolve is no typing error in the hosts file."""
    jump, inner = servers
    user.list_hosts("n1")
    words = ("launch", "--hosts", "hosts.txt", "true")

    def printed() -> str:
        done = user.plink(*words)
        assert done.returncode == 1
        return errors(done)

    jumping(user, jump, inner, "gate.invalid")
    assert "n1: its jump host gate.invalid: its name does not resolve" in printed()
    jumping(user, jump, inner)
    assert "n1: its jump host 127.0.0.1: SSH: its host key SHA256:" in printed()
    user.know(jump, inner)
    inner.stop()
    assert f"n1: its jump host 127.0.0.1: SSH: it does not reach 127.0.0.1 port {inner.port}" in printed()
    jump.stop()
    assert "n1: its jump host 127.0.0.1: SSH connection refused" in printed()


def test_a_proxy_command_from_the_users_configuration(user: User, servers: list[Server]) -> None:
    """ProxyCommand, with the target's address and port filled in."""
    server = servers[0]
    marker = user.home / "used"
    relay = user.home / "relay.py"
    relay.write_text(
        "import os, select, socket, sys\n"
        f"open({str(marker)!r}, 'w').write(' '.join(sys.argv[1:]))\n"
        "s = socket.create_connection((sys.argv[1], int(sys.argv[2])))\n"
        "while True:\n"
        "    for f in select.select([0, s], [], [])[0]:\n"
        "        data = os.read(0, 65536) if f == 0 else s.recv(65536)\n"
        "        if not data: sys.exit()\n"
        "        s.sendall(data) if f == 0 else os.write(1, data)\n"
    )
    (user.home / ".ssh" / "config").write_text(
        f"Host a\n  HostName 127.0.0.1\n  Port {server.port}\n  ProxyCommand {sys.executable} {relay} %h %p\n"
    )
    user.know(server)
    user.list_hosts(f"a key={server.folder}/user_key user=root")
    done = user.plink("launch", "--hosts", "hosts.txt", "echo", "fine")
    assert (done.returncode, done.stdout) == (0, "[0] fine\n"), done.stderr
    assert marker.read_text() == f"127.0.0.1 {server.port}"


@pytest.mark.parametrize("command", ["false", "sh -c 'read banner'"], ids=["at once", "after a line was sent to it"])
def test_a_proxy_command_that_ends(command: str, user: User) -> None:
    """Named as what failed, without waiting for a time-out."""
    (user.home / ".ssh" / "config").write_text(f"Host a\n  ProxyCommand {command} %h\n")
    user.list_hosts("a address=127.0.0.1")
    done = user.plink("launch", "--hosts", "hosts.txt", "true")
    assert done.returncode == 1
    assert "a: SSH: its ProxyCommand ended: " in errors(done)


def test_a_bad_configuration_names_the_file(user: User) -> None:
    """Not a stack of a parser's frames."""
    (user.home / ".ssh" / "config").write_text("Host a\n  Port x\n")
    user.list_hosts("a address=127.0.0.1")
    done = user.plink("launch", "--hosts", "hosts.txt", "true")
    assert done.returncode in (1, 2)
    assert "Port" in errors(done) or "port" in errors(done)
    assert "defect" not in done.stderr


def test_one_bad_host_among_good_ones(user: User, servers: list[Server]) -> None:
    """launch runs nothing anywhere, and names the bad one."""
    user.know(*servers)
    user.list_hosts(line("a", servers[0]), line("b", servers[1]), f"c address=127.0.0.1 port={free_port()}")
    done = user.plink("launch", "--hosts", "hosts.txt", "touch", "ran")
    assert done.returncode == 1
    assert "c: SSH connection refused" in errors(done)
    assert not (user.folder / "ran").exists()
