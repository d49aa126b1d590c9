"""Collect from every host the facts that influence measurements: clock source, MTU, tools."""

import time
from typing import Any

from probes.scheduler import AgentBody, AgentRequest, ProbeTask, RequestBatches, TaskFailed
from probes.session import ProbeSession

_MAX_UNIX_TIME_S = 1e12  # an answer beyond it is malformed
_LIMIT_S = 40.0  # a host asks several tools, each bounded


def inspect_all(session: ProbeSession) -> dict[str, AgentBody]:
    """Return facts by host name: those of :func:`probes.agent.inspection.inspect` of the agent's first report, and
    ``clock_offset_s``, how far its clock is ahead of this machine's."""
    facts: dict[str, AgentBody] = {}
    tasks = [ProbeTask((host,), _inspect(session, host, facts)) for host in session.agents]
    session.scheduler.run(tasks)
    return facts


def _inspect(session: ProbeSession, host: int, facts: dict[str, AgentBody]) -> RequestBatches:
    peers = [session.context.address(other) for other in session.agents if other != host][:1]
    try:
        (answer,) = yield [AgentRequest(host, {"method": "inspect", "peers": peers}, _LIMIT_S)]
    except TaskFailed:
        return
    received_s = time.time()
    report = session.agents[host]
    own = {key: report[key] for key in ("hostname", "address", "python", "cores", "stamps")}
    answer = {key: value for key, value in answer.items() if key not in ("type", "task")}
    unix_time_s: Any = answer.pop("unix_time_s", None)
    if type(unix_time_s) in (int, float) and abs(unix_time_s) < _MAX_UNIX_TIME_S:
        # The answer's way counts as none: it is far shorter than the offsets that matter.
        own["clock_offset_s"] = round(unix_time_s - received_s, 3)
    facts[session.measurements.hosts.names[host]] = own | answer
