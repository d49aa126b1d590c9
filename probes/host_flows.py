"""Bounded TCP flows between rotating, disjoint pairs: what every host sends and receives.

Round trips do not show a rate. So every host exchanges flows with a few partners, one way, the other way, and both ways
at once, half a second each: N hosts take as long as two. Partners are near each other, so that their flows do not meet
on links that groups of hosts share.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from plink.model.network import Matrix
from plink.model.network_file import FlowEntry
from probes.disjoint_pairs import Pair, as_pairs, disjoint, nearest_pairs
from probes.methods import FlowLimits, run_flows
from probes.scheduler import ProbeTask, RequestBatches, TaskFailed
from probes.session import ProbeSession

DRAIN_S = 0.3  # what is still queued of the flows before would slow the next ones
_QUICK_SHARE = 0.4  # of the time of a flow, each of which takes 0.1 s more: three times two are as long as three
_NEAREST = 8  # partners that a host may get before any other is taken


@dataclass(frozen=True)
class FlowSettings:
    """``seconds`` a flow, at most ``max_bytes``, ``accept_s`` until it connects; ``rounds`` of partners for each
    host."""

    seconds: float = 0.5
    max_bytes: int = 64_000_000
    rounds: int = 2
    seed: int = 0
    accept_s: float = 5.0


def partner_rounds(rtt_us: Matrix, settings: FlowSettings) -> list[list[Pair]]:
    """Return rounds of disjoint pairs, near partners first, none twice; every host is in as many as ``rounds`` says.

    In a round of an odd number of hosts one has no partner; further rounds have only those that lack one.

    :param rtt_us: symmetric round trips, shape (N, N), NaN where unmeasured.
    """
    n, rng = len(rtt_us), np.random.default_rng(settings.seed)
    far = np.nanmax(rtt_us, initial=1.0)
    distance = np.where(np.isnan(rtt_us), 2 * far, rtt_us)
    closed, alive = np.eye(n, dtype=bool), np.ones(n, dtype=bool)
    rounds = []
    for _ in range(settings.rounds):
        candidates = nearest_pairs(lambda hosts: distance[hosts].copy(), closed, alive, _NEAREST, rng)
        pairs = disjoint(candidates, closed, alive, rng)
        closed[pairs[:, 0], pairs[:, 1]] = closed[pairs[:, 1], pairs[:, 0]] = True
        rounds.append(as_pairs(pairs))
    for _ in range(settings.rounds):
        partners = closed.sum(axis=1) - 1
        rounds.append(_nearest_unmet(np.flatnonzero(partners < min(settings.rounds, n - 1)), distance, closed))
    return [pairs for pairs in rounds if pairs]


def _nearest_unmet(hosts: npt.NDArray[np.intp], distance: Matrix, closed: npt.NDArray[np.bool_]) -> list[Pair]:
    """Return disjoint pairs of these hosts, each with the nearest host it has not met, and close them."""
    pairs: list[Pair] = []
    free = np.ones(len(distance), dtype=bool)
    for host in hosts.tolist():
        candidates = np.flatnonzero(free & ~closed[host])
        if not free[host] or not len(candidates):
            continue
        partner = int(candidates[np.argmin(distance[host, candidates])])
        free[host] = free[partner] = False
        closed[host, partner] = closed[partner, host] = True
        pairs.append((min(host, partner), max(host, partner)))
    return pairs


def exchange_flows(
    session: ProbeSession,
    pairs: Sequence[Pair],
    settings: FlowSettings,
    errors: dict[Pair, str],
    *,
    quick: bool = False,
) -> list[FlowEntry]:
    """Measure disjoint pairs at the same time, and return rows of ``host_flows`` in the network file.

    :param errors: receives why flows from the first host of a pair to the second could not be measured.
    :param quick: shorter flows, and not both ways at once: a third of the time.
    """
    rows = list[FlowEntry]()

    def task(pair: Pair) -> ProbeTask:
        return ProbeTask(
            pair,
            _exchange(session, pair, settings, rows, errors, quick),
            lambda reason: errors.update({pair: reason, pair[::-1]: reason}),
        )

    time.sleep(DRAIN_S / 3 if quick else DRAIN_S)
    # Flows wait for the network, not for cores: hosts that share a kernel exchange theirs at the same time, too.
    session.scheduler.run([task(pair) for pair in pairs], cores_per_task=0)
    return rows


def _exchange(
    session: ProbeSession,
    pair: Pair,
    settings: FlowSettings,
    rows: list[FlowEntry],
    errors: dict[Pair, str],
    quick: bool,
) -> RequestBatches:
    """Measure one pair: a flow each way, then both at once if both came through."""
    (a, b), names = pair, session.measurements.hosts.names
    limits = FlowLimits(
        _QUICK_SHARE * settings.seconds if quick else settings.seconds, settings.max_bytes, settings.accept_s
    )
    for senders in ((a,), (b,)) if quick else ((a,), (b,), (a, b)):
        ways = [(sender, a + b - sender) for sender in senders]
        if len(ways) == 2 and not errors.keys().isdisjoint(ways):
            return
        try:
            rates = yield from run_flows(session.context, pair, senders, limits)
        except TaskFailed as error:
            errors.update(dict.fromkeys(ways, str(error)))
            continue
        rows += [
            FlowEntry(source=names[sender], target=names[receiver], gbps=round(rate, 6), both_ways=len(senders) == 2)
            for sender, receiver, rate in rates
        ]
        for way in ways:
            errors.pop(way, None)
