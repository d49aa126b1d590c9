"""Messages between the supervisor and the controller's process, as events and commands of the state machine."""

from collections.abc import Mapping
from typing import Any

import msgspec

from plink.model.elastic.reports import MESSAGES, Answer
from plink.model.elastic.requests import method_of, params_of
from solvers.elastic import commands, events
from solvers.elastic.member import Member

_ANSWER = ("is", "id", "why", "kind", "from")


def event_of(message: Mapping[str, Any]) -> Any:
    """Decode what the supervisor passes on: of a host (``from``), or its own."""
    if "from" in message:
        return _of_host(message["from"], message)
    match message["is"]:
        case "start":
            return events.JobStarted(_members(message))
        case "resume":
            return events.ControllerRestarted(_members(message))
        case "joined":
            return events.HostsJoined(_members(message), message["bulk"])
        case "gone":
            return events.HostsLost((message["host"],), message["why"])
        case "evict":
            return events.EvictionNotice(tuple(message["hosts"]), message["seconds"], message["why"])
        case "status":
            return events.StatusRequested(message["ask"])
        case "checkpoint":
            return events.CheckpointRequested(message["ask"])
        case _:
            return events.SupervisorAlive()


def _of_host(host: int, message: Mapping[str, Any]) -> Any:
    if message["is"] == "answer":
        result = {key: value for key, value in message.items() if key not in _ANSWER}
        for empty in ("map", "thresholds"):
            if result.get(empty) == {}:
                result[empty] = None
        return events.HostMessage(host, Answer(message["id"], message["why"], message.get("kind", ""), result))
    kind = MESSAGES.get(message["is"])
    if kind is None:
        return events.SupervisorAlive()
    fields = {key: value for key, value in message.items() if key in kind.__struct_fields__}
    return events.HostMessage(host, msgspec.convert({"type": message["is"], **fields}, kind, str_keys=True))


def message_of(item: commands.Command | commands.LogEntry, term: int) -> dict[str, Any]:
    """Encode what the supervisor is to do."""
    match item:
        case commands.Send(host, request, number):
            params = msgspec.to_builtins(params_of(request), str_keys=True)
            answered = {} if number is None else {"id": number}
            return {"to": host, "do": method_of(request), "by": term, **params, **answered}
        case commands.DropHost(host, reason):
            return {"is": "drop", "host": host, "why": reason}
        case commands.Say(text):
            return {"is": "say", "text": text}
        case commands.StatusAnswer(ask, status):
            return {"is": "status", "ask": ask, "status": status}
        case commands.CheckpointAnswer(ask, result):
            return {"is": "checkpoint", "ask": ask, "checkpoint": result}
        case commands.StartReliableHosts():
            return {"is": "wanted", "what": "reliable"}
        case commands.EndJob(code, reason):
            return {"is": "end", "code": code, "why": reason}
        case commands.LogLine(fields):
            return {"is": "log", "line": fields}
        case commands.Note(text):
            return {"is": "note", "text": text}


def _members(message: Mapping[str, Any]) -> tuple[Member, ...]:
    return tuple(Member(**host) for host in message["hosts"])
