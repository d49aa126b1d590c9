"""Commands of the state machine to the shell around it, and entries of its log."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from plink.model.elastic.requests import Request


@dataclass(frozen=True)
class Send:
    """Send a request to a host; ``id``: of the answer that is wanted, None for none."""

    host: int
    request: Request
    id: int | None = None


@dataclass(frozen=True)
class DropHost:
    """End what runs on a host: it is no part of the job any more."""

    host: int
    reason: str


@dataclass(frozen=True)
class Say:
    """Show a line to the user."""

    text: str


@dataclass(frozen=True)
class StatusAnswer:
    """Answer a user's request for the state of the job."""

    request_id: int
    status: Mapping[str, Any]


@dataclass(frozen=True)
class CheckpointAnswer:
    """Answer a user's request for a checkpoint."""

    request_id: int
    result: Mapping[str, Any]


@dataclass(frozen=True)
class StartReliableHosts:
    """Start lost reliable hosts again: the job waits for one."""


@dataclass(frozen=True)
class EndJob:
    """End the job."""

    code: int
    reason: str


Command = Send | DropHost | Say | StatusAnswer | CheckpointAnswer | StartReliableHosts | EndJob


@dataclass(frozen=True)
class LogLine:
    """A line of the run's log (:mod:`plink.records.elastic_log`)."""

    fields: Mapping[str, Any]


@dataclass(frozen=True)
class Note:
    """A line for whoever looks for the cause of something."""

    text: str


LogEntry = LogLine | Note
