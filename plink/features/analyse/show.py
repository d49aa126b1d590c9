"""Lines of an embedding and of groups."""

import math
from collections.abc import Iterator

from plink.model.embedding import NetworkEmbedding
from plink.model.groups import Groups, GroupTier
from plink.model.hostlist import fold_hostlist
from plink.model.units import format_us, numbered
from plink.terminal.screen import show_table

_WORST_PAIRS = 3
_MIN_AGREEMENT = 0.75


def embedding_lines(embedding: NetworkEmbedding) -> Iterator[str]:
    """Yield what the space is like, and how far off its distances are."""
    yield ", ".join(
        (
            f"{len(embedding.hosts)} hosts in {embedding.dimension} dimension{'s' if embedding.dimension > 1 else ''}",
            f"alpha {embedding.alpha:g}",
            "heights" if embedding.heights else "no heights",
            f"{embedding.loss} errors",
        )
    ) + (f" (the best of {embedding.settings_tried} settings)" if embedding.settings_tried > 1 else "")
    by_near = embedding.unmeasured_by == "neighbours"
    violations = math.nan if embedding.triangle_violations is None else embedding.triangle_violations
    yield (
        f"on pairs it had not seen it is {embedding.held_out_error:.1%} off"
        f"{' by near hosts, which predict unmeasured pairs' if by_near else ''}; "
        f"{violations:.1%} of the measured detours are shorter than the straight way"
    )
    worst = [
        f"{embedding.hosts[i]} - {embedding.hosts[j]} ({format_us(measured)}, fitted {format_us(fitted)})"
        for i, j, measured, fitted in _worst_pairs(embedding)
    ]
    if worst:
        yield f"farthest from the fit: {', '.join(worst)}"


def _worst_pairs(embedding: NetworkEmbedding) -> list[tuple[int, int, float, float]]:
    """Return the pairs whose measurement differs most from the fit, by ratio: (i, j, measured, fitted)."""
    pairs = [
        (i, j, measured, embedding.fitted_us[i][j])
        for i, row in enumerate(embedding.measured_us)
        for j, measured in enumerate(row[i + 1 :], i + 1)
        if measured and embedding.fitted_us[i][j]
    ]
    return sorted(pairs, key=lambda pair: -abs(math.log(pair[3] / pair[2])))[:_WORST_PAIRS]


def print_groups(grouping: Groups) -> None:
    """Print a table of the groups, with round trips within each, and the lines below it."""
    rows = [
        (k, len(names), _us(within.mean_us), _us(within.longest_us), fold_hostlist(names, " "))
        for k, (names, within) in enumerate(zip(grouping.groups, grouping.within, strict=True), 1)
    ]
    show_table(("group", "hosts", "mean", "longest", "members"), rows, "balanced groups", boxed=True)
    print("\n".join(_lines(grouping)))


def _lines(grouping: Groups) -> Iterator[str]:
    if grouping.cohesion_us is not None:
        hosts, missing = sum(map(len, grouping.groups)), grouping.predicted_pairs
        predicted = f"; {missing} of {hosts * (hosts - 1) // 2} pairs predicted" if missing else ""
        yield (
            f"mean round trip within groups {_us(grouping.cohesion_us)}, across {_us(grouping.across_us)}; "
            f"within balanced random groups {_us(grouping.random.cohesion_us)}{predicted}"
        )
    if grouping.agreement.runs > 1:
        ami = grouping.agreement.ami
        caveat = "" if ami >= _MIN_AGREEMENT else "; other groups would be about as good"
        yield f"{grouping.agreement.runs} searches agree by {ami:.2f} (adjusted mutual information){caveat}"
    compared = None not in (grouping.random.cohesion_us, grouping.cohesion_us)
    if len(grouping.groups) > 1 and compared and not grouping.tiers:
        yield "these groups may be noise: no tier confirms them"
    yield from (_tier(tier) for tier in grouping.tiers)
    if not grouping.tiers:
        yield "no tier stands out"


def _tier(tier: GroupTier) -> str:
    sizes = sorted(len(group) for group in tier.groups)
    groups, most = numbered(len(tier.groups), "group"), numbered(sizes[-1], "host")
    span = most if sizes[0] == sizes[-1] else f"{sizes[0]} to {most}"
    return (
        f"tier: {groups} of {span}, {_us(tier.within_us)} within, {_us(tier.next_us)} to the "
        f"next; confidence {tier.confidence:.2f}"
    )


def _us(value: float | None) -> str:
    return "-" if value is None or not math.isfinite(value) else format_us(value)
