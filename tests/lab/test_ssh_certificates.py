"""Host certificates against a real sshd: whom an authority in known_hosts vouches for, and for whom not."""

import contextlib
import os
import subprocess
from pathlib import Path

import pytest

from plink.errors import HostError
from plink.model.hosts import Host
from runners.ssh.connector import SshConnector
from tests.lab.ssh_servers import Server, User, errors, line
from tests.lab.waiting import until

pytestmark = pytest.mark.lab


def keygen(*words: object) -> None:
    """Run ssh-keygen."""
    subprocess.run(["ssh-keygen", "-q", *map(str, words)], check=True)


@pytest.fixture
def authority(tmp_path: Path) -> Path:
    """The private key of a certificate authority."""
    keygen("-t", "ed25519", "-N", "", "-f", tmp_path / "ca")
    return tmp_path / "ca"


@pytest.fixture
def mine(user: User, monkeypatch: pytest.MonkeyPatch) -> User:
    """The user is this process."""
    monkeypatch.setenv("HOME", str(user.home))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    return user


def reached(server: Server, name: str = "127.0.0.1") -> str:
    """Whether plink logs in: why not, or nothing."""
    server.start()
    host = Host(name, "127.0.0.1", port=server.port, user="root", key=f"{server.folder}/user_key")
    try:
        SshConnector().open(host).close()
    except HostError as error:
        assert "Accepted" not in server.log
        return error.reason
    finally:
        server.stop()
    return ""


def certified(folder: Path, authority: Path, *words: str, kind: str = "ed25519") -> Server:
    """A server whose host key the authority has signed."""
    folder.mkdir()
    keygen("-t", kind, "-N", "", "-f", folder / "host_key")
    keygen("-s", authority, "-I", "it", *words, folder / "host_key.pub")
    return Server(folder, f"HostCertificate {folder}/host_key-cert.pub")


RIGHT = ("-h", "-n", "127.0.0.1")


def vouched(authority: Path, names: str = "*", marker: str = "@cert-authority") -> str:
    """A line of known_hosts."""
    return f"{marker} {names} {Path(f'{authority}.pub').read_text()}"


@pytest.mark.parametrize("kind", ["ed25519", "ecdsa", "rsa"])
@pytest.mark.parametrize("names", ["[127.0.0.1]:{port}", "127.0.0.*", "[127.0.0.1]:{port},127.0.0.1"])
def test_a_host_that_an_authority_vouches_for(
    kind: str, names: str, mine: User, tmp_path: Path, authority: Path
) -> None:
    """Whatever type its key has, and the authority's; with the port or without it."""
    if kind != "ed25519":
        keygen("-t", kind, "-N", "", "-f", tmp_path / kind)
    by = authority if kind == "ed25519" else tmp_path / kind
    server = certified(tmp_path / "h", by, *RIGHT, "-V", "-1m:+1h", kind=kind)
    mine.known_hosts.write_text(vouched(by, names.format(port=server.port)))
    before = mine.known_hosts.read_text()
    assert reached(server) == ""
    assert mine.known_hosts.read_text() == before


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (("-h", "-n", "10.0.0.1,other"), "is for 10.0.0.1, other, not for 127.0.0.1"),
        (("-h", "-n", "127.0.1.*"), "not for 127.0.0.1"),
        (("-h",), "not for 127.0.0.1"),
        ((*RIGHT, "-V", "20200101:20200102"), "expired"),
        ((*RIGHT, "-V", "+1h:+2h"), "is valid only from"),
        (("-n", "127.0.0.1"), "is one for users"),
        ((*RIGHT, "-O", "critical:what@example.org"), "critical options"),
    ],
)
def test_a_certificate_that_does_not_count(
    words: tuple[str, ...], part: str, mine: User, tmp_path: Path, authority: Path
) -> None:
    """It says why, and the key by itself counts as before."""
    server = certified(tmp_path / "h", authority, *words)
    mine.known_hosts.write_text(vouched(authority))
    reason = reached(server)
    assert part in reason
    assert "is not known" in reason
    mine.known_hosts.write_text(vouched(authority) + server.known_hosts_line)
    assert reached(server) == ""


@pytest.mark.parametrize("is_known", [True, False])
@pytest.mark.parametrize("revoked", ["ca.pub", "h/host_key.pub"])
def test_a_revoked_authority_or_key_is_refused_always(
    revoked: str, is_known: bool, mine: User, tmp_path: Path, authority: Path
) -> None:
    """By @revoked, also where another line knows the key; and by RevokedHostKeys, as a list of keys or a KRL."""
    server = certified(tmp_path / "h", authority, *RIGHT)
    lines = vouched(authority) + server.known_hosts_line * is_known
    mine.known_hosts.write_text(f"@revoked * {(tmp_path / revoked).read_text()}{lines}")
    assert "is marked @revoked in known_hosts" in reached(server)
    mine.known_hosts.write_text(lines)
    assert reached(server) == ""
    keygen("-k", "-f", tmp_path / "krl", "-s", tmp_path / "ca.pub", tmp_path / "h" / "host_key.pub")
    for listed in (tmp_path / revoked, tmp_path / "krl", tmp_path / "none"):
        (mine.home / ".ssh" / "config").write_text(f"RevokedHostKeys {listed}\n")
        assert f"is listed in {listed} (RevokedHostKeys)" in reached(server)


