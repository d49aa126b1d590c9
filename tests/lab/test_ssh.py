"""SSH as a user's own `ssh` would do it: ports, keys, and errors that say what to do."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.ssh_servers import Server, User, errors, line
from tests.lab.waiting import until
from tests.stand_ins import program

pytestmark = pytest.mark.lab


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
    bare = program(tmp_path, "bare", 'PATH=/nonexistent\neval "$SSH_ORIGINAL_COMMAND"')
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


def test_a_greeting_of_the_login_shell_is_passed_over(user: User, servers: list[Server], tmp_path: Path) -> None:
    """What a login prints on standard output is not taken for the agent's words."""
    greeting = 'echo "Welcome to host"\necho \'{"type": "ready"}\'\n"$@"\nexec sh -c "$SSH_ORIGINAL_COMMAND"'
    shell = program(tmp_path, "greet", greeting)
    server = Server(tmp_path / "d", f"ForceCommand {shell}")
    server.start()
    try:
        user.know(server)
        user.list_hosts(line("d", server))
        done = user.plink("launch", "--hosts", "hosts.txt", "echo", "fine")
    finally:
        server.stop()
    assert (done.returncode, done.stdout) == (0, "[0] fine\n"), done.stderr
