"""Where and how to connect: the hosts file first, then what ``ssh -G`` says, then defaults."""

import getpass
import pwd
import socket
import threading
from pathlib import Path

import pytest

import runners.ssh.settings
from plink.errors import HostError, InputError
from plink.model.hosts import Host, Hosts
from runners.launchers.mpi import ssh_config
from runners.ssh.connector import SshConnector
from runners.ssh.settings import (
    Configuration,
    Identity,
    OpenSsh,
    ParamikoConfig,
    SshSettings,
    jump_settings,
    load_config,
    route_to,
    settings_for,
)

CONFIG = """
Host node-*
    User ann
    Port 2222
    IdentityFile ~/.ssh/cluster
    ProxyJump bob@gate:2200,inner

Host node-7
    HostName 10.0.0.7
    ProxyJump none

Host gate
    HostName gate.example.org
    User nobody
    UserKnownHostsFile /a/known /b/known

Host direct
    ProxyJump none

Host tunnel
    ProxyCommand nc -X connect %h %p
    IdentitiesOnly yes
"""


@pytest.fixture(params=[OpenSsh, ParamikoConfig])
def config(request: pytest.FixtureRequest, tmp_path: Path) -> Configuration:
    """The configuration above, read from a file by either."""
    path = tmp_path / "config"
    path.write_text(CONFIG)
    return request.param(path)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of its own, so that the user's plays no part."""
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def settings(name: str, config: Configuration) -> SshSettings:
    """For a host that stands alone on its line."""
    return settings_for(Host(name, name), config, None)


def test_the_configuration_says_who_and_where(home: Path, config: Configuration) -> None:
    result = settings("node-1", config)
    assert (result.hostname, result.port, result.user) == ("node-1", 2222, "ann")
    assert result.keys == (str(home / ".ssh" / "cluster"),)
    assert result.proxy_jump == ("bob@gate:2200", "inner")


def test_none_is_no_jump(config: Configuration) -> None:
    """OpenSSH takes the first value it meets, so here the pattern above wins, and only what it left open is filled."""
    result = settings("node-7", config)
    assert result.hostname == "10.0.0.7"
    assert result.proxy_jump == ("bob@gate:2200", "inner")
    assert settings("direct", config).proxy_jump == ()


def test_the_hosts_file_wins(home: Path, config: Configuration) -> None:
    (home / "mine").touch()
    host = Host("node-1", "192.0.2.9", user="cem", port=22022, key="~/mine")
    result = settings_for(host, config, None)
    assert (result.hostname, result.port, result.user) == ("192.0.2.9", 22022, "cem")
    assert result.keys == (str(home / "mine"),)
    assert result.proxy_jump == ("bob@gate:2200", "inner")  # matched by name, as ssh would


def test_a_proxy_command_and_only_these_keys(config: Configuration) -> None:
    result = settings("tunnel", config)
    assert result.proxy_command == "nc -X connect tunnel 22"
    assert result.identities_only


def test_a_proxy_command_leads_to_where_the_hosts_file_says(home: Path) -> None:
    (home / "config").write_text(
        "Host a\n HostName b\n Port 2222\n User ann\n ProxyCommand ~/go %h:%p %r %n %%h %x a~b\n"
    )
    config = load_config(home / "config")
    assert settings("a", config).proxy_command == "~/go b:2222 ann a %h %x a~b"
    elsewhere = Host("a", "192.0.2.9", user="cem", port=22022)
    assert settings_for(elsewhere, config, None).proxy_command == "~/go 192.0.2.9:22022 cem a %h %x a~b"
    assert jump_settings("bob@a:23", config).proxy_command == "~/go b:23 bob a %h %x a~b"


@pytest.mark.parametrize(
    ("jump", "hostname", "port", "user"),
    [
        ("bob@gate:2200", "gate.example.org", 2200, "bob"),
        ("ann@corp@other", "other", 22, "ann@corp"),
    ],
)
def test_a_jump_is_a_host_of_its_own(
    jump: str, hostname: str, port: int, user: str | None, config: Configuration
) -> None:
    result = jump_settings(jump, config)
    assert (result.hostname, result.port, result.user) == (hostname, port, user or getpass.getuser())


def test_a_lab_brings_its_own_identity(config: Configuration) -> None:
    """Nothing of the user's configuration, keys or agent is used for a lab's host."""
    identity = Identity(key=Path("/lab/key"), known_hosts=Path("/lab/known_hosts"))
    result = settings_for(Host("node-1", "198.18.1.1", user="root"), config, identity)
    assert result == SshSettings(
        "198.18.1.1", 22, "root", ("/lab/key",), (Path("/lab/known_hosts"),), identities_only=True
    )


