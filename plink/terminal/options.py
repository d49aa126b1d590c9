"""Options of the command line, made from requests, and those that many commands share."""

import inspect
from collections.abc import Callable
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Annotated, Any

import typer

from plink.model.request import FeatureRequest, Field, fields_of

NetworkFile = Annotated[
    Path | None, typer.Argument(metavar="NETWORK", help="What `plink probe` wrote; default .plink/network.json.")
]
OutputFile = Annotated[Path | None, typer.Option("-o", "--output", help="Where to write it, - for standard output.")]
Json = Annotated[bool, typer.Option("--json", help="Print as JSON.")]


def takes(kind: type[FeatureRequest]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator of a command whose first parameter is a request of this kind: its options are the request's
    fields, between the command's own arguments and its own options."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        options = [_parameter(kind, field) for field in fields_of(kind)]
        own = [
            parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
            for parameter in list(inspect.signature(command).parameters.values())[1:]
        ]
        arguments = [parameter for parameter in own if parameter.annotation is NetworkFile]
        parameters = [*arguments, *options, *(parameter for parameter in own if parameter not in arguments)]

        def request_from(typed: dict[str, Any]) -> FeatureRequest:
            return kind(**{field.name: _parsed(field, typed.pop(field.name)) for field in fields_of(kind)})

        def run(**typed: Any) -> None:
            command(request_from(typed), **typed)

        run.request_from = request_from  # type: ignore[attr-defined]
        run.__name__, run.__doc__, run.__module__ = command.__name__, command.__doc__, command.__module__
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return run

    return decorate


def _parameter(kind: type[FeatureRequest], field: Field) -> inspect.Parameter:
    """Return the parameter that Typer makes an option of."""
    (declared,) = (entry for entry in fields(kind) if entry.name == field.name)
    default = declared.default if declared.default_factory is MISSING else None
    option, text = field.option, field.text
    is_flag = field.type in (bool, bool | None)
    typed_as: Any = field.type if text is None else list[str] | None if text.repeated else str
    typed_as = str | None if typed_as is str and default is None else typed_as
    if text is not None and not text.repeated and default is not None:
        default = text.show(default)
    annotation = Annotated[
        typed_as,
        typer.Option(
            *field.names, help=option.help, metavar=None if is_flag else field.metavar, rich_help_panel=option.panel
        ),
    ]
    return inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _parsed(field: Field, typed: Any) -> Any:
    """Return the value that was typed; None where an option without a default was not."""
    if typed is None and not (field.text and field.text.repeated):
        return None
    return typed if field.text is None else field.text.parse(typed or [] if field.text.repeated else typed)