def test_an_authority_of_other_hosts(mine: User, tmp_path: Path, authority: Path) -> None:
    """Nor another authority, nor an alias that the certificate is not for."""
    server = certified(tmp_path / "h", authority, "-h", "-n", "127.0.0.1,node-a")
    keygen("-t", "ed25519", "-N", "", "-f", tmp_path / "other")
    for text in (vouched(authority, "*.example.org,10.*"), vouched(tmp_path / "other")):
        mine.known_hosts.write_text(text)
        assert "is not known" in reached(server)
    mine.known_hosts.write_text(vouched(authority, "node-?"))
    for alias, expected in (("Node-A", ""), ("node-b", "not for node-b")):
        (mine.home / ".ssh" / "config").write_text(f"HostKeyAlias {alias}\n")
        assert reached(server).count(expected)
        assert (reached(server) == "") is (expected == "")


def test_a_host_without_a_certificate(user: User, servers: list[Server], authority: Path) -> None:
    """It is known by its key or not at all; the command line says it in one line."""
    user.list_hosts(line("a", servers[0]))
    user.known_hosts.write_text(vouched(authority))
    done = user.plink("launch", "--hosts", "hosts.txt", "true")
    assert done.returncode == 1
    assert "(it has no host certificate" in errors(done)
    user.known_hosts.write_text(vouched(authority) + servers[0].known_hosts_line)
    assert user.plink("launch", "--hosts", "hosts.txt", "true").returncode == 0


@pytest.fixture
def key(mine: User, tmp_path: Path) -> tuple[Server, Path]:
    """A server that takes no key yet, and a key."""
    keygen("-t", "ed25519", "-N", "", "-f", tmp_path / "key")
    server = Server(tmp_path / "h")
    server.folder.mkdir()
    keygen("-t", "ed25519", "-N", "", "-f", server.folder / "host_key")
    mine.known_hosts.write_text(server.known_hosts_line)
    (server.folder / "user_key").touch()
    (server.folder / "user_key.pub").touch()
    return server, tmp_path / "key"


def log_in(server: Server) -> None:
    """With what the configuration says."""
    server.start()
    try:
        SshConnector().open(Host("127.0.0.1", "127.0.0.1", port=server.port, user="root")).close()
    finally:
        server.stop()


def test_a_certificate_of_the_user(key: tuple[Server, Path], mine: User, tmp_path: Path, authority: Path) -> None:
    """CertificateFile, beside no key; there may be keys that it is not for."""
    server, file = key
    server.settings = f"TrustedUserCAKeys {authority}.pub"
    keygen("-s", authority, "-I", "me", "-n", "root", f"{file}.pub")
    Path(f"{file}-cert.pub").rename(tmp_path / "mine.pub")
    keygen("-t", "ed25519", "-N", "", "-f", tmp_path / "other")
    config = f"IdentityFile {tmp_path}/other\nIdentityFile {file}\n"
    (mine.home / ".ssh" / "config").write_text(config)
    with pytest.raises(HostError, match="refused"):
        log_in(server)
    (mine.home / ".ssh" / "config").write_text(f"{config}CertificateFile {tmp_path}/mine.pub\n")
    log_in(server)


@pytest.mark.parametrize("only", ["yes", "no"])
def test_an_agent_elsewhere(only: str, key: tuple[Server, Path], mine: User, tmp_path: Path) -> None:
    """IdentityAgent; its key may have no file here but the public one."""
    server, file = key
    (server.folder / "user_key.pub").write_text(Path(f"{file}.pub").read_text())
    config = f"IdentitiesOnly {only}\nIdentityFile {file}\n"
    with contextlib.ExitStack() as ends:
        process = subprocess.Popen(["ssh-agent", "-D", "-a", f"{tmp_path}/an agent"], stdout=subprocess.DEVNULL)
        ends.callback(process.wait)
        ends.callback(process.terminate)
        environment = {**os.environ, "SSH_AUTH_SOCK": f"{tmp_path}/an agent"}
        until(lambda: (tmp_path / "an agent").exists(), 10, "the agent")
        subprocess.run(["ssh-add", "-q", file], env=environment, check=True)
        file.unlink()
        for agent, refusal in (("none", True), (f"{tmp_path}/an agent", False)):
            (mine.home / ".ssh" / "config").write_text(f'{config}IdentityAgent "{agent}"\n')
            with pytest.raises(HostError) if refusal else contextlib.nullcontext():
                log_in(server)
