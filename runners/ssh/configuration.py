"""The user's SSH configuration: what ``ssh -G`` says of a host; Paramiko's reading where OpenSSH is not installed."""

import contextlib
import os
import pwd
import re
import shlex
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Protocol

import paramiko

from plink.errors import InputError
from plink.transport.command_output import run_to_end

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
