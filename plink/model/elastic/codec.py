"""Codec of the messages between an elastic job's controller and its nodes: JSON objects, checked in both directions.

A request is ``{"method": ..., "params": {...}, "term": ..., "id": ...}``: ``term`` is the number of the controller that
sends it (a fencing token), ``id`` that of the answer that is wanted, null for none. A node's message is
``{"type": ..., ...}``. A node says its version in its first message (``hello``), and a host of another version is
refused before anything else is sent; within a version a field that is missing, unknown or of another type is an error.
"""

import json
from dataclasses import dataclass
from typing import Any

import msgspec

from plink.errors import ProtocolError
from plink.model.elastic.reports import MESSAGES, NodeMessage, OtherVersion
from plink.model.elastic.requests import REQUESTS, Request, method_of

VERSION = 18  # one more wherever a controller or a node sends or understands something else

_MAX_SHOWN = 60


@dataclass(frozen=True)
class Envelope:
    """A request on its way: of which controller, and the number of the answer that is wanted, if one is."""

    request: Request
    term: int
    id: int | None = None


def encode_request(envelope: Envelope) -> dict[str, Any]:
    """Return a request as it travels."""
    params = msgspec.to_builtins(envelope.request, str_keys=True)
    del params["method"]
    return {"method": method_of(envelope.request), "params": params, "term": envelope.term, "id": envelope.id}


def decode_request(body: Any) -> Envelope:
    """Return the request of a JSON object. :raises ProtocolError: it is none."""
    if not isinstance(body, dict) or body.keys() != {"method", "params", "term", "id"}:
        raise ProtocolError("a request has method, params, term and id")
    method, params, term, number = body["method"], body["params"], body["term"], body["id"]
    if not isinstance(method, str) or method not in REQUESTS:
        raise ProtocolError(f"there is no method {_short(method)}")
    if not isinstance(params, dict) or type(term) is not int or (number is not None and type(number) is not int):
        raise ProtocolError(f"{method}: params are an object, term is a number, id a number or null")
    return Envelope(_convert({**params, "method": method}, REQUESTS[method], method), term, number)


def encode_message(message: NodeMessage) -> dict[str, Any]:
    """Return a node's message as it travels."""
    body: dict[str, Any] = msgspec.to_builtins(message, str_keys=True)
    return body


def decode_message(body: Any) -> NodeMessage:
    """Return the node's message of a JSON object. :raises ProtocolError: it is none."""
    if not isinstance(body, dict):
        raise ProtocolError("a message is an object")
    kind = body.get("type")
    if kind == "hello" and body.get("version") != VERSION:
        plink, protocol = body.get("plink", "an older version"), body.get("version", "unknown")
        return OtherVersion(str(plink)[:40], str(protocol)[:40])
    if not isinstance(kind, str) or kind not in MESSAGES:
        raise ProtocolError(f"there is no type {_short(kind)}")
    message: NodeMessage = _convert(body, MESSAGES[kind], kind)
    return message


def parse_message(line: bytes | str) -> NodeMessage | None:
    """Return the message on a line; None where it is not ours: something on the host writes to the same output.

    :raises ProtocolError: it is one, of a form that messages of nodes never have.
    """
    try:
        body = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(body, dict) or "type" not in body:
        return None
    return decode_message(body)


def _convert(body: dict[str, Any], kind: type[Any], name: str) -> Any:
    try:
        return msgspec.convert(body, kind, str_keys=True)
    except (msgspec.ValidationError, UnicodeEncodeError) as error:  # JSON may hold half of a surrogate pair
        raise ProtocolError(f"{name}: {error}") from None


def _short(value: object) -> str:
    shown = repr(value)
    return shown if len(shown) <= _MAX_SHOWN else f"{shown[: _MAX_SHOWN - 3]}..."
