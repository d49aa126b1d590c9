"""SSH settings of one host: from its line in the hosts file, then the user's SSH configuration, then SSH's defaults."""

import contextlib
import getpass
import os
import pwd
import re
import shlex
import shutil
import socket
import subprocess
import tempfile
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import unquote

import paramiko

from plink.errors import InputError
from plink.model.hosts import Host
from plink.transport.command_output import run_to_end

# The user's SSH configuration: what ``ssh -G`` says of a host; Paramiko's reading where OpenSSH is not installed.


_LIMIT_S = 20.0  # a Match exec may look something up, and names may be resolved
_FILES = "Include ~/.ssh/config\nInclude /etc/ssh/ssh_config\n"
# What ssh says besides what is wrong.
_ASIDE = re.compile(r"Pseudo-terminal|Warning:|.*: terminating, \d+ bad configuration options")
# Lists on one line, without the quotes that a name with blanks had: each name begins as a path, or is none.
_LISTS = ("userknownhostsfile", "globalknownhostsfile", "revokedhostkeys")
_NEXT_PATH = re.compile(r" (?=[/~%$]|none\b)")
_MATCH_WORDS = {"all": 1, "canonical": 1, "final": 1, "host": 2, "originalhost": 2, "user": 2, "localuser": 2}

# Values by keyword in small letters (ssh_config(5)); several of those that may be given several times.
Entry = Mapping[str, Sequence[str]]


DEFAULT_PORT = 22
CA_SIGNATURES = ("ssh-ed25519", *(f"ecdsa-sha2-nistp{n}" for n in (256, 384, 521)), "rsa-sha2-512", "rsa-sha2-256")
# [::1]:22, [::1], host:22, host; an IPv6 address without brackets has no port
_JUMP = re.compile(r"(?:\[([^]]+)\]|([^:]+))(?::(\d+))?")
_FAMILIES = {"inet": socket.AF_INET, "inet6": socket.AF_INET6}


class Configuration(Protocol):
    """Settings by host."""

    def lookup(self, name: str, user: str | None = None, port: int | None = None, direct: bool = False) -> Entry:
        """Return what counts for a host, asked for under this name, user and port.

        :param direct: no jump host of its own. :raises ValueError: when there is no answer; one line.
        """


