"""What there is to see of a network: groups and tiers, the way of an order, a map, and what is missing or wrong.

Imported by commands that draw, when they run: it needs the solvers.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from plink.cli.inputs import network_from
from plink.cli.routes import route_of
from plink.cli.screen import say, took
from plink.errors import InputError, NoAnswer, UsageError
from plink.model.groups import read_groups
from plink.model.network import Matrix, Network
from plink.model.order import read_order
from plink.records import workspace
from plink.report.facts import Facts, Gap, Groups, Indices, Map, Remark, Route, Run, Tier
from solvers.diagnosis.findings import diagnose
from solvers.grouping.cluster import heard
from solvers.hierarchy.tiers import completed_far, tiers

_LISTED = 6  # pairs of one reason that are named
_REASONS = 12


def network_to_see(path: Path | None) -> Network:
    """The network a command was given, or the last one; refused when there is nothing to be seen of it.

    :raises UsageError: for a single host.
    :raises NoAnswer: when no round trip was measured.
    """
    network: Network = network_from(path)
    n = len(network.hosts)
    if n < 2:
        raise UsageError(f"one host ({network.hosts.names[0]}) has no network to draw; measure at least two")
    if np.isfinite(network.latency_us).sum() == n:
        raise NoAnswer(f"{network.where}: no round trip was measured, so there is nothing to draw; `plink probe` first")
    return network


def facts_of(
    network: Network,
    order: Path | None,
    groups: Path | None,
    runs: tuple[Run, ...] = (),
    place: Callable[[Facts], tuple[Map | None, str]] = lambda known: (None, ""),
) -> Facts:
    """Everything there is to show of a network; ``place`` makes the map, after all that could be refused was read.

    :raises PlinkError: as the functions below.
    """
    route, no_route = order_to_see(network, order)
    found = groups_of(network, groups)
    names = network.hosts.names
    known = Facts(
        tuple(names),
        network.latency_us,
        found,
        route,
        no_route,
        remarks=remarks_of(network, found),
        gaps=gaps_of(network),
        left_out=tuple(names[host] for host in left_out(network)),
        runs=runs,
        sources=tuple(str(path) for path in (network.where, order, groups) if path is not None),
    )
    there, no_map = place(known)
    return replace(known, map=there, no_map=no_map)


def groups_of(network: Network, path: Path | None) -> Groups:
    """The groups a file lists, else the last ones that were found for these hosts, else what the latencies tell; and
    the tiers they make.

    :raises InputError: when the file's groups are not of these hosts.
    """
    cost = network.completed_us
    if path is None and workspace.GROUPS.is_file():
        listed = {name for group in read_groups(workspace.GROUPS) for name in group}
        if listed == set(network.hosts.names):
            took(workspace.GROUPS)
            path = workspace.GROUPS
        else:
            say(f"{workspace.GROUPS} is for other hosts and is left aside")
    if path is not None:
        levels, source = [_listed(network, path)], f"as {path} lists them"
    else:
        levels, source = _nested(network, cost), "the tiers of the round trips"
    return Groups(levels[0], _tiers(network.rtt_us, levels), source)


def _listed(network: Network, path: Path) -> Indices:
    index = {name: i for i, name in enumerate(network.hosts.names)}
    labels = np.full(len(index), -1, dtype=np.intp)
    for number, group in enumerate(read_groups(path)):
        for name in group:
            if name not in index:
                raise InputError(str(path), f"{name} is none of the hosts in {network.where}")
            if labels[index[name]] >= 0:
                raise InputError(str(path), f"{name} is in two groups")
            labels[index[name]] = number
    missing = [network.hosts.names[i] for i in np.flatnonzero(labels < 0)]
    if missing:
        more = ", ..." if len(missing) > _LISTED else ""
        raise InputError(str(path), f"leaves out {', '.join(missing[:_LISTED])}{more}")
    return np.unique(labels, return_inverse=True)[1].astype(np.intp)


def _nested(network: Network, cost: Matrix) -> list[Indices]:
    """The groups of every tier that stands out, innermost first, each shape (N,); one group of all where none does."""
    n = len(cost)
    hosts = heard(cost)
    alone = np.setdiff1d(np.arange(n), hosts)  # nobody reached them, they say nothing of tiers: groups by themselves
    among = np.ix_(hosts, hosts)
    complete = completed_far(cost[among])
    halves = [half[among] for half in network.half_rtts_us]
    found = tiers(complete, [np.where(np.isnan(half), complete, half) for half in halves])
    levels = []
    for part in [tier.label for tier in found] or [np.zeros(len(hosts), dtype=np.intp)]:
        level = np.empty(n, dtype=np.intp)
        level[hosts] = part
        level[alone] = part.max() + 1 + np.arange(len(alone))
        levels.append(level)
    # Numbered so that groups which are near each other follow each other: that is how hosts are shown without an order.
    first = np.unique(levels[0], return_index=True)[1]
    ranked = first[np.lexsort([level[first] for level in levels])]
    number = np.empty(len(first), dtype=np.intp)
    number[levels[0][ranked]] = np.arange(len(first))
    return [number[levels[0]], *levels[1:]]


def _tiers(cost: Matrix, levels: list[Indices]) -> tuple[Tier, ...]:
    """Pairs by how many of the levels keep them apart."""
    apart = sum((labels[:, None] != labels[None, :]).astype(np.intp) for labels in levels)
    names = {1: ["inside groups", "between groups"], 2: ["inside groups", "between near groups", "between far groups"]}
    titles = names.get(
        len(levels), ["inside groups", *(f"{k} level{'s' * (k > 1)} apart" for k in range(1, len(levels) + 1))]
    )
    if levels[0].max() == 0:
        titles = ["all pairs", ""]
    found = []
    for number, name in enumerate(titles):
        pairs = np.triu(np.asarray(apart) == number, 1)
        values = cost[pairs & np.isfinite(cost)]
        if pairs.any():
            ends = np.percentile(values, [10, 50, 90]).tolist() if len(values) else [np.nan] * 3
            found.append(Tier(name, int(pairs.sum()), len(values), *ends))
    return tuple(found)


def order_to_see(network: Network, path: Path | None) -> tuple[Route | None, str]:
    """The way of the order a command was given, or of the last one if it was found for this network; else why there is
    none, a sentence.

    :raises InputError: when the file given is of other hosts, or cannot be read.
    """
    if path is not None:
        order = read_order(path)
        if order.network not in (None, network.fingerprint()):
            say(f"{path} was found for another measurement")
        return route_of(network, order, path), ""
    if not workspace.ORDER.is_file():
        return None, "There is no order yet; `plink reorder` finds one."
    order = read_order(workspace.ORDER)
    if order.network != network.fingerprint():
        say(f"{workspace.ORDER} was found for another network and is left aside")
        return None, "The last order was found for another network; `plink reorder` finds one for this."
    took(workspace.ORDER)
    return route_of(network, order, workspace.ORDER), ""


def remarks_of(network: Network, groups: Groups) -> tuple[Remark, ...]:
    """What the doctor says of the measurements; what was not measured is told apart from it."""
    findings = diagnose(network, groups.of, {})
    return tuple(
        Remark(finding.kind, tuple(finding.hosts), finding.evidence, finding.advice)
        for finding in findings
        if finding.kind != "unmeasured"
    )


def left_out(network: Network) -> list[int]:
    """Hosts of which no round trip was measured, either way."""
    known = np.isfinite(network.latency_us).sum(axis=0) + np.isfinite(network.latency_us).sum(axis=1)
    return np.flatnonzero(known == 2).tolist()


def gaps_of(network: Network) -> tuple[Gap, ...]:
    """What was not measured: a row for each host left out, then one for each reason."""
    names, alone = network.hosts.names, set(left_out(network))
    why = {(row["from"], row["to"]): row["why"] for row in network.errors}
    usual = "left to prediction" if network.details.get("plan") == "adaptive" else "never tried"
    reasons = [usual, *sorted(set(why.values()) - {usual})]
    number, index = {reason: k for k, reason in enumerate(reasons)}, {name: i for i, name in enumerate(names)}
    code = np.where(np.isnan(network.latency_us), 0, -1)  # of the reason, -1 where there is none to look for
    for (source, target), reason in why.items():
        if source in index and target in index and code[index[source], index[target]] >= 0:
            code[index[source], index[target]] = number[reason]
    gaps = []
    for host in sorted(alone):
        around = np.concatenate([code[host], code[:, host]])
        around = around[around >= 0]
        gaps.append(Gap(names[host], len(around), _most([reasons[k] for k in around.tolist()], usual)))
    among = code.copy()
    among[sorted(alone)] = among[:, sorted(alone)] = -1
    pairs_of = np.bincount(among[among >= 0].ravel(), minlength=len(reasons))
    told = [k for k in np.argsort(-pairs_of, kind="stable").tolist() if pairs_of[k]]
    for k in told[:_REASONS]:
        shown = [f"{names[i]} → {names[j]}" for i, j in np.argwhere(among == k)[:_LISTED].tolist()]
        more = f" and {pairs_of[k] - _LISTED} more" if pairs_of[k] > _LISTED else ""
        gaps.append(Gap(", ".join(shown) + more, int(pairs_of[k]), reasons[k]))
    rest = int(pairs_of[told[_REASONS:]].sum())
    return (*gaps, Gap("others", rest, f"{len(told) - _REASONS} further reasons")) if rest else tuple(gaps)


def _most(reasons: Iterable[str], usual: str) -> str:
    """The reason given most often; the usual one only where no other was."""
    counted: Any = Counter(reason for reason in reasons if reason != usual)
    return str(counted.most_common(1)[0][0]) if counted else usual
