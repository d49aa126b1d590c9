"""Documents: what plink prints with ``--json``, writes to files and returns, each declared once.

A document is a :class:`msgspec.Struct` whose tag, the key ``schema``, names its kind and version. Its fields are the
keys of the file and of the JSON Schema in docs/schemas, in that order; a text below a field describes it there. A key
that may be missing has the type ``... | Unset`` and the default ``UNSET``; None is null.
"""

import json
from pathlib import Path
from typing import Any

import msgspec
from msgspec import UNSET, Struct, UnsetType

from plink.model.storage import JsonObject, write_document
from plink.model.types import own_number

__all__ = ["UNSET", "Document", "Part", "Unset"]

Unset = UnsetType


class Part(Struct, frozen=True, kw_only=True):
    """Part of a document."""


class Document(Part, frozen=True, kw_only=True, tag_field="schema", tag=""):
    """Document as a whole; a kind of document gives its ``tag``, like ``plink.cost/1``."""

    def to_json(self) -> JsonObject:
        """Return the document as it is written, of JSON's types alone."""
        document: JsonObject
        try:
            document = msgspec.json.decode(msgspec.json.encode(self, enc_hook=_plain_number))
        except UnicodeEncodeError:  # the name of a file, or a word that was typed, need be no UTF-8
            document = json.loads(json.dumps(msgspec.to_builtins(self, str_keys=True, enc_hook=_plain_number)))
        return document

    def write(self, path: str | Path) -> None:
        """Write the file, whole or not at all."""
        write_document(path, self.to_json())


def _plain_number(value: Any) -> Any:
    if (plain := own_number(value)) is value:
        raise TypeError(f"{type(value).__name__} is no type of JSON")
    return plain
