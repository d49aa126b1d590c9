"""Messages of launching agents to the controller (:mod:`runners.job.rank_agent`, :mod:`runners.job.torchrun_agent`).

An agent runs on a host that may be anybody's by now: the form of each message is checked before it is used. Whoever
uses one has to allow for values that are well formed and untrue.
"""

from functools import reduce
from operator import or_
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

_INT64_LIMIT = 1 << 63
Int64 = Annotated[int, Meta(ge=-_INT64_LIMIT, le=_INT64_LIMIT - 1)]
Rate = Annotated[float, Meta(ge=0, le=1e12)]


class Message(Struct, frozen=True, tag_field="type"):
    """Base of all messages."""


class HostReady(Message, frozen=True, tag="ready"):
    """Identity of a host, and the address that the controller used."""

    address: str
    hostname: str
    boot_id: str
    cores: Int64
    addresses: list[str]


class CopyFound(Message, frozen=True, tag="digest"):
    """Path of a copy of the user's folder; None: there is none."""

    path: str | None


class PartStored(Message, frozen=True, tag="part_stored"):
    """Length of a part of an archive that is stored."""

    bytes: Int64


class Extracted(Message, frozen=True, tag="extracted"):
    """Path of a new copy, or why there is none."""

    path: str | None
    error: str | None


class Versions(Struct, frozen=True, forbid_unknown_fields=True):
    """Versions of Python, PyTorch and plink; None where one is missing."""

    python: str | None
    torch: str | None
    plink: str | None


class HostSetup(Message, frozen=True, tag="set_up"):
    """What a host would run (:func:`runners.job.execution_environment.resolve_execution`). ``versions``: None where
    they are not known."""

    argv: Annotated[list[str], Meta(min_length=1)]
    workdir: str
    interface: str
    address: str
    port: Int64
    versions: Versions | None
    problems: list[str]


class ListenerOpened(Message, frozen=True, tag="listener_opened"):
    """Why the port of the rendezvous cannot be used; None: it listens."""

    error: str | None


class Connected(Message, frozen=True, tag="connected"):
    """Why the port of the rendezvous cannot be reached; None: it can."""

    error: str | None


class ListenerClosed(Message, frozen=True, tag="listener_closed"):
    """The port of the rendezvous is free again."""


class FlowPort(Message, frozen=True, tag="flow_port"):
    """Port of a flow; None: none can be opened."""

    port: Int64 | None


class FlowRate(Message, frozen=True, tag="flow_rate"):
    """Rate of what was received, Gbit/s, or what went wrong."""

    gbps: Rate | None
    error: str | None


class PlacementReport(Message, frozen=True, tag="rank_report"):
    """Where a rank runs."""

    rank: Int64
    pid: Int64
    hostname: str
    addresses: list[str]


class Output(Message, frozen=True, tag="output"):
    """What a rank printed; ``rank`` None: the agent or torchrun."""

    rank: Int64 | None
    stream: Literal["out", "err"]
    text: str


class RankLine(Message, frozen=True, tag="line"):
    """Line of rank 0 to the launcher (:mod:`runners.job.rank_channel`)."""

    text: str


class Exited(Message, frozen=True, tag="exited"):
    """Exit code of a rank."""

    rank: Int64
    code: Int64


class StacksShown(Message, frozen=True, tag="stacks"):
    """The stacks of the host's ranks have been sent as output."""


class RanksStopped(Message, frozen=True, tag="stopped"):
    """Ranks of the host that are stopped (SIGSTOP) when the job ends."""

    ranks: list[Int64]


class AgentFailed(Message, frozen=True, tag="failed"):
    """Why the agent cannot go on."""

    error: str


AnyMessage: Any = reduce(or_, Message.__subclasses__())
