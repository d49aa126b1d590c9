"""Check of the network by a job's agents before ranks start: flows between its hosts, at once."""

import secrets
from collections.abc import Sequence
from typing import Any

from runners.job.agent_pool import AgentPool
from runners.job.runner import Flow, FlowResults, RunContext
from runners.job.setup import HostSetups

_FLOW_S = 0.5  # as the flows that measure hosts (:mod:`probes.host_flows`), so that rates compare
_MAX_FLOW_BYTES = 64_000_000
_ACCEPT_S = 0.7  # until a flow has connected


def check_network(pool: AgentPool, setups: HostSetups, context: RunContext) -> None:
    """Have the network checked, where that was asked for, between the addresses that hosts were measured at.

    :raises PlinkError: what the check refuses, and when an agent is lost meanwhile.
    """
    if context.check_network is not None:
        addresses = {name: str(setup["identity"]["address"]) for name, setup in setups.items()}
        context.check_network(lambda flows: _run_flows(pool, addresses, flows))


def _run_flows(pool: AgentPool, addresses: dict[str, str], flows: Sequence[Flow]) -> FlowResults:
    receivers = [receiver for _, receiver in flows]
    for name in receivers:
        pool.fleet.send(name, method="flow_listen", address=addresses[name])
    ports = {name: answer["port"] for name, answer in pool.each("flow_port", receivers).items()}
    results: FlowResults = {flow: f"{flow[1]} cannot listen for a flow" for flow in flows if ports[flow[1]] is None}
    requests: dict[str, dict[str, Any]] = {}
    for sender, receiver in flows:
        if ports[receiver] is not None:
            token = secrets.token_hex(32)
            requests.setdefault(receiver, {})["receive_token"] = token
            requests.setdefault(sender, {}).update(send_token=token, peer=[addresses[receiver], ports[receiver]])
    limits = {"seconds": _FLOW_S, "max_bytes": _MAX_FLOW_BYTES, "accept_s": _ACCEPT_S}
    for name, request in requests.items():
        pool.fleet.send(name, method="flow_exchange", **request, **limits)
    answers = pool.each("flow_rate", list(requests))
    for flow in flows:
        if flow not in results:
            rate = answers[flow[1]]["gbps"]
            reasons = [answers[name]["error"] for name in reversed(flow)]
            results[flow] = rate if rate is not None else next(filter(None, reasons), "no rate was reported")
    return results