def written(home: Path, text: str) -> None:
    """The user's own configuration."""
    (home / ".ssh").mkdir(exist_ok=True)
    (home / ".ssh" / "config").write_text(text)


def test_settings_come_from_ssh_with_the_files_of_user_and_system(home: Path) -> None:
    """Include, ${VARIABLES}, quotes, comments, and known-hosts files in the plural: whatever ssh makes of them."""
    written(
        home,
        """Include config.d/*.conf
Host a # mine
    IdentityFile "~/my keys/%r@%h"
    IdentityFile ${HOME}/k
    UserKnownHostsFile "~/my hosts" ~/b/%k /dev/null
    GlobalKnownHostsFile none
    StrictHostKeyChecking accept-new
    ConnectTimeout 33
    IdentityAgent "~/an agent"
    CertificateFile ~/c.pub
    AddressFamily inet6
    BindAddress ::1
    RemoteCommand tmux
    RequestTTY force
    ForkAfterAuthentication yes
Match host 10.0.0.8 user=ann
    Port 8
""",
    )
    (home / ".ssh" / "config.d").mkdir()
    (home / ".ssh" / "config.d" / "1.conf").write_text("Host a\n HostName 10.0.0.7\nHost b\n HostName 10.0.0.8\n")
    config = load_config()
    result = settings_for(Host("a", "a", user="ann", port=2222), config)
    assert (result.hostname, result.port, result.user) == ("10.0.0.7", 2222, "ann")
    assert result.keys == (f"{home}/my keys/ann@10.0.0.7", f"{home}/k")
    assert result.known_hosts == (home / "my hosts", home / "b" / "a", Path("/dev/null"))
    assert (result.global_known_hosts, result.accept_new_keys, result.connect_timeout_s) == ((), True, 33)
    assert (result.identity_agent, result.certificates) == (f"{home}/an agent", (f"{home}/c.pub",))
    assert (result.family, result.bind_address) == (socket.AF_INET6, "::1")
    assert settings_for(Host("b", "b", user="ann"), config).port == 8
    assert settings("b", config).port == 22
    other = settings("other", config)
    assert (other.keys, other.accept_new_keys, other.identity_agent) == ((), False, None)
    assert other.known_hosts == (home / ".ssh" / "known_hosts", home / ".ssh" / "known_hosts2")


