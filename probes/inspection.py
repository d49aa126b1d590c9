"""Ask every host for the facts that bear on a measurement."""

from typing import Any

from probes.conductor import Command, Errand, ErrandFailed, Steps
from probes.survey import Survey

_LIMIT_S = 40.0  # a host asks several tools, each bounded


def inspect_all(survey: Survey) -> dict[str, dict[str, Any]]:
    """Facts by host name (:func:`probes.agent.inspection.inspect`, and what the agent said at its start)."""
    facts: dict[str, dict[str, Any]] = {}
    errands = [Errand((host,), _ask(survey, host, facts)) for host in survey.ready]
    survey.conductor.run(errands)
    return facts


def _ask(survey: Survey, host: int, facts: dict[str, dict[str, Any]]) -> Steps:
    peers = [survey.work.address(other) for other in survey.ready if other != host][:1]
    try:
        (answer,) = yield [Command(host, {"method": "inspect", "peers": peers}, _LIMIT_S)]
    except ErrandFailed:
        return
    ready = survey.ready[host]
    own = {key: ready[key] for key in ("hostname", "address", "python", "cores", "stamps")}
    answer = {key: value for key, value in answer.items() if key not in ("type", "task")}
    facts[survey.found.hosts.names[host]] = own | answer
