"""Defaults of options from a file: ``--config FILE``, else ``plink.toml``, else ``[tool.plink]`` in ``pyproject.toml``,
else ``plink/plink.toml`` in the user's own folder of settings.

A table a command, a key an option: ``[probe]``, ``count = 1000``, ``shared-links = false``; ``[elastic.run]`` for a
command of a group.

What is typed wins: a default that does not go with it is dropped, ``--no-NAME`` undoes a flag, and what a command
refuses is blamed on the file's line where it stands there. Messages name options as they are typed, so a message says
which options do not go together.
"""

import contextlib
import difflib
import logging
import os
import re
import stat
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from plink.cli.verbosity import PANEL
from plink.errors import InputError, PlinkError, UsageError
from plink.model.storage import decode_text
from plink.records.workspace import trusted_users
from plink.terminal import screen

_PLINK_TOML = Path("plink.toml")
_PYPROJECT_TOML = Path("pyproject.toml")
_TOOL = ("tool", "plink")  # plink's table in it
_MAX_FILE_BYTES = 1 << 20

_PART = re.compile(r"""[A-Za-z0-9_-]+|"[^"]*"|'[^']*'""")
_DOTTED = rf"((?:{_PART.pattern})(?:\s*\.\s*(?:{_PART.pattern}))*)"
_HEADER = re.compile(rf"\s*\[{{1,2}}\s*{_DOTTED}\s*\]")
_ASSIGNMENT = re.compile(rf"\s*{_DOTTED}\s*=")

_OPTION = re.compile(r"(?<![\w-])--?[a-z][a-z0-9-]*")
_log = logging.getLogger("plink.config")

Table = dict[str, Any]
# Not for a file that may have come with what was cloned: what runs and with which variables, where, and for how much
# money. An option of one command has the command's name before it.
_EXPLICIT_FILE_ONLY = {
    "python", "env", "launcher-args", "workdir", "sync", "image", "pipeline", "spot",
    "hosts", "order", "listen", "accept-new-host-keys",
    "per-hour", "elastic.run.budget", "spot.drive.budget",
}  # fmt: skip
_LINES: dict[tuple[str, str], str] = {}  # where the value of a parameter stands, by the command's words and its name


def defaults_from(path: Path | None, command_line: Callable[[], Any]) -> Table:
    """Return the file's defaults by command and parameter, as Click's ``default_map``; empty without a file.

    Values are judged by the command that takes them.

    :param path: None: the file of this folder, else the user's own, if there is one.
    :param command_line: makes the whole command line, whose names the file has to use.
    :raises InputError: for what is no TOML, no command, no option of the command, or no value, naming the line.
    :raises PlinkError: when the file cannot be read, or is one of this folder that others may write.
    """
    _LINES.clear()
    if path is not None:
        return _File(path, _TOOL if path.name == _PYPROJECT_TOML.name else ()).commands(command_line())
    for candidate, prefix in ((_PLINK_TOML, ()), (_PYPROJECT_TOML, _TOOL), (_own_file(), ())):
        if candidate is not None and os.path.isfile(candidate) and (not prefix or _mentions_plink(candidate)):
            file = _File(candidate, prefix, implicit=True)
            if file.table:
                return file.commands(command_line())
    return {}


def file_for(command: str) -> str | None:
    """Return the file that has defaults for ``plink command``, or None."""
    return next((line.rpartition(":")[0] for (name, _), line in _LINES.items() if name == command), None)


def _own_file() -> Path | None:
    """Return the user's own file (XDG Base Directory Specification: only absolute folders count)."""
    folders = (os.environ.get("XDG_CONFIG_HOME", ""), os.path.expanduser("~/.config"))
    return next((Path(folder, "plink", _PLINK_TOML) for folder in folders if os.path.isabs(folder)), None)


def _mentions_plink(path: Path) -> bool:
    """Return whether the file mentions plink at all: a project's other mistakes are none of plink's."""
    with contextlib.suppress(OSError):
        return b"plink" in path.read_bytes()[:_MAX_FILE_BYTES]
    return False


def line_of(command: str, parameter: str) -> str | None:
    """Return file and line that set this parameter of ``plink command``, or None."""
    return _LINES.get((command, parameter))


