"""SSH settings of one host: from its line in the hosts file, then ``~/.ssh/config``, then SSH's defaults."""

import getpass
import re
from dataclasses import dataclass
from pathlib import Path

import paramiko

from plink.errors import InputError
from plink.model.hosts import Host

DEFAULT_PORT = 22
# [::1]:22, [::1], host:22, host; an IPv6 address without brackets has no port
_JUMP = re.compile(r"(?:\[([^]]+)\]|([^:]+))(?::(\d+))?")


class _Config(paramiko.SSHConfig):
    """Leaves ProxyCommand as it stands: the hosts file has a say in what its tokens mean."""

    def __init__(self) -> None:
        super().__init__()
        self.TOKENS_BY_CONFIG_KEY = {**self.TOKENS_BY_CONFIG_KEY, "proxycommand": []}


@dataclass(frozen=True)
class SshSettings:
    """One hop: what OpenSSH calls HostName, Port, User, IdentityFile, IdentitiesOnly, HostKeyAlias, ProxyJump and
    ProxyCommand."""

    hostname: str
    port: int
    user: str
    keys: tuple[str, ...] = ()
    known_hosts: tuple[Path, ...] = ()
    host_key_alias: str | None = None
    proxy_jump: tuple[str, ...] = ()
    proxy_command: str | None = None
    identities_only: bool = False


@dataclass(frozen=True)
class Identity:
    """Key and known hosts that replace the user's own: an emulated lab brings both."""

    key: Path
    known_hosts: Path


def load_config(path: Path | None = None) -> paramiko.SSHConfig:
    """The user's SSH configuration, empty when there is none.

    :raises InputError: when it cannot be parsed.
    """
    path = path or Path("~/.ssh/config").expanduser()
    try:
        return _Config.from_path(str(path))
    except FileNotFoundError:
        return _Config()
    except (OSError, ValueError, paramiko.SSHException) as error:
        raise InputError(str(path), str(error)) from None


def settings_for(host: Host, config: paramiko.SSHConfig, identity: Identity | None) -> SshSettings:
    """Return the settings of one host; with an ``identity`` the user's configuration is not used.

    :raises ValueError: when the configuration's port is no number.
    """
    if identity is not None:
        return SshSettings(
            hostname=host.address,
            port=host.port or DEFAULT_PORT,
            user=host.user or getpass.getuser(),
            keys=(str(identity.key),),
            known_hosts=(identity.known_hosts,),
            identities_only=True,
        )
    # ssh matches "Host" patterns against what was typed: the name; an address given beside it is where to connect.
    entry = config.lookup(host.name)
    hostname = host.address if host.address != host.name else str(entry.get("hostname", host.name))
    jumps = str(entry.get("proxyjump", "none"))
    command = str(entry.get("proxycommand", "none"))
    keys = (host.key,) if host.key else tuple(entry.get("identityfile", ()))
    port = str(entry.get("port", DEFAULT_PORT))
    if not port.isdigit():
        raise ValueError(f"Port {port} in ~/.ssh/config is not a number")
    number, user = host.port or int(port), host.user or str(entry.get("user", getpass.getuser()))
    return SshSettings(
        hostname=hostname,
        port=number,
        user=user,
        keys=tuple(str(_home(key)) for key in keys),
        known_hosts=_known_hosts(str(entry.get("userknownhostsfile", "~/.ssh/known_hosts"))),
        host_key_alias=entry.get("hostkeyalias"),
        proxy_jump=() if jumps.lower() == "none" else tuple(jump.strip() for jump in jumps.split(",")),
        proxy_command=None
        if command.lower() == "none"
        else _expand_tokens(command, {"%": "%", "h": hostname, "n": host.name, "p": str(number), "r": user}),
        identities_only=str(entry.get("identitiesonly", "no")).lower() == "yes",
    )


def _expand_tokens(command: str, tokens: dict[str, str]) -> str:
    """A ProxyCommand (ssh_config(5), "TOKENS") with its tokens replaced, and ``~`` where a word begins with it."""
    filled = re.sub("%([%hnpr])", lambda match: tokens[match.group(1)], command)
    return re.sub(r"(?<!\S)~(?=/)", lambda match: str(Path.home()), filled)


def jump_settings(jump: str, config: paramiko.SSHConfig) -> SshSettings:
    """Settings for one ``[user@]host[:port]`` of a ProxyJump."""
    user, _, rest = jump.rpartition("@")
    match = _JUMP.fullmatch(rest)
    name, port = (match.group(1) or match.group(2), match.group(3) or "") if match else (rest, "")
    return settings_for(Host(name, name, user=user or None, port=int(port) if port else None), config, None)


def _known_hosts(value: str) -> tuple[Path, ...]:
    return (*(_home(name) for name in value.split()), Path("/etc/ssh/ssh_known_hosts"))


def _home(name: str) -> Path:
    """A file that the configuration names.

    :raises ValueError: when there is nobody of that name.
    """
    try:
        return Path(name).expanduser()
    except RuntimeError:
        raise ValueError(f"{name} in ~/.ssh/config names a user that does not exist") from None
