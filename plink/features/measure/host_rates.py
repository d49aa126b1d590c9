"""What every host sends and receives: flows between rotating partners, and suspects tried again."""

from collections.abc import Callable, Sequence

from plink.model.document import UNSET
from plink.model.network import Matrix, symmetrised
from plink.model.network_file import FlowEntry, PairError
from probes.disjoint_pairs import Pair
from probes.host_flows import FlowSettings, exchange_flows, partner_rounds
from probes.measurements import Measurements
from probes.scheduler import OUT_OF_TIME
from probes.session import ProbeSession
from solvers.costs.host_flows import Flow, revealing_pairs, unreached_hosts
from solvers.diagnosis.bandwidth import fast_partner, half_duplex, slow_by_flows

TCP_BLOCKED = "TCP is blocked"
_MAX_SUSPECTS = 16
_REVEALING_ROUNDS = 3  # quick ones, which take as long as one


def measure_host_rates(
    session: ProbeSession,
    settings: FlowSettings,
    advance: Callable[[int, int], None] = lambda done, total: None,
    keep_going: Callable[[], bool] = lambda: True,
) -> None:
    """Measure flows of every host and add them to the measurements' details.

    Where rates differ, hosts that have met nobody faster meet the fastest, in as much time as one round takes.
    Hosts that look slow, or half duplex, exchange flows with fast ones, while nothing else is sent; and so do hosts
    that no flow reached, all at once. Where no flow of a round comes through, there is no further one.

    :param keep_going: asked before each round; what was measured until it says no is kept, and measured again by a
        run that resumes, as is all of it where flows failed.
    """
    measurements = session.measurements
    if measurements.details.host_flow_errors == []:
        return  # all of an earlier run, which is resumed
    names, rtt = measurements.hosts.names, symmetrised(measurements.latency)
    index = {name: host for host, name in enumerate(names)}
    errors: dict[Pair, str] = {}
    rows: list[FlowEntry] = []
    measurements.add(host_flows=rows, host_flow_errors=UNSET)
    rounds = partner_rounds(rtt, settings)
    for done, pairs in enumerate(rounds, 1):
        if not keep_going():
            return
        rows += exchange_flows(session, pairs, settings, errors)
        advance(done, len(rounds))
        if errors and not rows:
            break
    retried = _again_with_fast(rows, errors, index, rtt)
    if retried and keep_going():
        rows += exchange_flows(session, retried, settings, errors)
    for _ in range(_REVEALING_ROUNDS):
        revealing = revealing_pairs(_flows(rows, index), rtt)
        if not revealing or not keep_going():
            break
        rows += exchange_flows(session, revealing, settings, errors, quick=True)
    flows = _flows(rows, index)
    suspects = [slow.host for slow in slow_by_flows(flows, len(names))]
    suspects += [host for host in half_duplex(flows, len(names), min_partners=1) if host not in suspects]
    for host in suspects[:_MAX_SUSPECTS]:
        # Another partner than before, if there is one, tells more.
        partners = [flow.source + flow.target - host for flow in flows if host in (flow.source, flow.target)]
        partner = fast_partner(flows, [*suspects, *partners], host, rtt)
        partner = fast_partner(flows, suspects, host, rtt) if partner is None else partner
        if partner is not None and keep_going():
            rows += exchange_flows(session, [(min(host, partner), max(host, partner))], settings, errors)
    measurements.add(
        host_flow_errors=[
            PairError(source=names[a], target=names[b], reason=reason)
            for (a, b), reason in sorted(errors.items())
            if reason != OUT_OF_TIME
        ]
    )


def unreached_by_flows(measurements: Measurements) -> list[int]:
    """Return the hosts that no flow reached or left; the flows say so, if there are any."""
    index = {name: host for host, name in enumerate(measurements.hosts.names)}
    failed = [(index[row.source], index[row.target]) for row in (measurements.details.host_flow_errors or ())]
    return unreached_hosts(_flows((measurements.details.host_flows or ()), index), failed)


def _flows(rows: Sequence[FlowEntry], index: dict[str, int]) -> list[Flow]:
    return [Flow(index[row.source], index[row.target], row.gbps, row.both_ways) for row in rows]


def _again_with_fast(
    rows: Sequence[FlowEntry], errors: dict[Pair, str], index: dict[str, int], rtt_us: Matrix
) -> list[Pair]:
    """Return disjoint pairs of hosts that no flow reached, which may be their partners' fault, with fast ones."""
    flows = _flows(rows, index)
    unreached = unreached_hosts(flows, list(errors))
    pairs: list[Pair] = []
    excluded = list(unreached)
    for host in unreached:
        tried = [a + b - host for a, b in errors if host in (a, b)]
        partner = fast_partner(flows, [*excluded, *tried], host, rtt_us)
        if partner is not None:
            excluded.append(partner)
            pairs.append((min(host, partner), max(host, partner)))
    return pairs
