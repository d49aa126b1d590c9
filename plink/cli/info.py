"""``plink info``."""

from typing import Annotated, Any

import typer

from plink.terminal.screen import print_json, print_lines, say

_NONE = "none"


def info(
    full: Annotated[
        bool,
        typer.Option(
            "--full",
            help="Include names of this machine and its folders, and PyTorch's own report: not for the public.",
        ),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Print what a bug report needs: versions of plink, Python, libraries and launchers, capabilities of this machine.

    Safe to post: without --full it names no host, address, user or folder, and
    shows values only of harmless variables.

    Example: plink info > info.txt
    """
    from plink.cli.environment_report import gather

    document = gather(full)
    if as_json:
        print_json(document)
    else:
        for name, part in document.items():
            if isinstance(part, dict):
                print_lines(*_lines(name.replace("_", " "), part))
    if full:
        say("this names your machine, you and your folders: check it before you post it")
    else:
        say("no host, address, user or folder is named here; --full names them")


def _lines(title: str, part: dict[str, Any]) -> list[str]:
    width = max(map(len, part), default=0) + 2
    rows = [f"  {key:<{width}} {_format_value(key, value)}".rstrip() for key, value in part.items()]
    return [title, *(rows or [f"  {_NONE}"])]


def _format_value(key: str, value: Any) -> str:
    from plink.model.units import format_bytes, format_duration

    if value is None or value == []:
        return _NONE
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(map(str, value))
    if isinstance(value, dict):
        return ", ".join(f"{_format_value(name, item)}{_OF.get(name, '')}" for name, item in value.items())
    if key.endswith("bytes"):
        return format_bytes(value)
    return format_duration(value) if key.endswith("_s") else str(value)


_OF = {"age_s": " old", "count": " runs"}
