"""Fields of other tools' JSON documents, checked by type; errors name the field."""

from collections.abc import Sequence
from typing import Any

from plink.errors import InputError
from plink.model.codec import short_json
from plink.model.storage import JsonObject

_MAX_NAME_CHARS = 512

Entries = Sequence[tuple[str, Any]]  # instances or nodes, with the place of each for errors


def object_of(value: Any, location: str) -> JsonObject:
    """Return the value as an object; null is an empty one.

    :raises InputError: when it is something else.
    """
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise InputError(location, f"an object was expected, this is {short_json(value)}")
    return value


def list_of(value: Any, location: str) -> list[Any]:
    """Return the value as a list; null is an empty one.

    :raises InputError: when it is something else.
    """
    if value is None:
        return []
    if not isinstance(value, list):
        raise InputError(location, f"a list was expected, this is {short_json(value)}")
    return value


def text_of(value: Any, location: str) -> str | None:
    """Return the value as text; null and the empty text are None.

    :raises InputError: when it is something else, or longer than any name.
    """
    if value is None or value == "":
        return None
    if not isinstance(value, str):
        raise InputError(location, f"a text was expected, this is {short_json(value)}")
    if len(value) > _MAX_NAME_CHARS:
        raise InputError(location, f"a name of {len(value)} characters is none that plink reads")
    return value
