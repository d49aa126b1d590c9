"""Bounded TCP flows between rotating, disjoint pairs: what every host sends and receives.

Round trips do not show a rate. So every host exchanges flows with a few partners, one way, the other way, and both ways
at once, half a second each: N hosts take as long as two. Partners are of the same group where possible, so that flows
do not meet on links that groups share. Hosts that look slow are tried again, alone, against fast ones.
"""

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from probes.round_robin import Pair
from probes.scheduler import ProbeTask, Request, RequestBatches, TaskFailed
from probes.session import ProbeSession

_CONTROL_S = 10.0
_MAX_GBPS = 1e6


@dataclass(frozen=True)
class FlowSettings:
    """``seconds`` a flow, at most ``max_bytes``; ``rounds`` of partners for each host."""

    seconds: float = 0.5
    max_bytes: int = 64_000_000
    rounds: int = 2


def exchange_flows(
    session: ProbeSession, pairs: Sequence[Pair], settings: FlowSettings, errors: dict[Pair, str], alone: bool = False
) -> list[dict[str, Any]]:
    """Measure disjoint pairs at the same time, and return the rows of ``host_flows``.

    :param errors: receives why pairs could not be measured.
    :param alone: one pair after the other, for suspects.
    """
    rows: list[dict[str, Any]] = []
    names = session.measurements.hosts.names
    tasks = [
        ProbeTask(
            pair, _exchange(session, pair, settings, rows, errors), lambda reason, pair=pair: errors.update({pair: reason})
        )
        for pair in pairs
    ]
    # Flows wait for the network, not for cores: hosts that share a kernel exchange theirs at the same time, too.
    for batch in [[task] for task in tasks] if alone else [tasks]:
        session.scheduler.run(batch, cores_per_task=0)
    for row in rows:
        row["from"], row["to"] = names[row["from"]], names[row["to"]]
        row["alone"] = alone
    return rows


def _exchange(
    session: ProbeSession, pair: Pair, settings: FlowSettings, rows: list[dict[str, Any]], errors: dict[Pair, str]
) -> RequestBatches:
    """One pair: a flow each way, then both at once."""
    a, b = pair
    try:
        for senders in ((a,), (b,), (a, b)):
            receivers = [b if sender == a else a for sender in senders]
            listening = yield [Request(host, {"do": "flow_listen"}, _CONTROL_S) for host in receivers]
            tokens = [secrets.token_hex(32) for _ in senders]
            requests: dict[int, dict[str, Any]] = {host: {} for host in pair}
            for sender, receiver, token, answer in zip(senders, receivers, tokens, listening, strict=True):
                if type(answer.get("port")) is not int:
                    raise TaskFailed(f"{session.measurements.hosts.names[receiver]}: cannot listen for a flow")
                requests[receiver] |= {"receive_token": token}
                requests[sender] |= {"send_token": token, "peer": [session.context.address(receiver), answer["port"]]}
            limits = {"seconds": settings.seconds, "max_bytes": settings.max_bytes}
            answers = yield [
                Request(host, {"do": "flow_exchange", **request, **limits}, settings.seconds + _CONTROL_S)
                for host, request in requests.items()
            ]
            by_host = dict(zip(requests, answers, strict=True))
            for sender, receiver in zip(senders, receivers, strict=True):
                answer = by_host[receiver]
                rate: Any = answer.get("gbps")
                if type(rate) not in (int, float) or not 0 <= rate < _MAX_GBPS:
                    raise TaskFailed(str(answer.get("error") or by_host[sender].get("error") or "no rate was reported"))
                row = {"from": sender, "to": receiver, "gbps": round(rate, 6), "both_ways": len(senders) == 2}
                rows.append(row)
        errors.pop(pair, None)
    except TaskFailed as error:
        errors[pair] = str(error)


def no_progress(done: int, total: int) -> None:
    """Report nothing."""


Progress = Callable[[int, int], None]
