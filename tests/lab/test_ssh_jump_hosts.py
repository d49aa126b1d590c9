"""Jump hosts and proxy commands of a user's SSH configuration."""

import re
import sys
from pathlib import Path

import pytest

from plink.model.hosts import Host
from plink.transport.fleet import Fleet
from plink.transport.program import AgentProgram
from runners.ssh.connector import SshConnector
from tests.lab.ssh_servers import Server, User, errors
from tests.lab.waiting import until

pytestmark = pytest.mark.lab


PROGRAM = AgentProgram(("tests.transport.fleet_agent",))


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
    """ProxyCommand, with the target's address and port filled in, run by a shell as `ssh` does."""
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
        f"Host a\n  HostName 127.0.0.1\n  Port {server.port}\n"
        f"  ProxyCommand {sys.executable} $HOME/relay.py %h %p 2>&1\n"
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
