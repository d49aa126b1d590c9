"""SSH settings of one host: from its line in the hosts file, then the user's SSH configuration, then SSH's defaults."""

import getpass
import os
import re
import socket
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from plink.model.hosts import Host
from runners.ssh.configuration import Configuration, Entry

DEFAULT_PORT = 22
CA_SIGNATURES = ("ssh-ed25519", *(f"ecdsa-sha2-nistp{n}" for n in (256, 384, 521)), "rsa-sha2-512", "rsa-sha2-256")
# [::1]:22, [::1], host:22, host; an IPv6 address without brackets has no port
_JUMP = re.compile(r"(?:\[([^]]+)\]|([^:]+))(?::(\d+))?")
_FAMILIES = {"inet": socket.AF_INET, "inet6": socket.AF_INET6}


@dataclass(frozen=True)
class SshSettings:
    """One hop: what OpenSSH calls HostName, Port, User, IdentityFile, IdentitiesOnly, HostKeyAlias, ProxyJump,
    ProxyCommand, CertificateFile, IdentityAgent, ConnectTimeout, AddressFamily and BindAddress.

    ``accept_new_keys``: StrictHostKeyChecking is ``accept-new`` or ``no``. ``known_hosts``: the user's own files; new
    keys are recorded in the first, hashed with ``hash_names``.
    """

    hostname: str
    port: int
    user: str
    keys: tuple[str, ...] = ()
    known_hosts: tuple[Path, ...] = ()
    host_key_alias: str | None = None
    proxy_jump: tuple[str, ...] = ()
    proxy_command: str | None = None
    identities_only: bool = False
    global_known_hosts: tuple[Path, ...] = ()
    revoked_host_keys: tuple[Path, ...] = ()
    accept_new_keys: bool = False
    hash_names: bool = False
    ca_signatures: tuple[str, ...] = CA_SIGNATURES
    certificates: tuple[str, ...] = ()
    identity_agent: str | None = None
    connect_timeout_s: float | None = None
    family: int = socket.AF_UNSPEC
    bind_address: str | None = None


@dataclass(frozen=True)
class Identity:
    """Key and known hosts that replace the user's own: an emulated lab brings both."""

    key: Path
    known_hosts: Path


