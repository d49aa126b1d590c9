"""Show on a page of help what a value means (``SIZE``) or its choices, not its type (``<str>``)."""

from enum import StrEnum
from pathlib import Path
from typing import Any, get_args, get_origin

from plink.cli.completion import choices
from plink.model.request import Choices

_MAX_SHOWN_LIMIT = 10_000_000  # a limit above that is the computer's, and says nothing to a person
_MAX_METAVAR_CHARS = 22  # what Rich leaves whole in a terminal of 80 columns
_BY_OPTION = {
    "--size": "SIZE", "--bandwidth-bytes": "SIZE", "--rate": "RATE", "--host-rate": "RATE", "--host-bandwidth": "RATE",
    "--uplink-rate": "RATE", "--pod-rate": "RATE", "--uplink-delay": "TIME", "--budget": "TIME",
    "--bandwidth-time": "TIME", "--timeout": "TIME", "--checkpoint-every": "TIME", "--preemption-grace": "TIME",
    "--heartbeat-timeout": "TIME", "--duration": "TIME", "--interval": "TIME", "--in": "TIME",
    "--time-limit": "SECONDS", "--set": "NAME=VALUE", "--env": "NAME=VALUE", "--name": "NAME", "--port": "PORT",
    "--listen": "ADDRESS", "--algos": "NAME,...",
}  # fmt: skip
_BY_KIND: dict[Any, str] = {Path: "FILE", int: "N", float: "X", str: "TEXT"}


def attach(command: Any, words: tuple[str, ...] = ()) -> None:
    """Give every option and argument of the command, and of all under it, a name for its value; a flag has none.

    Of releases of Typer that keep the kind of a value elsewhere, options that are not in the table stay as they are.
    """
    for parameter in command.params:
        if parameter.param_type_name == "argument":
            _name_kind(parameter)
        elif getattr(parameter, "is_flag", False):
            parameter.metavar = ""
        else:
            if parameter.metavar is None or isinstance(parameter.metavar, Choices):
                _name_value(" ".join(words), parameter)
            low, high = (getattr(parameter, end, None) for end in ("min", "max"))
            if high is not None and hasattr(parameter, "_get_number_range_help_str"):
                range_text = None if high > _MAX_SHOWN_LIMIT else f"{_plain(low or 0)}-{_plain(high)}"
                parameter._get_number_range_help_str = lambda range_text=range_text: range_text
    _strip_help(command)
    for name, child in getattr(command, "commands", {}).items():
        attach(child, (*words, name))


def _strip_help(command: Any) -> None:
    """Give ``--help``, a flag that Typer makes late, no metavar."""
    original = command.get_help_option

    def without_metavar(context: Any) -> Any:
        option = original(context)
        if option is not None:
            option.metavar = ""
        return option

    command.get_help_option = without_metavar


def _name_kind(argument: Any) -> None:
    """Show the kind of an argument's value beside its name."""
    kind = _kind(argument)
    if kind is not None and hasattr(argument, "display_type_rich"):
        argument.display_type_rich = lambda ctx: kind if argument.nargs == 1 else f"{kind}..."


def _name_value(words: str, option: Any) -> None:
    """Set the metavar of an option: its choices, or the kind of its value. Choices that do not fit end its help."""
    annotation = getattr(getattr(option, "type_descriptor", None), "annotation", None)
    values: tuple[str, ...] = (
        tuple(annotation) if isinstance(annotation, type) and issubclass(annotation, StrEnum) else ()
    )
    values = choices(words, option) or values
    named = next((_BY_OPTION[name] for name in option.opts if name in _BY_OPTION), None)
    if named is not None or not values:
        option.metavar = named or _kind(option)
    elif "2lha" in values:  # algorithms, too many to list
        option.metavar = "[ring|2lha|...]"
    else:
        shown = len(values)
        while len(_brackets(values, shown)) > _MAX_METAVAR_CHARS:
            shown -= 1
        option.metavar = _brackets(values, shown)
        if shown < len(values):
            option.help = f"{option.help} Choices: {', '.join(values)}."


def _brackets(values: tuple[str, ...], shown: int) -> str:
    return f"[{'|'.join((*values[:shown], *(['...'] if shown < len(values) else [])))}]"


def _kind(parameter: Any) -> str | None:
    """Return the kind of a value, for a list that of its items; None if unknown."""
    annotation = getattr(getattr(parameter, "type_descriptor", None), "annotation", None)
    if get_origin(annotation) is list:
        (annotation,) = get_args(annotation)
    return _BY_KIND.get(annotation)


def _plain(number: float) -> str:
    """Format a number, a whole one without ``.0``."""
    return str(int(number)) if number == int(number) else str(number)