class OpenSsh:
    """``ssh -G``: each host is asked for once, by whoever comes first.

    :param path: of the only file; else the user's and the system's.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        # ssh itself looks for ~/.ssh/config in the account's home, whatever HOME is.
        self.account_home = Path(pwd.getpwuid(os.getuid()).pw_dir)
        self._guard = threading.Lock()
        self._entries: dict[tuple[str, ...], Future[Entry]] = {}

    def lookup(self, name: str, user: str | None = None, port: int | None = None, direct: bool = False) -> Entry:
        """See :class:`Configuration`."""
        options = [*(("-l", user) if user else ()), *(("-p", str(port)) if port else ())]
        options += ["-o", "ProxyJump=none"] if direct else []
        request = (*options, "--", name)
        with self._guard:
            entry = self._entries.get(request)
            if first := entry is None:
                entry = self._entries[request] = Future()
        if first:
            try:
                entry.set_result(self._ask(request))
            except BaseException as error:
                with self._guard:
                    del self._entries[request]  # who comes later asks again: the user may have mended it
                entry.set_exception(error)
        return entry.result()

    def _ask(self, request: tuple[str, ...]) -> Entry:
        with contextlib.ExitStack() as ends:
            path = self._path
            if path is None and Path.home() != self.account_home:
                both = ends.enter_context(tempfile.NamedTemporaryFile("w", prefix="plink-ssh-"))
                both.write(_FILES)  # names with ~ are looked for in HOME; ssh may read it twice (Match final)
                both.flush()
                path = Path(both.name)
            # -N: a host for which ssh puts itself into the background (ForkAfterAuthentication) needs no command then.
            argv = ["ssh", "-G", "-N", *(("-F", str(path)) if path else ()), *request]
            try:
                done = run_to_end(argv, _LIMIT_S)
            except subprocess.TimeoutExpired:
                command = shlex.join(["ssh", "-G", *request])
                raise ValueError(f"`{command}` takes over {_LIMIT_S:.0f} s; try it by hand: a Match exec?") from None
            except subprocess.SubprocessError as error:
                raise ValueError(f"ssh -G: {error}") from None
        if done.returncode != 0:
            lines = [line.strip() for line in done.stderr.split("\n") if line.strip() and not _ASIDE.match(line)]
            raise ValueError("; ".join(lines) or f"`ssh -G` ended with {done.returncode}")
        return self._entry(done.stdout)

    def _entry(self, output: str) -> Entry:
        entry: dict[str, list[str]] = {}
        for line in output.split("\n"):
            keyword, _, value = line.partition(" ")
            keyword = keyword.lower()
            entry.setdefault(keyword, []).extend(_NEXT_PATH.split(value) if keyword in _LISTS else [value])
        for keyword in (*_LISTS, "identityagent"):
            # These names come with the account's home in place of ~.
            entry[keyword] = [self._at_home(value) for value in entry.get(keyword, ())]
        return entry

    def _at_home(self, name: str) -> str:
        inside = name.removeprefix(f"{self.account_home}/")
        return name if inside == name else str(Path.home() / inside)


class ParamikoConfig(paramiko.SSHConfig):
    """The user's file as Paramiko reads it. What that passes over or takes for always true is refused.

    :raises InputError: with the file and line.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        # Tokens are replaced where the hosts file has had its say.
        self.TOKENS_BY_CONFIG_KEY = {"hostname": ["%h"]}
        try:
            text = path.read_text()
        except FileNotFoundError:
            text = ""
        except (OSError, ValueError) as error:
            raise InputError(str(path), str(error)) from None
        for number, line in enumerate(text.split("\n"), 1):
            if unknown := _unknown(line):
                raise InputError(f"{path}:{number}", f"{unknown} counts only where `ssh` is installed; install OpenSSH")
        try:
            self.parse(text.split("\n"))
        except (ValueError, paramiko.SSHException) as error:
            raise InputError(str(path), str(error)) from None

    def lookup(  # type: ignore[override]  # values as lists
        self, name: str, user: str | None = None, port: int | None = None, direct: bool = False
    ) -> Entry:
        """See :class:`Configuration`."""
        try:
            entry: dict[str, Any] = dict(super().lookup(name))
        except paramiko.SSHException as error:
            raise ValueError(str(error)) from None
        except (KeyError, OSError):  # of getpass.getuser
            raise ValueError("your account has no name on this machine; set USER to one") from None
        if direct:
            entry.pop("proxyjump", None)
        return {
            keyword: value if isinstance(value, list) else shlex.split(value) if keyword in _LISTS else [value]
            for keyword, value in entry.items()
            if value is not None
        }


def _unknown(line: str) -> str | None:
    """What of a line Paramiko does not honour."""
    keyword, *words = re.split(r"[\s=]+", line.strip()) if line.strip() else [""]
    if keyword.startswith("#"):
        return None
    if keyword.lower() == "include":
        return "Include"
    while keyword.lower() == "match" and words:
        criterion = words[0].lower().removeprefix("!")
        if criterion not in _MATCH_WORDS:
            return f"Match {criterion}"
        words = words[_MATCH_WORDS[criterion] :]
    variable = re.search(r"\$\{\w*\}", line)
    return variable[0] if variable else None


def load_config(path: Path | None = None) -> Configuration:
    """The user's SSH configuration.

    :param path: of the only file; else the user's own, and the system's where OpenSSH is installed.
    :raises InputError: where OpenSSH is not installed, and the file has what only that understands.
    """
    try:
        if shutil.which("ssh"):
            return OpenSsh(path)
    except KeyError:  # an account without a name, for which ssh does nothing
        pass
    return ParamikoConfig(path or Path("~/.ssh/config").expanduser())


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