def settings_for(
    host: Host, config: Configuration, identity: Identity | None = None, direct: bool = False
) -> SshSettings:
    """Return the settings of one host; with an ``identity`` the user's configuration is not used.

    :param direct: no jump host of its own.
    :raises ValueError: when the configuration cannot be read, or says what plink cannot do; one line.
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
    entry = config.lookup(host.name, host.user, host.port, direct)
    hostname = host.address if host.address != host.name else _first(entry, "hostname", host.name)
    port = _first(entry, "port", str(DEFAULT_PORT))
    if not port.isdigit():
        raise ValueError(f"Port {port} in ~/.ssh/config is not a number")
    number, user = host.port or int(port), host.user or _first(entry, "user") or getpass.getuser()
    alias = _optional(entry, "hostkeyalias")
    tokens = {"%": "%", "h": hostname, "n": host.name, "p": str(number), "r": user}
    here = socket.gethostname()
    local = {"d": str(Path.home()), "i": str(os.getuid()), "k": alias or host.name, "l": here, "L": here.split(".")[0]}
    local |= {"u": getpass.getuser()} | tokens

    def paths(keyword: str, default: str = "none") -> tuple[Path, ...]:
        names = [name for name in entry.get(keyword, (default,)) if name and name.lower() != "none"]
        return tuple(_path(name, local) for name in names)

    keys = tuple(str(_path(key, local)) for key in entry.get("identityfile", ()))
    if {"~/.ssh/id_rsa", "~/.ssh/id_ecdsa", "~/.ssh/id_ed25519"} <= set(entry.get("identityfile", ())):
        keys = ()  # nobody named any
    command, jumps = _optional(entry, "proxycommand"), _optional(entry, "proxyjump")
    if command and _first(entry, "proxyusefdpass") == "yes":
        raise ValueError("ProxyUseFdpass: plink takes no connection from a ProxyCommand; use one that passes data on")
    agent = _first(entry, "identityagent", "SSH_AUTH_SOCK")
    timeout = _first(entry, "connecttimeout", "none")
    return SshSettings(
        hostname=hostname,
        port=number,
        user=user,
        keys=(str(_path(host.key)),) if host.key else keys,
        known_hosts=paths("userknownhostsfile", "~/.ssh/known_hosts"),
        host_key_alias=alias,
        proxy_jump=tuple(_filled(jump.strip(), tokens) for jump in jumps.split(",")) if jumps else (),
        proxy_command=_filled(command, tokens) if command and not jumps else None,
        identities_only=_first(entry, "identitiesonly") == "yes",
        global_known_hosts=paths("globalknownhostsfile", "/etc/ssh/ssh_known_hosts"),
        revoked_host_keys=paths("revokedhostkeys"),
        accept_new_keys=_first(entry, "stricthostkeychecking").lower() in ("accept-new", "no", "off", "false"),
        hash_names=_first(entry, "hashknownhosts") == "yes",
        ca_signatures=tuple(_first(entry, "casignaturealgorithms", ",".join(CA_SIGNATURES)).split(",")),
        certificates=tuple(map(str, paths("certificatefile"))),
        # A variable with the socket's name stands for it.
        identity_agent=None if agent == "SSH_AUTH_SOCK" else str(_path(os.path.expandvars(agent), local)),
        connect_timeout_s=float(timeout) if timeout.isdigit() and int(timeout) else None,
        family=_FAMILIES.get(_first(entry, "addressfamily"), socket.AF_UNSPEC),
        bind_address=_optional(entry, "bindaddress"),
    )


def route_to(settings: SshSettings, config: Configuration, behind: tuple[str, ...] = ()) -> tuple[SshSettings, ...]:
    """Return the jump hosts of a host, the nearest first. Only that may have jump hosts of its own, as with ``ssh``.

    :raises ValueError: as :func:`settings_for`, and when they lead in a circle.
    """
    if not settings.proxy_jump:
        return ()
    nearest, *others = settings.proxy_jump
    if nearest in behind:
        raise ValueError(f"ProxyJump leads in a circle: {' behind '.join((*behind, nearest))}")
    first = jump_settings(nearest, config)
    further = (jump_settings(jump, config, direct=True) for jump in others)
    return (*route_to(first, config, (*behind, nearest)), first, *further)


def jump_settings(jump: str, config: Configuration, direct: bool = False) -> SshSettings:
    """Settings for one ``[user@]host[:port]`` or ``ssh://[user@]host[:port]`` of a ProxyJump."""
    place = jump.removeprefix("ssh://")
    user, _, rest = place.rstrip("/").rpartition("@")
    user = unquote(user) if place != jump else user
    match = _JUMP.fullmatch(rest)
    name, port = (match.group(1) or match.group(2), match.group(3) or "") if match else (rest, "")
    host = Host(name, name, user=user or None, port=int(port) if port else None)
    return settings_for(host, config, direct=direct)


def _first(entry: Entry, keyword: str, default: str = "") -> str:
    values = entry.get(keyword)
    return values[0] if values else default


def _optional(entry: Entry, keyword: str) -> str | None:
    value = _first(entry, keyword, "none")
    return None if value.lower() == "none" else value


def _filled(text: str, tokens: dict[str, str]) -> str:
    """Text with its tokens replaced (ssh_config(5), "TOKENS"); others stay."""
    return re.sub("%(.)", lambda match: tokens.get(match[1], match[0]), text)


def _path(name: str, tokens: dict[str, str] | None = None) -> Path:
    """A file that the configuration names, with ``${VARIABLES}`` where it may have tokens.

    :raises ValueError: when there is nobody of that name.
    """
    if tokens is not None:
        name = re.sub(r"\$\{(\w+)\}", lambda match: os.environ.get(match[1], match[0]), _filled(name, tokens))
    try:
        return Path(name).expanduser()
    except RuntimeError:
        raise ValueError(f"{name} in ~/.ssh/config names a user that does not exist") from None