@pytest.mark.parametrize("is_only", [True, False], ids=["the only file", "the user's own"])
def test_a_match_exec_counts_where_it_succeeds(is_only: bool, home: Path) -> None:
    """Once a host and run, however many ask at the same time; also where Match final has ssh read everything twice."""
    written(home, f'Match host a exec "echo %n >> {home}/ran; true"\n Port 7\nMatch final host a\n User ann\n')
    config = load_config(home / ".ssh" / "config" if is_only else None)
    results: list[SshSettings] = []
    threads = [threading.Thread(target=lambda: results.append(settings("a", config))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {(result.port, result.user) for result in results} == {(7, "ann")}
    assert len((home / "ran").read_text().split()) <= 2  # ssh runs it once in each pass
    assert settings("b", config).port == 22


@pytest.mark.parametrize(
    ("text", "parts", "failed"),
    [
        ("Host x\n Port 1\n Prot 22\n", ("config", "line 3", "prot"), "a"),
        ("\nMatch weather 203.0.113.0/24\n ProxyCommand touch ran\n", ("config", "line 2", "weather"), "a"),
        ("Host *\n ProxyJump gate\n", ("gate",), "gate"),
    ],
)
def test_what_ssh_refuses_is_refused_in_its_own_words(
    text: str, parts: tuple[str, ...], failed: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For each host, so that a running job outlives a slip in the file; once it is mended the host is reached."""
    monkeypatch.chdir(home)
    written(home, text)
    connector = SshConnector()
    with pytest.raises(HostError) as caught:
        connector.open(Host("a", "a"))
    assert all(part in caught.value.reason for part in parts)
    assert "\n" not in str(caught.value)
    assert not (home / "ran").exists()
    written(home, "Port 33\n")
    assert connector.settings(Host(failed, failed)).port == 33


def test_a_match_exec_that_hangs_is_named(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runners.ssh.settings, "_LIMIT_S", 0.5)
    written(home, 'Match exec "sleep 60"\n Port 7\n')
    with pytest.raises(HostError) as caught:
        SshConnector().settings(Host("a", "a"))
    assert "ssh -G -- a" in caught.value.reason
    assert "Match exec" in caught.value.reason


def test_an_account_without_a_name(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in containers with a number for a user, where `ssh` does nothing."""

    def nobody(number: int) -> None:
        raise KeyError(number)

    monkeypatch.setattr(pwd, "getpwuid", nobody)
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
    written(home, "Host a\n Port 33\n")
    config = load_config()
    with pytest.raises(ValueError, match="USER"):
        settings("a", config)
    monkeypatch.setenv("USER", "ann")
    assert (settings("a", config).user, settings("a", config).port) == ("ann", 33)


def test_a_host_is_never_an_option(home: Path) -> None:
    """A jump host that begins with a dash, in whatever way it got into the file."""
    written(home, "Host a\n ProxyCommand none\n")
    with pytest.raises(InputError, match="cannot be a host name"):
        jump_settings(f"-oProxyCommand=touch {home}/ran", load_config())
    assert not (home / "ran").exists()


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("Include other", "Include"),
        ("Match localnetwork 203.0.113.0/24", "localnetwork"),
        ("Match user ann !tagged x", "tagged"),
        ("match host=a exec true", "exec"),
        ("IdentityFile ${HOME}/k", "${HOME}"),
    ],
)
def test_without_openssh_what_only_it_knows_is_refused(
    line: str, word: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Paramiko would pass over it, or take it for always true."""
    monkeypatch.setenv("PATH", str(home))
    written(home, f"Host x\n# {line}\n{line}\n  ProxyCommand touch ran\n")
    with pytest.raises(InputError) as caught:
        load_config()
    assert caught.value.location == f"{home}/.ssh/config:3"
    assert word in caught.value.reason
    written(home, "Match user ann !host b\n Port 7\n")
    assert settings_for(Host("a", "a"), load_config()).port == 22


def test_a_configuration_that_cannot_be_parsed_without_openssh_is_named(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text("Host a\nthis line has no value for\x00\nMatch\n")
    with pytest.raises(InputError) as caught:
        ParamikoConfig(path)
    assert caught.value.location == str(path)


def test_jump_hosts_of_a_jump_host(home: Path) -> None:
    """The nearest has its own settings, jump hosts too; those behind it are reached through it, as ssh does."""
    written(
        home,
        """Host inner
    ProxyJump bob@gate-%h:2200,ssh://middle
    HostName inner.example.org
Host gate-*
    ProxyJump outer
    User carl
Host middle
    ProxyJump nowhere
    Port 23
Host circle-1
    ProxyJump circle-2
Host circle-2
    ProxyJump circle-1
""",
    )
    config = load_config()
    route = route_to(settings("inner", config), config)
    me = getpass.getuser()
    assert [(hop.user, hop.hostname, hop.port) for hop in route] == [
        (me, "outer", 22),
        ("bob", "gate-inner.example.org", 2200),
        (me, "middle", 23),
    ]
    with pytest.raises(ValueError, match="circle"):
        route_to(settings("circle-1", config), config)


@pytest.mark.parametrize(
    ("jump", "where"),
    [
        ("gate:2200", ("gate", 2200)),
        ("fd00::5:22", ("fd00::5:22", 22)),
        ("[fd00::5]:2200", ("fd00::5", 2200)),
        ("[::1]", ("::1", 22)),
        ("ssh://gate", ("gate", 22)),
        ("ssh://ann%40corp@[fd00::5]:2200/", ("fd00::5", 2200)),
    ],
)
def test_where_a_jump_leads(jump: str, where: tuple[str, int]) -> None:
    result = jump_settings(jump, load_config())
    assert (result.hostname, result.port) == where


def test_external_launchers_get_the_host_key_name(home: Path) -> None:
    written(home, "Host a\n HostKeyAlias Cluster-A\n IdentitiesOnly yes\n StrictHostKeyChecking off\n")
    text = ssh_config(Hosts((Host("a", "10.0.0.7"), Host("b", "10.0.0.8"))), SshConnector())
    first, second = text.split("Host 10.0.0.8")
    for line in ("  HostKeyAlias cluster-a\n", "  IdentitiesOnly yes\n", "  StrictHostKeyChecking accept-new\n"):
        assert line in first
        assert line not in second
