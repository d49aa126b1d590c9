"""What stands in the place of a value on a page of help: what is meant (``SIZE``), not how it is kept (``<str>``)."""

from pathlib import Path
from typing import Any, get_args, get_origin

_MAX_SHOWN_LIMIT = 10_000_000  # a limit above that is the computer's, and says nothing to a person
_BY_OPTION = {
    "--size": "SIZE", "--bandwidth-bytes": "SIZE", "--rate": "RATE", "--host-bandwidth": "RATE",
    "--uplink-rate": "RATE", "--uplink-delay": "TIME", "--budget": "TIME", "--bandwidth-time": "TIME",
    "--timeout": "TIME", "--checkpoint-every": "TIME", "--preemption-grace": "TIME", "--heartbeat-timeout": "TIME",
    "--duration": "TIME", "--interval": "TIME", "--in": "TIME", "--time-limit": "SECONDS", "--set": "NAME=VALUE",
    "--env": "NAME=VALUE", "--name": "NAME", "--port": "PORT", "--listen": "ADDRESS",
}  # fmt: skip
_BY_KIND: dict[Any, str] = {Path: "FILE", int: "N", float: "X", str: "WORD"}


def attach(command: Any) -> None:
    """Give every option and argument of the command, and of all under it, a name for its value; a flag has none.

    Of releases of Typer that keep the kind of a value elsewhere, options that are not in the table stay as they are.
    """
    for parameter in command.params:
        if parameter.param_type_name == "argument":
            _name_kind(parameter)
        elif getattr(parameter, "is_flag", False):
            parameter.metavar = ""
        else:
            if parameter.metavar is None:
                parameter.metavar = _metavar(parameter)
            low, high = (getattr(parameter, end, None) for end in ("min", "max"))
            if high is not None and hasattr(parameter, "_get_number_range_help_str"):
                range_text = None if high > _MAX_SHOWN_LIMIT else f"{_plain(low or 0)}-{_plain(high)}"
                parameter._get_number_range_help_str = lambda range_text=range_text: range_text
    _strip_help(command)
    for child in getattr(command, "commands", {}).values():
        attach(child)


def _strip_help(command: Any) -> None:
    """``--help`` is a flag too, which is made when it is first asked for."""
    original = command.get_help_option

    def without_metavar(context: Any) -> Any:
        option = original(context)
        if option is not None:
            option.metavar = ""
        return option

    command.get_help_option = without_metavar


def _name_kind(argument: Any) -> None:
    """Beside an argument, whose metavar is its name, stands the kind of its value."""
    kind = _kind(argument)
    if kind is not None and hasattr(argument, "display_type_rich"):
        argument.display_type_rich = lambda ctx: kind if argument.nargs == 1 else f"{kind}..."


def _metavar(option: Any) -> str | None:
    return next((_BY_OPTION[name] for name in option.opts if name in _BY_OPTION), None) or _kind(option)


def _kind(parameter: Any) -> str | None:
    """The kind of a value, of a list that of its members; None of one that is not in the table."""
    annotation = getattr(getattr(parameter, "type_descriptor", None), "annotation", None)
    if get_origin(annotation) is list:
        (annotation,) = get_args(annotation)
    return _BY_KIND.get(annotation)


def _plain(number: float) -> str:
    """Without the ``.0`` of a whole number."""
    return str(int(number)) if number == int(number) else str(number)
