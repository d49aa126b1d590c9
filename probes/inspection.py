"""Collect from every host the facts that influence measurements: clock source, MTU, tools."""

from typing import Any

from probes.scheduler import ProbeTask, Request, RequestBatches, TaskFailed
from probes.session import ProbeSession

_LIMIT_S = 40.0  # a host asks several tools, each bounded


def inspect_all(session: ProbeSession) -> dict[str, dict[str, Any]]:
    """Return facts by host name: those of :func:`probes.agent.inspection.inspect` and of the agent's first report."""
    facts: dict[str, dict[str, Any]] = {}
    tasks = [ProbeTask((host,), _inspect(session, host, facts)) for host in session.agents]
    session.scheduler.run(tasks)
    return facts


def _inspect(session: ProbeSession, host: int, facts: dict[str, dict[str, Any]]) -> RequestBatches:
    peers = [session.context.address(other) for other in session.agents if other != host][:1]
    try:
        (answer,) = yield [Request(host, {"method": "inspect", "peers": peers}, _LIMIT_S)]
    except TaskFailed:
        return
    report = session.agents[host]
    own = {key: report[key] for key in ("hostname", "address", "python", "cores", "stamps")}
    answer = {key: value for key, value in answer.items() if key not in ("type", "task")}
    facts[session.measurements.hosts.names[host]] = own | answer
