"""Protocols of elastic jobs: a changed one has another version."""

from typing import Annotated

import msgspec
import pytest
from msgspec import Meta, Struct

from tests.runtime.elastic.protocol_versions import current, digest, forgotten, recorded, without_words


def test_changed_protocol_has_another_version() -> None:
    """If this fails: raise VERSION in the file that is named. Then run
    ``python -m tests.runtime.elastic.protocol_versions`` and ``python -m tests.docs.elastic_protocol``."""
    assert not forgotten(current(), recorded()), "raise VERSION there"
    assert current() == recorded(), "record it: python -m tests.runtime.elastic.protocol_versions"


@pytest.mark.parametrize(("version", "names"), [(3, ["a"]), (4, [])])
def test_change_without_a_version_is_noticed(version: int, names: list[str]) -> None:
    before = {"a": {"version": 3, "digest": "x"}, "b": {"version": 1, "digest": "y"}}
    now = {"a": {"version": version, "digest": "z"}, "b": {"version": 1, "digest": "y"}}
    assert forgotten(now, before) == names


class Base(Struct, tag_field="type", tag="base"):
    """A message."""

    clock: int
    title: str = ""


class Described(Struct, tag_field="type", tag="base"):
    """The same message in other words."""

    clock: int
    title: str = ""


class Required(Struct, tag_field="type", tag="base"):
    """A field more must be given."""

    clock: int
    title: str


class Bounded(Struct, tag_field="type", tag="base"):
    """Fewer values are taken."""

    clock: Annotated[int, Meta(ge=0)]
    title: str = ""


class Renamed(Struct, tag_field="type", tag="other"):
    """Another name on the wire."""

    clock: int
    title: str = ""


def test_digest_is_of_fields_and_not_of_their_description() -> None:
    def of(kind: type[Struct]) -> str:
        schema = msgspec.json.schema(kind)
        (fields,) = schema["$defs"].values()
        return digest(without_words(fields))

    assert of(Described) == of(Base)
    assert len({of(kind) for kind in (Base, Required, Bounded, Renamed)}) == 4
