"""Combine options from a file (:mod:`plink.cli.config`) with typed ones.

What is typed wins: a default that does not go with it is dropped, ``--no-NAME`` undoes a flag, and what a command
refuses is blamed on the file's line where it stands there. Messages name options as they are typed, so a message says
which options do not go together.
"""

import logging
import re
from collections.abc import Callable
from typing import Any

from plink.cli.config import file_for, line_of
from plink.cli.log_handler import PANEL
from plink.errors import UsageError
from plink.terminal import screen

_OPTION = re.compile(r"(?<![\w-])--?[a-z][a-z0-9-]*")
_log = logging.getLogger("plink.config")


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
