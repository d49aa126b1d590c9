"""Versions of the protocols of elastic jobs beside digests of what they send, as recorded in protocol_versions.json.

``python -m tests.runtime.elastic.protocol_versions`` records them anew. It refuses to where what is sent has changed
and the version has not: raise ``VERSION`` of :mod:`plink.model.elastic.codec` or
:mod:`plink.runtime.elastic.transport.wire` first. A change of what a field means changes no digest: raise it then, too.
"""

import hashlib
import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from msgspec import structs

from plink.elastic import Table
from plink.model.elastic import codec
from plink.model.elastic.reports import MESSAGES
from plink.model.elastic.requests import REQUESTS, RESULTS
from plink.runtime.elastic.arrays.layout import Layout
from plink.runtime.elastic.arrays.row_blocks import RowBlock
from plink.runtime.elastic.helping.messages import HelpMessage
from plink.runtime.elastic.transport import messages as m
from plink.runtime.elastic.transport import wire
from plink.runtime.elastic.transport.messages import PartKind, RowRequest, Status
from plink.runtime.elastic.transport.wire import Kind

PATH = Path(__file__).with_suffix(".json")
Recorded = dict[str, dict[str, Any]]  # version and digest by protocol


def current() -> Recorded:
    """Return the versions and digests of the program as it is."""
    control = [
        _schemas(REQUESTS.values()), _schemas(MESSAGES.values()),
        {method.__name__: _schema(result) for method, result in RESULTS.items()},
    ]  # fmt: skip
    enums = [{item.name: int(item) for item in kind} for kind in (Kind, Status, PartKind)]
    flags = [wire.LAST, wire.INCLUDED, wire.DROPPED, wire.UNPLANNED, wire.GROUPED]
    data = [_sent(), enums, flags, _schemas(HelpMessage.__subclasses__())]
    return {
        "plink/model/elastic/codec.py": {"version": codec.VERSION, "digest": digest(control)},
        "plink/runtime/elastic/transport/wire.py": {"version": wire.VERSION, "digest": digest(data)},
    }


def recorded() -> Recorded:
    """Return what was recorded last."""
    result: Recorded = json.loads(PATH.read_text())
    return result


def forgotten(now: Recorded, before: Recorded) -> list[str]:
    """Return the protocols that have changed without their version."""
    return [
        name
        for name, entry in now.items()
        if name in before and entry["digest"] != before[name]["digest"] and entry["version"] <= before[name]["version"]
    ]


def digest(content: Any) -> str:
    """Return a digest of JSON, whatever the order of keys."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def _schemas(kinds: Iterable[type[msgspec.Struct]]) -> dict[str, Any]:
    return {kind.__name__: _schema(kind) for kind in kinds}


def _schema(kind: type[msgspec.Struct]) -> Any:
    return without_words(msgspec.json.schema(kind))


def without_words(schema: Any) -> Any:
    """Return a schema without its titles and descriptions; properties may have such names."""
    if isinstance(schema, list):
        return [without_words(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: {name: without_words(item) for name, item in value.items()}
        if key in ("properties", "$defs")
        else without_words(value)
        for key, value in schema.items()
        if key not in ("title", "description")
    }


class _Sink:
    """A channel that keeps what is sent."""

    def __init__(self) -> None:
        self.content = b""

    def send(self, buffers: Iterable[memoryview]) -> None:
        self.content += b"".join(buffers)

    def receive_into(self, view: memoryview) -> None:
        raise AssertionError("nothing is received")

    def close(self) -> None: ...


def _sent() -> list[str]:
    """Return what messages of each kind are as bytes, without their version."""
    layout = Layout((Table("a", 10, 3), Table("b", 6, 1, "int64")), 2)
    vectors = np.arange(6, dtype=np.float32).reshape(2, 3)
    blocks = (RowBlock(0, range(1, 3), vectors), RowBlock(1, range(1), np.array([[8]])))
    wanted = (RowRequest(0, range(1, 3)), RowRequest(1, np.array([0, 2], dtype=np.uint32)))
    others = {"text": "t", "blocks": blocks, "wanted": wanted, "status": Status.WAITING}
    result = []
    for kind in (m.ServerAnswer, m.UpdateAnswer, m.Grant, *m.ServerRequest.__subclasses__()):
        values: dict[str, Any] = {"partition": 1}
        for number, field in enumerate(structs.fields(kind)[1:], 2):
            values[field.name] = others.get(field.name, True if field.type is bool else number)
        for part in PartKind if kind is m.PartitionPart else (None,):
            sink = _Sink()
            wire.send(sink, kind(**values | ({} if part is None else {"kind": part})), layout, ticket=9)
            result.append((sink.content[:4] + sink.content[5:]).hex())
    return sorted(result)


def main() -> int:
    """Record versions and digests."""
    now = current()
    changed = forgotten(now, recorded() if PATH.exists() else {})
    for name in changed:
        print(f"{name}: what is sent has changed: raise VERSION", file=sys.stderr)
    if not changed:
        PATH.write_text(json.dumps(now, indent=2) + "\n")
    return int(bool(changed))


if __name__ == "__main__":
    sys.exit(main())
