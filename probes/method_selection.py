"""Selection of the probing method for each host, by trials before the rounds begin (``--method auto``)."""

from collections.abc import Collection
from dataclasses import dataclass, replace

import numpy as np

from plink.model.units import count
from probes.disjoint_pairs import Pair, RoundRobin, as_pairs
from probes.measurements import Measurements
from probes.methods import MeasurementContext, probe_task
from probes.session import ProbeSession

ORDER = ("stamp", "icmp", "tcp")  # best first
_COUNT = 20
_PARTNERS = 3  # a method is ruled out for a host only after so many others could not reach it


def remeasure(
    session: ProbeSession, pairs: list[tuple[int, int]], count: int, method: str = "stamp"
) -> dict[tuple[int, int], float]:
    """Return the 10th percentile of both directions of every pair that was measured both ways, microseconds.

    The pairs need not be disjoint: the scheduler runs those that share a host one after the other.
    """
    scratch = Measurements(session.measurements.hosts)
    # SSIDs continue those of the session: an agent never sees one twice.
    settings = replace(session.context.settings, count=count)
    context = MeasurementContext(settings, session.agents, scratch, session.context.ssids)
    session.scheduler.run([probe_task(context, method, *pair) for pair in dict.fromkeys(pairs)])
    directions = [direction for i, j in pairs for direction in ((i, j), (j, i))]
    return {
        (i, j): float(scratch.latency[i, j])
        for i, j in directions
        if not np.isnan(scratch.latency[i, j] + scratch.latency[j, i])
    }


@dataclass(frozen=True)
class MethodSelection:
    """The best method that reaches each host. Hosts that no method reaches have the last."""

    by_host: tuple[str, ...]
    summary: str

    def __call__(self, i: int, j: int) -> str:
        """Return the method for a pair: the less demanding of its two hosts'."""
        return ORDER[max(ORDER.index(self.by_host[i]), ORDER.index(self.by_host[j]))]


def select_methods(session: ProbeSession) -> MethodSelection:
    """Try the methods, best first, each on the hosts that no better one reaches."""
    n = len(session.measurements.hosts)
    best: dict[int, str] = {}
    for method in ORDER:
        for host in reachable_hosts(session, method, set(best)):
            best.setdefault(host, method)
    by_host = tuple(best.get(host, ORDER[-1]) for host in range(n))
    counted = ", ".join(f"{count(by_host.count(m), 'host')} by {m}" for m in ORDER if m in by_host)
    return MethodSelection(by_host, counted)


def reachable_hosts(session: ProbeSession, method: str, reached: set[int], cut: Collection[Pair] = ()) -> set[int]:
    """Return the hosts that the method reaches, those of ``reached`` included.

    Each host is tried in pairs with up to three others. One that reached none of them, which may be their fault, is
    tried once more with a host that answered.

    :param cut: pairs (i < j) that cannot reach each other, though others reach both: they are not tried.
    """
    hosts = [host for host in range(len(session.measurements.hosts)) if host not in session.scheduler.lost_hosts]
    schedule = RoundRobin(len(hosts), seed=0)
    rounds = min(_PARTNERS + len(hosts) % 2, len(schedule))  # one more where each host may be idle once
    answered: set[int] = set()
    for pairs in [as_pairs(schedule[k]) for k in range(rounds)]:
        untried = [(hosts[a], hosts[b]) for a, b in pairs if not reached | answered >= {hosts[a], hosts[b]}]
        untried = [pair for pair in untried if pair not in cut]
        answered |= {host for pair in remeasure(session, untried, _COUNT, method) for host in pair}
    silent = sorted(set(hosts) - reached - answered)
    partners = sorted(answered)
    retries = []
    for k, host in enumerate(silent):
        pairs = [(min(host, other), max(host, other)) for other in partners[k:] + partners[:k]]
        retries += [pair for pair in pairs if pair not in cut][:1]
    answered |= {host for pair in remeasure(session, retries, _COUNT, method) for host in pair}
    return reached | answered
