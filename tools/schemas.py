"""Publish plink's documents as JSON Schemas in docs/schemas: ``make reference``.

Types and bounds are those of :mod:`plink.model`; descriptions are the texts below the fields there. A test holds
docs/schemas against what this gives.
"""

import ast
import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_type_hints

import msgspec

import plink.model
from plink.model.codec import schema_name
from plink.model.document import Document
from plink.model.storage import render_document

FOLDER = Path(__file__).parent.parent / "docs" / "schemas"

# Conditions between keys, which types do not express.
_CONDITIONS: dict[str, dict[str, Any]] = {
    "doctor": {
        "if": {"properties": {"ok": {"const": True}}},
        "then": {"properties": {"findings": {"items": {"properties": {"severity": {"const": "info"}}}}}},
        "else": {"properties": {"findings": {"contains": {"properties": {"severity": {"not": {"const": "info"}}}}}}},
    },
    "elastic-status": {
        "if": {"properties": {"stage": {"const": None}}},
        "then": {"properties": {"hosts": {"maxItems": 0}}},
        "else": {
            "required": [
                *(
                    "consistent",
                    "generation",
                    "controller",
                    "checkpoint",
                    "iteration",
                    "iteration_s",
                    "objective",
                    "workers",
                ),
                "begun",
            ]
        },
    },
    "schedule": {
        "if": {
            "properties": {"collective": {"enum": ["reduce-scatter", "all-gather", "broadcast", "reduce"]}},
            "required": ["collective"],
        },
        "then": {"required": ["owners"]},
    },
    "truth": {"anyOf": [{"required": [key]} for key in ("positions", "racks", "digits")]},
    "verification": {
        "if": {"properties": {"valid": {"const": True}}},
        "then": {"properties": {"errors": {"maxItems": 0}}},
        "else": {"properties": {"errors": {"minItems": 1}}},
    },
}


def documents() -> dict[str, type]:
    """Return each kind of document by its name, like ``order``."""
    kinds = {}
    for module in pkgutil.walk_packages(plink.model.__path__, "plink.model."):
        for kind in vars(importlib.import_module(module.name)).values():
            is_document = isinstance(kind, type) and issubclass(kind, Document) and kind is not Document
            if is_document and kind.__module__ == module.name:
                kinds[schema_name(kind).removeprefix("plink.").partition("/")[0]] = kind
    return kinds


def schema_of(name: str, kind: type) -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of a kind of document."""
    (top,), definitions = msgspec.json.schema_components([kind])
    classes = {used.__name__: used for used in _used_by(kind)}
    for title, definition in definitions.items():
        if title in classes:
            _describe(definition, classes[title])
        else:  # an enumeration, described where it is used
            definitions[title] = {"enum": definition["enum"]}
    body = _inlined(top, definitions)
    schema = schema_name(kind)
    title, _, about = inspect.cleandoc(kind.__doc__ or "").partition("\n\n")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:plink:schema:{name}:{schema.partition('/')[2]}",
        "title": f"{schema}: {title[0].lower()}{title[1:].rstrip('.')}",
        "description": f"{' '.join(about.split())} Keys are only ever added.",
        "type": "object",
        "required": body["required"],
        "properties": body["properties"],
        "additionalProperties": True,
        **_CONDITIONS.get(name, {}),
    }


def _used_by(hint: Any) -> Iterator[type]:
    """Yield the classes with fields that a type is made of, itself included."""
    has_fields = isinstance(hint, type) and issubclass(hint, msgspec.Struct)
    if has_fields:
        yield hint
    for part in (*get_args(hint), *(get_type_hints(hint, include_extras=True).values() if has_fields else ())):
        yield from _used_by(part)


def _describe(definition: dict[str, Any], kind: type) -> None:
    """Give a class's properties the sequence and the descriptions of its fields; its own is that of its users."""
    names = {field.name: field.encode_name for field in msgspec.structs.fields(kind)}
    about = {"schema": "Kind and version of this file."}
    about |= {names.get(field, field): text for field, text in _texts(kind).items()}
    properties = definition["properties"]
    definition["properties"] = {
        key: properties[key] | ({"description": about[key]} if key in about else {}) for key in properties
    }
    definition["required"] = [key for key in properties if key in definition["required"]]
    definition.pop("title", None)
    if "description" in definition:  # before Python 3.13 it is indented
        definition["description"] = " ".join(definition["description"].split())
    if not definition["required"]:
        del definition["required"]


def _texts(kind: type) -> dict[str, str]:
    """Return the text below each field of a class statement, and of those that it inherits."""
    if kind is msgspec.Struct:
        return {}
    (statement,) = ast.parse(inspect.getsource(kind)).body
    assert isinstance(statement, ast.ClassDef)
    texts: dict[str, str] = {}
    for base in statement.bases:
        parent = getattr(inspect.getmodule(kind), base.id) if isinstance(base, ast.Name) else None
        texts |= {} if parent is None else _texts(parent)
    field = ""
    for line in statement.body:
        if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
            field = line.target.id
        elif field and isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant):
            texts[field] = " ".join(str(line.value.value).split())
    return texts


def _inlined(schema: Any, definitions: dict[str, Any]) -> Any:
    """Return the schema without references: no document of plink's contains its own kind."""
    if isinstance(schema, list):
        return [_inlined(entry, definitions) for entry in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        target = _inlined(definitions[schema["$ref"].rpartition("/")[2]], definitions)
        return target | {key: value for key, value in schema.items() if key != "$ref"}
    result = {key: _inlined(value, definitions) for key, value in schema.items()}
    if "const" not in result and isinstance(result.get("enum"), list) and len(result["enum"]) == 1:
        result["const"] = result.pop("enum")[0]
    if len(result.get("allOf", ())) == 1:
        result = result.pop("allOf")[0] | result
    options = [option for option in result.get("anyOf", ()) if option != {"type": "null"}]
    if len(options) == 1 and isinstance(options[0].get("type"), str):
        # A validator then names the place inside that is wrong.
        (option,) = options
        result = option | {key: value for key, value in result.items() if key != "anyOf"}
        result["type"] = [option["type"], "null"]
    return result


def main() -> None:
    """Write every schema."""
    for name, kind in documents().items():
        (FOLDER / f"{name}.schema.json").write_text(render_document(schema_of(name, kind)), encoding="utf-8")


if __name__ == "__main__":
    main()
