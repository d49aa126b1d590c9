"""Requests without an answer yet and timers: data, dispatched by the type of their purpose (:mod:`.dispatch`)."""

from dataclasses import dataclass
from typing import Any

from plink.model.elastic.requests import Request

GONE = "Gone"  # kind of the error of a request whose host is lost
REFUSED = "RejectedRequest"  # kind of the error where a partition is not here, or not as it was


@dataclass(frozen=True)
class PendingRequest:
    """A request that has no answer yet. ``purpose``: a frozen dataclass, whose handler gets the answer."""

    host: int
    method: type[Request]
    purpose: Any


@dataclass(frozen=True, order=True)
class Timer:
    """What is due at a time, seconds; of two at the same time the one that was set first."""

    at_s: float
    number: int
    due: Any
