"""Host keys over SSH, as a user's own `ssh` takes, refuses and notes them."""

import subprocess

import pytest

from tests.lab.ssh_servers import Server, User, errors, line

pytestmark = pytest.mark.lab


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
    (user.home / ".ssh" / "config").write_text("HashKnownHosts no\n")
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


ALIAS = "Host a\n  HostKeyAlias Node-A\n  HashKnownHosts no\n"


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


@pytest.mark.parametrize("setting", ["accept-new", "no"])
def test_strict_host_key_checking_of_the_configuration_counts(user: User, servers: list[Server], setting: str) -> None:
    """New keys are noted in the user's first file, hashed where that is wanted; a changed one is refused."""
    (user.home / ".ssh" / "config").write_text(
        f"StrictHostKeyChecking {setting}\nHashKnownHosts yes\nUserKnownHostsFile ~/mine ~/.ssh/known_hosts\n"
    )
    user.list_hosts(line("a", servers[0]))
    words = ("launch", "--hosts", "hosts.txt", "true")
    done = user.plink(*words)
    assert done.returncode == 0, done.stderr
    mine = user.home / "mine"
    assert not user.known_hosts.exists()
    assert "127.0.0.1" not in mine.read_text()
    name = f"[127.0.0.1]:{servers[0].port}"
    assert subprocess.run(["ssh-keygen", "-F", name, "-f", mine], capture_output=True, check=False).returncode == 0
    mine.write_text(f"{name} {(servers[1].folder / 'host_key.pub').read_text()}\n")
    done = user.plink(*words)
    assert done.returncode == 1
    assert "host key has CHANGED" in errors(done)


def test_known_hosts_that_keep_nothing(user: User, servers: list[Server]) -> None:
    """As machines that are rented for an hour are reached: every key is new each time."""
    user.list_hosts(line("a", servers[0]))
    for nowhere in ("/dev/null", "none"):
        (user.home / ".ssh" / "config").write_text(
            f"Host *\n  StrictHostKeyChecking no\n  UserKnownHostsFile {nowhere}\n"
        )
        done = user.plink("launch", "--hosts", "hosts.txt", "true")
        assert done.returncode == 0, done.stderr
    assert not user.known_hosts.exists()
    (user.home / ".ssh" / "config").write_text("StrictHostKeyChecking no\nUserKnownHostsFile /dev/null/no\n")
    done = user.plink("launch", "--hosts", "hosts.txt", "true")
    assert "cannot be recorded in /dev/null/no" in errors(done)


def test_a_key_known_without_the_port(user: User, servers: list[Server]) -> None:
    """`ssh` looks there too where no line has the port, for the right key only."""
    user.list_hosts(line("a", servers[0]))
    publics = [(server.folder / "host_key.pub").read_text() for server in servers]
    user.known_hosts.write_text(f"127.0.0.1 {publics[0]}\n")
    assert user.plink("launch", "--hosts", "hosts.txt", "true").returncode == 0
    user.known_hosts.write_text(f"127.0.0.1 {publics[1]}\n")
    done = user.plink("launch", "--hosts", "hosts.txt", "true")
    assert done.returncode == 1
    assert "is not known" in errors(done)


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
