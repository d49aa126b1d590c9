"""``plink info``."""

from typing import Any

from plink.features.info.run import info as gather
from plink.model.units import format_bytes, format_duration
from plink.terminal.options import Json
from plink.terminal.screen import print_json, print_lines


def info(as_json: Json = False) -> None:
    """Print what a bug report needs: versions of plink, Python, libraries and launchers, capabilities of this machine.

    Safe to post: it names no host, address, user or folder, and shows values
    only of harmless variables.

    Example: plink info > info.txt
    """
    document = gather().to_json()
    if as_json:
        print_json(document)
        return
    for key, value in list(document.items())[1:]:
        title = key.removesuffix("_bytes").replace("_", " ")
        if isinstance(value, dict):
            print_lines(
                title, *(f"  {name:<24}{_text(name, entry)}" for name, entry in value.items() or [("none", "")])
            )
        else:
            print_lines(f"{title}: {_text(key, value)}")


def _text(key: str, value: Any) -> str:
    if isinstance(value, dict):
        return f"{format_duration(value['age_s'])} old, {format_bytes(value['bytes'])}"
    if isinstance(value, list):
        return ", ".join(value) or "none"
    return format_bytes(value) if key.endswith("bytes") else "none" if value is None else str(value)