def _check_trusted(path: Path, status: os.stat_result) -> None:
    """Refuse a file that was not named and that other users can write."""
    if status.st_uid not in trusted_users():
        raise PlinkError(f"{path} belongs to another user; name it if you mean it: --config {path}")
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise PlinkError(f"others may write {path}; type: chmod go-w {path}")


class _File:
    """A file of defaults, parsed."""

    def __init__(self, path: Path, prefix: tuple[str, ...], implicit: bool = False) -> None:
        """:param implicit: it was not named; a relative path is one of this folder, which may be a clone."""
        self._path, self._is_of_this_folder = path, implicit and not path.is_absolute()
        try:
            with path.open("rb") as file:
                if implicit:
                    _check_trusted(path, os.fstat(file.fileno()))
                data = file.read(_MAX_FILE_BYTES + 1)
            if len(data) > _MAX_FILE_BYTES:
                raise InputError(str(path), "is too large a file for settings")
            self._text = decode_text(data)
            table: Any = tomllib.loads(self._text)
        except OSError as error:
            raise PlinkError(f"cannot read {path}: {os.strerror(error.errno or 0)}") from None
        except (ValueError, RecursionError) as error:  # also a number of thousands of digits
            raise InputError(str(path), f"is no TOML: {error}") from None
        self._prefix = prefix
        for depth, part in enumerate(prefix, 1):
            subtable = table.get(part, {})
            if not isinstance(subtable, dict):
                if depth < len(prefix):  # no table of plink's
                    subtable = {}
                else:
                    location = f"{path}:{self._line(prefix)}"
                    raise InputError(location, f"{part}: a table was expected, [{'.'.join(prefix)}]")
            table = subtable
        self.table: Table = table

    def commands(self, root: Any) -> Table:
        """Return the defaults of all commands in the file."""
        return self._below(root, self.table, ())

    def _below(self, command: Any, table: Table, names: tuple[str, ...]) -> Table:
        commands = getattr(command, "commands", {})
        options = {
            name.removeprefix("--"): option
            for option in command.params
            for name in option.opts + option.secondary_opts
            if name.startswith("--") and option.rich_help_panel != PANEL
        }
        defaults: Table = {}
        for key, value in table.items():
            location = f"{self._path}:{self._line((*self._prefix, *names, key))}"
            if key in commands and isinstance(value, dict):
                defaults[key] = self._below(commands[key], value, (*names, key))
            elif key in commands:
                raise InputError(location, f"{key}: a table was expected, [{key}]")
            elif self._is_of_this_folder and _EXPLICIT_FILE_ONLY & {key, ".".join((*names, key))}:
                message = (
                    f"{key} says what runs, where or for how much: type it, or name the file: --config {self._path}"
                )
                raise InputError(location, message)
            elif names and key in options:
                defaults[options[key].name] = self._value(options[key], value, location, key)
                _LINES[" ".join(("plink", *names)), options[key].name] = location
            else:
                raise InputError(location, self._unknown(command, names, key, [*commands, *(options if names else ())]))
        return defaults

    def _unknown(self, command: Any, names: tuple[str, ...], key: str, valid_keys: list[str]) -> str:
        message = f"plink {' '.join(names)} has no option --{key}" if names else f"there is no command {key}"
        close_matches = difflib.get_close_matches(key, valid_keys, n=1)
        return message + (f"; did you mean {close_matches[0]}?" if close_matches else "")

    def _value(self, option: Any, value: Any, location: str, key: str) -> Any:
        """Return the value as if it had been typed."""
        if getattr(option, "is_flag", False):
            if not isinstance(value, bool):
                raise InputError(location, f"{key}: true or false was expected")
            return value != (f"--{key}" in option.secondary_opts)
        repeatable = getattr(option, "multiple", False)
        for item in value if repeatable and isinstance(value, list) else [value]:
            if isinstance(item, bool) or not isinstance(item, str | int | float):
                raise InputError(location, f"{key}: {'a list of values' if repeatable else 'one value'} was expected")
        return (
            ([str(item) for item in value] if isinstance(value, list) else [str(value)]) if repeatable else str(value)
        )

    def _line(self, key: tuple[str, ...]) -> int:
        """Return the line of a key or table: its own, else that of its first entry, else that of its parent."""
        matches: list[Callable[[tuple[str, ...]], bool]] = [
            lambda path: path == key,
            lambda path: path[: len(key)] == key,
            lambda path: key[: len(path)] == path,
        ]
        positions = list(self._keys())
        return next((number for match in matches for number, path in positions if match(path)), 1)

    def _keys(self) -> Iterator[tuple[int, tuple[str, ...]]]:
        """Yield the line and the full key of each key and table that begins a line."""
        inside: tuple[str, ...] = ()
        for number, line in enumerate(self._text.splitlines(), 1):
            if header := _HEADER.match(line):
                inside = _parts(header[1])
                yield number, inside
            elif assignment := _ASSIGNMENT.match(line):
                yield number, (*inside, *_parts(assignment[1]))


