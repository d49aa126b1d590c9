"""Messages between workers that help each other: JSON objects in the text of a message of kind ``HELP``.

What a helper adds to the tables comes before its :class:`HelpCompleted`, as messages of kind ``HELP_RESULT``.
"""

import math
from functools import reduce
from operator import or_
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from plink.errors import ProtocolError
from plink.model.elastic.fields import Index, Int

MAX_GRAINS = 1000  # of a request: its text has at most 64 KB
Grains = Annotated[tuple[tuple[Index, Index], ...], Meta(max_length=MAX_GRAINS)]


class HelpMessage(Struct, frozen=True, forbid_unknown_fields=True, tag_field="type"):
    """Base of all; ``sender``: the worker that it is from."""

    sender: Index


class ProgressReport(HelpMessage, frozen=True, tag="report"):
    """A possible helper has done a share of its own work of a clock."""

    generation: Int
    clock: Int
    done: float


class HelpRequest(HelpMessage, frozen=True, tag="request"):
    """Do these grains (shard and number) of the sender's clock, with the state of clock ``state`` or a later one."""

    id: Index
    generation: Index
    clock: Int
    state: Int
    grains: Grains


class HelpBegun(HelpMessage, frozen=True, tag="begun"):
    """The helper works on a request: more may be sent."""

    id: Index


class HelpRefused(HelpMessage, frozen=True, tag="refused"):
    """The helper does not do a request."""

    id: Index


class HelpCancelled(HelpMessage, frozen=True, tag="cancel"):
    """The helpee does a request itself."""

    id: Index


class ReturnRequest(HelpMessage, frozen=True, tag="return"):
    """The helpee waits: return some of a request's grains that are not begun."""

    id: Index


class HelpReturned(HelpMessage, frozen=True, tag="returned"):
    """The helper does not do these grains of a request."""

    id: Index
    grains: Grains


class HelpCompleted(HelpMessage, frozen=True, tag="completed"):
    """The helper has done these grains of a request, of that clock and generation, with these objectives (total and
    weight)."""

    id: Index
    generation: Index
    clock: Int
    grains: Grains
    scores: Annotated[tuple[tuple[float, float], ...], Meta(max_length=MAX_GRAINS)] = ()


_DECODER: Any = msgspec.json.Decoder(reduce(or_, HelpMessage.__subclasses__()))


def encode(message: HelpMessage) -> str:
    """Return a message as text."""
    return msgspec.json.encode(message).decode()


def decode(text: str) -> HelpMessage:
    """Return the message of a text. :raises ProtocolError: it is none."""
    try:
        message: HelpMessage = _DECODER.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ProtocolError(f"a message of a helper: {ascii(str(error))[1:-1][:200]}") from None
    if isinstance(message, ProgressReport) and not 0 <= message.done <= 1:
        raise ProtocolError(f"a message of a helper: {message.done} of its work is done")
    if isinstance(message, HelpCompleted) and not all(
        math.isfinite(value) for pair in message.scores for value in pair
    ):
        raise ProtocolError("a message of a helper: objectives must be finite")
    return message
