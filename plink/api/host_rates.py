"""What every host sends and receives: flows between rotating partners, and suspects tried again."""

from collections.abc import Callable
from typing import Any

from plink.model.network import symmetrised
from probes.host_flows import FlowSettings, exchange_flows, partner_rounds
from probes.round_robin import Pair
from probes.session import ProbeSession
from solvers.costs.host_flows import Flow
from solvers.diagnosis.host_rates import fast_partner, half_duplex, slow_by_flows

_MAX_SUSPECTS = 16


def measure_host_rates(
    session: ProbeSession,
    settings: FlowSettings,
    advance: Callable[[int, int], None] = lambda done, total: None,
    keep_going: Callable[[], bool] = lambda: True,
) -> None:
    """Measure flows of every host and add them to the measurements' details.

    Hosts that look slow, or half duplex, exchange flows with fast ones, while nothing else is sent.

    :param keep_going: asked before each round; what was measured until it says no is kept, and measured again by a
        run that resumes.
    """
    measurements = session.measurements
    if "host_flow_errors" in measurements.details:
        return  # all of an earlier run, which is resumed
    names, rtt = measurements.hosts.names, symmetrised(measurements.latency)
    index = {name: host for host, name in enumerate(names)}
    errors: dict[Pair, str] = {}
    rows: list[dict[str, Any]] = []
    measurements.details["host_flows"] = rows
    rounds = partner_rounds(rtt, settings)
    for done, pairs in enumerate(rounds, 1):
        if not keep_going():
            return
        rows += exchange_flows(session, pairs, settings, errors)
        advance(done, len(rounds))
    flows = [Flow(index[row["from"]], index[row["to"]], row["gbps"], row["both_ways"]) for row in rows]
    suspects = [slow.host for slow in slow_by_flows(flows, len(names))]
    suspects += [host for host in half_duplex(flows, len(names), min_partners=1) if host not in suspects]
    for host in suspects[:_MAX_SUSPECTS]:
        # Another partner than before, if there is one, tells more.
        partners = [flow.source + flow.target - host for flow in flows if host in (flow.source, flow.target)]
        partner = fast_partner(flows, [*suspects, *partners], host, rtt)
        partner = fast_partner(flows, suspects, host, rtt) if partner is None else partner
        if partner is not None and keep_going():
            rows += exchange_flows(session, [(min(host, partner), max(host, partner))], settings, errors)
    measurements.details["host_flow_errors"] = [
        {"from": names[a], "to": names[b], "why": reason} for (a, b), reason in sorted(errors.items())
    ]
