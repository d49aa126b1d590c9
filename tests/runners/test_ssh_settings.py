"""Where and how to connect: the hosts file first, then ``~/.ssh/config`` read as OpenSSH reads it, then defaults."""

import getpass
from pathlib import Path

import paramiko
import pytest

from plink.errors import InputError
from plink.model.hosts import Host, Hosts
from runners.launchers.ssh_config import ssh_config
from runners.ssh.connector import SshConnector
from runners.ssh.settings import Identity, SshSettings, jump_settings, load_config, settings_for

CONFIG = """
Host node-*
    User ann
    Port 2222
    IdentityFile ~/.ssh/cluster
    ProxyJump bob@gate:2200, inner

Host node-7
    HostName 10.0.0.7
    ProxyJump none

Host gate
    HostName gate.example.org
    User nobody
    UserKnownHostsFile /a/known /b/known

Host tunnel
    ProxyCommand nc -X connect %h %p
    IdentitiesOnly yes
"""


@pytest.fixture
def config(tmp_path: Path) -> paramiko.SSHConfig:
    """The configuration above, read from a file."""
    path = tmp_path / "config"
    path.write_text(CONFIG)
    return load_config(path)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of its own, so that the user's plays no part."""
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def settings(name: str, config: paramiko.SSHConfig) -> SshSettings:
    """For a host that stands alone on its line."""
    return settings_for(Host(name, name), config, None)


def test_the_configuration_says_who_and_where(home: Path, config: paramiko.SSHConfig) -> None:
    result = settings("node-1", config)
    assert (result.hostname, result.port, result.user) == ("node-1", 2222, "ann")
    assert result.keys == (str(home / ".ssh" / "cluster"),)
    assert result.proxy_jump == ("bob@gate:2200", "inner")


def test_none_is_no_jump(config: paramiko.SSHConfig) -> None:
    """OpenSSH takes the first value it meets, so here the pattern above wins, and only what it left open is filled."""
    result = settings("node-7", config)
    assert result.hostname == "10.0.0.7"
    assert result.proxy_jump == ("bob@gate:2200", "inner")
    assert (
        settings_for(Host("x", "x"), paramiko.SSHConfig.from_text("Host x\n ProxyJump none\n"), None).proxy_jump == ()
    )


def test_the_hosts_file_wins(home: Path, config: paramiko.SSHConfig) -> None:
    (home / "mine").touch()
    host = Host("node-1", "192.0.2.9", user="cem", port=22022, key="~/mine")
    result = settings_for(host, config, None)
    assert (result.hostname, result.port, result.user) == ("192.0.2.9", 22022, "cem")
    assert result.keys == (str(home / "mine"),)
    assert result.proxy_jump == ("bob@gate:2200", "inner")  # matched by name, as ssh would


def test_a_proxy_command_and_only_these_keys(config: paramiko.SSHConfig) -> None:
    result = settings("tunnel", config)
    assert result.proxy_command == "nc -X connect tunnel 22"
    assert result.identities_only


def test_a_proxy_command_leads_to_where_the_hosts_file_says(home: Path) -> None:
    (home / "config").write_text(
        "Host a\n HostName b\n Port 2222\n User ann\n ProxyCommand ~/go %h:%p %r %n %%h %x a~b\n"
    )
    config = load_config(home / "config")
    assert settings("a", config).proxy_command == f"{home}/go b:2222 ann a %h %x a~b"
    elsewhere = Host("a", "192.0.2.9", user="cem", port=22022)
    assert settings_for(elsewhere, config, None).proxy_command == f"{home}/go 192.0.2.9:22022 cem a %h %x a~b"
    assert jump_settings("bob@a:23", config).proxy_command == f"{home}/go b:23 bob a %h %x a~b"


@pytest.mark.parametrize(
    ("jump", "hostname", "port", "user"),
    [
        ("bob@gate:2200", "gate.example.org", 2200, "bob"),
        ("ann@corp@other", "other", 22, "ann@corp"),
    ],
)
def test_a_jump_is_a_host_of_its_own(
    jump: str, hostname: str, port: int, user: str | None, config: paramiko.SSHConfig
) -> None:
    result = jump_settings(jump, config)
    assert (result.hostname, result.port, result.user) == (hostname, port, user or getpass.getuser())


def test_a_lab_brings_its_own_identity(config: paramiko.SSHConfig) -> None:
    """Nothing of the user's configuration, keys or agent is used for a lab's host."""
    identity = Identity(key=Path("/lab/key"), known_hosts=Path("/lab/known_hosts"))
    result = settings_for(Host("node-1", "198.18.1.1", user="root"), config, identity)
    assert result == SshSettings(
        "198.18.1.1", 22, "root", ("/lab/key",), (Path("/lab/known_hosts"),), identities_only=True
    )


def test_a_configuration_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text("Host a\nthis line has no value for\x00\nMatch\n")
    with pytest.raises(InputError) as caught:
        load_config(path)
    assert caught.value.location == str(path)


@pytest.mark.parametrize(
    ("jump", "where"),
    [
        ("gate:2200", ("gate", 2200)),
        ("fd00::5:22", ("fd00::5:22", 22)),
        ("[fd00::5]:2200", ("fd00::5", 2200)),
        ("[::1]", ("::1", 22)),
    ],
)
def test_where_a_jump_leads(jump: str, where: tuple[str, int]) -> None:
    result = jump_settings(jump, paramiko.SSHConfig())
    assert (result.hostname, result.port) == where


def test_external_launchers_get_the_host_key_name(home: Path) -> None:
    (home / ".ssh").mkdir()
    (home / ".ssh" / "config").write_text("Host a\n HostKeyAlias Cluster-A\n IdentitiesOnly yes\n")
    text = ssh_config(Hosts((Host("a", "10.0.0.7"), Host("b", "10.0.0.8"))), SshConnector())
    first, second = text.split("Host 10.0.0.8")
    for line in ("  HostKeyAlias Cluster-A\n", "  IdentitiesOnly yes\n"):
        assert line in first
        assert line not in second
