"""Compare two networks: what got worse or better beyond noise, and other differences."""

from collections.abc import Sequence

import numpy as np

from plink.errors import NoAnswer
from plink.model.comparison import ComparedCounts, ComparedFile, NetworkComparison
from plink.model.network import Network, symmetrised
from plink.model.units import count
from solvers.changes.differences import (
    WORSE,
    ChangeThresholds,
    hops,
    losses,
    missing,
    round_trips,
)
from solvers.changes.noise import Aligned, Labels, align, otherwise
from solvers.changes.rates import capacities, host_rates, interface_rates, pair_rates
from solvers.hierarchy.tiers import completed_by_detours, groupings

_MIN_MEASURED_SHARE = 0.5  # of all pairs: below, the groups of the tiered prediction are used


def compare(old: Network, new: Network, limits: ChangeThresholds) -> NetworkComparison:
    """Compare the hosts that both files have.

    :raises NoAnswer: when they share fewer than two hosts or no measured pair.
    :raises InputError: when a matrix of a file is malformed.
    """
    aligned = align(old, new)
    if len(aligned.names) < 2:
        shared = f"one host ({aligned.names[0]})" if aligned.names else "no host"
        raise NoAnswer(f"{old.location} and {new.location} share {shared}, by name; a comparison needs two at least")
    assumed = [bool(network.details.assumed_from) for network in (old, new)]
    if assumed[0] != assumed[1]:
        which = old if assumed[0] else new
        raise NoAnswer(f"{which.location} was not measured but assumed from {which.details.assumed_from}; probe it")
    differ = np.zeros((len(aligned.names), len(aligned.names)), dtype=bool)
    notes = []
    for what, key, used in (("method", "methods", "method_used"), ("clock", "clocks", "clock_used")):
        mask, ways = otherwise(aligned, key, used)
        if mask.any():
            number = count(int(mask.sum()), "round trip was", "round trips were")
            notes.append(f"{number} measured by another {what} now ({ways}): not compared")
        differ |= mask
    groups = _groupings(aligned)
    trips = round_trips(aligned, groups, differ, limits)
    rate_findings, rates, lost = pair_rates(aligned, groups, limits)
    host_findings, own_rates, own_lost = host_rates(aligned, groups, limits)
    port_findings, port_rates, ports_lost = interface_rates(aligned, limits)
    rate_findings += port_findings
    named = {(finding.hosts, finding.verdict) for finding in rate_findings}
    rate_findings += [finding for finding in host_findings if (finding.hosts, finding.verdict) not in named]
    capacity_findings, shared_links, regrouped, unshared = capacities(aligned, limits)
    absent = missing(aligned, groups, limits)
    if regrouped:
        subject = count(regrouped, "group's shared links are", "groups' shared links are")
        notes.append(f"{subject} of other hosts now: not compared")
    for lacking, singular, plural in (
        (lost, "pair's bandwidth was", "pairs' bandwidths were"),
        (own_lost, "rate of hosts was", "rates of hosts were"),
        (ports_lost, "rate of interfaces was", "rates of interfaces were"),
        (unshared, "shared capacity was", "shared capacities were"),
    ):
        if lacking:
            notes.append(f"{count(lacking, singular, plural)} measured before and not now: not compared")
    if not trips.pairs and not rates and not own_rates and not port_rates and not absent:
        raise NoAnswer(
            f"{old.location} and {new.location} have no measured pair in common"
            + "".join(f"; {note}" for note in notes)
        )
    findings = (
        *trips.findings,
        *absent,
        *losses(aligned, groups, differ, limits),
        *rate_findings,
        *capacity_findings,
        *hops(aligned, groups),
    )
    return NetworkComparison(
        ok=all(finding.verdict != WORSE for finding in findings),
        old=_file(old),
        new=_file(new),
        threshold=limits.share,
        floor_us=limits.floor_us,
        hosts=aligned.names,
        gone=aligned.gone,
        come=aligned.come,
        moved=aligned.moved,
        compared=ComparedCounts(
            round_trips=trips.pairs,
            rates=rates,
            host_rates=own_rates,
            interface_rates=port_rates,
            capacities=shared_links,
        ),
        shift=round(trips.shift, 6),
        noise=round(trips.noise, 6),
        findings=findings,
        notes=tuple(notes),
    )


def _file(network: Network) -> ComparedFile:
    return ComparedFile(
        file=network.location, measured_at=network.details.measured_at or None, network=network.fingerprint()
    )


def _groupings(aligned: Aligned) -> Sequence[Labels]:
    """Return the groups of the hosts in the old file.

    Where most of its pairs were not measured, these are the groups of the tiered prediction.
    """
    latency = aligned.old.latency()
    cost = symmetrised(latency)
    np.fill_diagonal(cost, 0.0)
    measured = np.isfinite(cost)
    if measured.sum() == len(cost):
        return []
    if measured.mean() < _MIN_MEASURED_SHARE:
        from solvers.prediction.tiered import predict_tiered

        np.fill_diagonal(latency, 0.0)
        return [predict_tiered(latency).groups]
    return groupings(completed_by_detours(cost))
