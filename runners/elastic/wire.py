"""Events and commands as they travel between the supervisor and the controller's process: ``{"type": ..., ...}``."""

from dataclasses import dataclass
from typing import Any

import msgspec

from plink.model.elastic.codec import Envelope, decode_message, encode_request
from solvers.elastic import commands, events, extensions

# Under these names; what else there is never travels.
_TYPES: dict[str, type[Any]] = {
    "start": events.JobStarted, "restart": events.ControllerRestarted, "joined": events.HostsJoined,
    "lost": events.HostsLost, "evict": events.EvictionNotice, "get_status": events.StatusRequested,
    "get_checkpoint": events.CheckpointRequested, "host_message": events.HostMessage, "alive": events.SupervisorAlive,
    "send": commands.Send, "drop": commands.DropHost, "say": commands.Say, "status": commands.StatusAnswer,
    "checkpoint": commands.CheckpointAnswer, "start_reliable_hosts": commands.StartReliableHosts,
    "end": commands.EndJob, "log": commands.LogLine, "note": commands.Note, **extensions.EVENTS,
}  # fmt: skip
_NAMES = {kind: name for name, kind in _TYPES.items()}


@dataclass(frozen=True)
class RequestLine:
    """A request on its way to a host, as it is sent on."""

    host: int
    body: dict[str, Any]


def encode(item: Any, term: int = 0) -> dict[str, Any]:
    """Return an event, a command or a log entry as it travels. ``term``: of the controller that sends requests."""
    if isinstance(item, commands.Send):
        request = encode_request(Envelope(item.request, term, item.id))
        return {"type": "send", "host": item.host, "request": request}
    return {"type": _NAMES[type(item)], **msgspec.to_builtins(item, str_keys=True)}


def decode(body: dict[str, Any]) -> Any:
    """Return the event, command or log entry of an object; a request stays as it goes on to its host."""
    kind = _TYPES[body["type"]]
    fields = {name: value for name, value in body.items() if name != "type"}
    if kind is commands.Send:
        return RequestLine(fields["host"], fields["request"])
    if kind is events.HostMessage:
        return events.HostMessage(fields["host"], decode_message(fields["message"]))
    return msgspec.convert(fields, kind, str_keys=True)