def _parts(key: str) -> tuple[str, ...]:
    """Return the parts of a dotted key, without quotes."""
    return tuple(part.strip("\"'") for part in _PART.findall(key))


def attach(command: Any) -> None:
    """Give the command and its subcommands ``--no-NAME`` for flags, and the defaults of a file."""
    for child in getattr(command, "commands", {}).values():
        attach(child)
    taken = {name for option in command.params for name in (*option.opts, *option.secondary_opts)}
    for option in command.params:
        flag = getattr(option, "is_bool_flag", False) and not option.secondary_opts and option.expose_value
        negated = [f"--no-{name.removeprefix('--')}" for name in option.opts if name.startswith("--")]
        if flag and option.rich_help_panel != PANEL and not taken & set(negated):
            option.add_to_parser = _negatable(option, option.add_to_parser, negated)
    command.invoke = _with_defaults(command.invoke)


def _negatable(option: Any, add_to_parser: Callable[[Any, Any], None], names: list[str]) -> Callable[[Any, Any], None]:
    """Return a parser hook that adds the flag and its opposite, which help does not show."""

    def add(parser: Any, context: Any) -> None:
        add_to_parser(parser, context)
        parser.add_option(obj=option, opts=names, dest=option.name, action="store_const", const=False)

    return add


def _with_defaults(invoke: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Wrap a command so that typed options win over a file's."""

    def run(context: Any) -> Any:
        if (file := file_for(context.command_path)) is None:
            return invoke(context)
        screen.say(f"defaults from {file}")
        dropped: set[str] = set()
        while True:
            try:
                return invoke(context)
            except UsageError as error:
                if getattr(context, "invoked_subcommand", None) is not None:  # it was that one's
                    raise
                message = str(error)
                sources = {
                    name: context.get_parameter_source(name).name for name in _named_parameters(context, message)
                }
                defaults = [name for name, source in sources.items() if source == "DEFAULT_MAP"]
                if not defaults:
                    raise
                if "COMMANDLINE" not in sources.values() and not dropped & set(sources):
                    error.args = (f"{line_of(context.command_path, defaults[0])}: {message}",)
                    raise
                dropped.add(defaults[0])
                _drop(context, defaults[0])
                _log.debug("%s is dropped: %s", line_of(context.command_path, defaults[0]), message)

    return run


def _named_parameters(context: Any, message: str) -> list[str]:
    """Return the parameters that a message names, or whose value it quotes, in the message's order."""
    words = {match.group(): match.start() for match in reversed(list(_OPTION.finditer(message)))}
    positions: dict[str, int] = {}
    for parameter in context.command.params:
        names = [*parameter.opts, *parameter.secondary_opts]
        if parameter.param_type_name == "argument":
            match = re.search(rf"\b{re.escape(parameter.metavar or parameter.name.upper())}\b", message)
            offsets = [match.start()] if match else []
        else:
            offsets = [words[name] for name in names if name in words]
        value = (context.default_map or {}).get(parameter.name)
        if not offsets and isinstance(value, str) and value and repr(value) in message:
            offsets = [message.index(repr(value))]
        if offsets:
            positions[parameter.name] = min(offsets)
    return sorted(positions, key=lambda name: positions[name])


def _drop(context: Any, name: str) -> None:
    """Replace the file's value of a parameter by the command's own default."""
    del context.default_map[name], context.params[name]
    (parameter,) = (candidate for candidate in context.command.params if candidate.name == name)
    parameter.handle_parse_result(context, {}, [])
