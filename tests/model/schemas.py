"""A document held against its published JSON Schema, and what a command prints as one."""

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from plink.model.storage import read_document, render_document

FOLDER = Path(__file__).parents[2] / "docs" / "schemas"
Document = dict[str, Any]


def complaints(name: str, document: Document) -> list[str]:
    """Where a document breaks its schema, after a trip through the text that is written."""
    validator = Draft202012Validator(read_document(FOLDER / f"{name}.schema.json"))
    return [error.json_path for error in validator.iter_errors(json.loads(render_document(document)))]


def described(name: str, document: Document) -> bool:
    """Whether a document keeps to its schema, which speaks of all its keys."""
    return complaints(name, document) == [] and set(document) <= keys(name)


def keys(name: str, *path: str) -> set[str]:
    """All that a schema speaks of; ``path`` leads to a part of it."""
    part = read_document(FOLDER / f"{name}.schema.json")
    for step in path:
        part = part[step]
    return set(part["properties"])


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> Document:
    """What a command prints as JSON."""
    from plink.cli.app import command

    command().main(args=[*words, "--json"], prog_name="plink", standalone_mode=False)
    return json.loads(capsys.readouterr().out)  # type: ignore[no-any-return]
