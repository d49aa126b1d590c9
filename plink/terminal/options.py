"""Options of the command line, made from requests, and those that many commands share."""

import inspect
from collections.abc import Callable
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Annotated, Any, get_args

import typer
from typer.models import ArgumentInfo

from plink.errors import UsageError
from plink.model.request import FeatureRequest, Field, fields_of, parse_option

NetworkFile = Annotated[
    Path | None, typer.Argument(metavar="NETWORK", help="What `plink probe` wrote; default .plink/network.json.")
]
JobHosts = Annotated[
    Path | None,
    typer.Option(
        "--hosts",
        help="The job's hosts, some or all of the network's, as given, with slots.",
        rich_help_panel="Hosts",
    ),
]
OutputFile = Annotated[Path | None, typer.Option("-o", "--output", help="Where to write it, - for standard output.")]
Json = Annotated[bool, typer.Option("--json", help="Print as JSON.")]


def takes(*kinds: type[FeatureRequest], only: str = "") -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator of a command whose first parameters are requests of these kinds: its options are their fields,
    between the command's own arguments and its own options.

    :param only: names of the fields of the first kind that are options of this command; empty: all of them.
    """
    names = only.split() or [field.name for field in fields_of(kinds[0])]
    chosen = [
        (kind, [field for field in fields_of(kind) if kind is not kinds[0] or field.name in names]) for kind in kinds
    ]

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        options = [_parameter(kind, field) for kind, declared in chosen for field in declared]
        own = [
            parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
            for parameter in list(inspect.signature(command, eval_str=True).parameters.values())[len(kinds) :]
        ]
        arguments = [parameter for parameter in own if isinstance(_typer_info(parameter), ArgumentInfo)]
        parameters = [*arguments, *options, *(parameter for parameter in own if parameter not in arguments)]

        def requests_from(typed: dict[str, Any]) -> list[FeatureRequest]:
            return [
                kind(**{field.name: _parsed(field, typed.pop(field.name)) for field in declared})
                for kind, declared in chosen
            ]

        def run(**typed: Any) -> None:
            command(*requests_from(typed), **typed)

        run.requests_from = requests_from  # type: ignore[attr-defined]
        run.__name__, run.__doc__, run.__module__ = command.__name__, command.__doc__, command.__module__
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return run

    return decorate


def _typer_info(parameter: inspect.Parameter) -> Any:
    """Return what Typer is told of a parameter."""
    return next(iter(get_args(parameter.annotation)[1:]), None)


def _parameter(kind: type[FeatureRequest], field: Field) -> inspect.Parameter:
    """Return the parameter that Typer makes an option of."""
    (declared,) = (entry for entry in fields(kind) if entry.name == field.name)
    default = declared.default if declared.default_factory is MISSING else None
    if default is MISSING:
        default = inspect.Parameter.empty
    option, text = field.option, field.text
    is_flag = field.type in (bool, bool | None)
    typed_as: Any = field.type if text is None else list[str] | None if text.repeated else str | None
    if text is not None:
        default = None if text.repeated or default is None else text.show(default)
    annotation = Annotated[
        typed_as,
        typer.Option(
            *field.names,
            help=option.help,
            metavar=None if is_flag else field.metavar,
            rich_help_panel=option.panel,
        ),
    ]
    return inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _parsed(field: Field, value: Any) -> Any:
    """Return the value that was typed.

    :raises UsageError: for an empty one, as of a variable that a shell does not have.
    """
    if value == "" and field.type == (str | None):
        raise UsageError(f"{field.names[0]}: is empty; omit it for the default")
    if field.text is None:
        return value
    if value is None and not field.text.repeated:
        return None
    return parse_option(field.names[0], field.text.parse, value or [] if field.text.repeated else value)
