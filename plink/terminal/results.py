"""Write what a command made: to the file that was asked for, or the workspace's, or standard output."""

from pathlib import Path
from typing import Any, Protocol

from plink.model.storage import STANDARD
from plink.records import workspace
from plink.terminal.screen import print_json, say


class WritableDocument(Protocol):
    """What has a document and can be written to a file."""

    def to_json(self) -> dict[str, Any]:
        """Return the document."""

    def write(self, path: str | Path) -> None:
        """Write the file."""


def write_result(result: WritableDocument, name: str, default: Path, output: Path | None, as_json: bool) -> bool:
    """Write a result, and return whether it is on standard output; else the caller prints it for people.

    :param name: of what it is, for the line that names the file. :param default: the workspace's file, where neither
        ``output`` nor JSON was asked for.
    """
    if output is None and not as_json:
        workspace.prepare()
        output = default
    is_standard = str(output) == STANDARD
    if output is not None and not is_standard:
        result.write(output)
        say(f"{name} -> {output}")
    if as_json or is_standard:
        print_json(result.to_json())
    return as_json or is_standard
