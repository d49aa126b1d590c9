"""Tables of a page: what the pictures show as text, for those who read, listen or search."""

import html
import re
from collections.abc import Iterable, Sequence

import numpy as np

from plink.report.achieved import unit_for
from plink.report.colours import group_colour, group_mark
from plink.report.facts import Facts, Floats, Tier
from plink.report.words import measured_of, microseconds

_MOST = 60  # rows of what is wrong or missing
_MATRIX = 24  # hosts of which all round trips fit in a table
_WORST = 8


class Cell(str):
    """Markup of our own, not to be escaped."""


def prose(text: str) -> str:
    """Text as HTML; what stands between `backticks` is something to type."""
    return re.sub("`([^`]+)`", r"<code>\1</code>", html.escape(text))


def table(caption: str, heads: Sequence[str], rows: Iterable[Sequence[object]], numbers: int = 0) -> str:
    """An HTML table; the first column heads its rows. ``numbers``: how many of the last columns hold numbers."""
    head = "".join(
        f'<th scope="col"{_right(k, len(heads), numbers)}>{html.escape(text)}</th>' for k, text in enumerate(heads)
    )
    body = "".join(f"<tr>{_cells(row, numbers)}</tr>" for row in rows)
    return (
        f'<div class="scroll"><table><caption>{html.escape(caption)}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _cells(row: Sequence[object], numbers: int) -> str:
    texts = [str(cell) if isinstance(cell, Cell) else prose(str(cell)) for cell in row]
    first, *others = texts
    later = "".join(f"<td{_right(k, len(texts), numbers)}>{text}</td>" for k, text in enumerate(others, start=1))
    return f'<th scope="row">{first}</th>{later}'


def _right(column: int, columns: int, numbers: int) -> str:
    return ' class="number"' if column >= columns - numbers else ""


def mark(group: int) -> Cell:
    """A group's mark in its colour, and its number."""
    return Cell(
        f'<span class="mark" style="color: {group_colour(group)}" aria-hidden="true">{group_mark(group)[1]}</span>'
        f" {group + 1}"
    )


def tiers(facts: Facts) -> str:
    """The tiers from near to far."""
    rows = [
        (tier.name, measured_of(tier), microseconds(tier.median_us), _between(tier))
        if tier.measured
        else (tier.name, measured_of(tier), "–", "–")
        for tier in facts.groups.tiers
    ]
    return table("Tiers", ("tier", "pairs measured", "median", "80% within"), rows, 3)


def _between(tier: Tier) -> str:
    return f"{tier.low_us:.3g} – {microseconds(tier.high_us)}"


def groups(facts: Facts) -> str:
    """Who belongs to which group."""
    rows = [
        (mark(group), len(members), ", ".join(facts.names[host] for host in members))
        for group, members in enumerate(facts.groups.members())
    ]
    return table(f"Groups: {facts.groups.source}", ("group", "hosts", "names"), rows)


def hosts(facts: Facts) -> str:
    """One row a host: its place, group, nearest host, usual round trip, and what is missing."""
    n = len(facts.names)
    place = np.argsort(facts.shown_order())
    rows = []
    for host, name in enumerate(facts.names):
        around = np.where(np.arange(n) == host, np.nan, np.fmax(facts.measured_us[host], facts.measured_us[:, host]))
        known = np.isfinite(around)
        nearest = int(np.nanargmin(around)) if known.any() else None
        rows.append(
            (
                name,
                mark(int(facts.groups.of[host])),
                int(place[host]),
                "–" if nearest is None else f"{facts.names[nearest]}, {microseconds(float(around[nearest]))}",
                "–" if nearest is None else microseconds(float(np.nanmedian(around))),
                int(n - 1 - known.sum()),
            )
        )
    which = "place in the order" if facts.route is not None else "position"
    return table(
        "Hosts (of the two directions of a pair the slower)",
        ("host", "group", which, "nearest", "median round trip", "pairs unmeasured"),
        rows,
        3,
    )


def matrix(facts: Facts) -> str:
    """All round trips of few hosts; nothing for many."""
    if len(facts.names) > _MATRIX:
        return ""
    rows = [
        (name, *("–" if i == j else "?" if value != value else f"{value:.1f}" for j, value in enumerate(row)))
        for i, (name, row) in enumerate(zip(facts.names, facts.measured_us.tolist(), strict=True))
    ]
    return table("Round trips, µs, from row to column", ("from", *facts.names), rows, len(facts.names))


def departing(facts: Facts, ratio: Floats) -> str:
    """The pairs that are farthest from what the embedding says of them."""
    off = np.abs(np.log(np.where(np.isfinite(ratio), ratio, 1.0)))
    both = np.triu(np.fmax(off, off.T), 1)
    rows = []
    least = np.partition(both, -_WORST, axis=None)[-_WORST] if both.size > _WORST else 0.0
    far = np.flatnonzero((both >= least) & (both > 0))
    for at in far[np.argsort(-both.ravel()[far], kind="stable")][:_WORST].tolist():
        i, j = divmod(at, len(ratio))
        i, j = (i, j) if off[i, j] >= off[j, i] else (j, i)
        assert facts.map is not None
        fitted = microseconds(float(facts.map.fitted_us[i, j]))
        measured = microseconds(float(facts.measured_us[i, j]))
        rows.append((f"{facts.names[i]} → {facts.names[j]}", measured, fitted, f"{ratio[i, j]:.2f}"))
    return table("The pairs farthest from it", ("pair", "measured", "fitted", "ratio"), rows, 3) if rows else ""


def gaps(facts: Facts) -> str:
    """What was not measured, and why."""
    rows: list[tuple[str, ...]] = [(gap.who, gap.why, f"{gap.pairs:,}") for gap in facts.gaps[:_MOST]]
    rows += _rest(len(facts.gaps), 3)
    return table("Round trips that were not measured", ("between", "why", "number"), rows, 1)


def remarks(facts: Facts) -> str:
    """Suspects, with the evidence and what to do."""
    rows: list[tuple[str, ...]] = [
        (remark.kind, ", ".join(remark.hosts), remark.evidence, remark.advice) for remark in facts.remarks[:_MOST]
    ]
    rows += _rest(len(facts.remarks), 4)
    return table("Suspects", ("what", "hosts", "evidence", "what to do"), rows)


def _rest(there: int, columns: int) -> list[tuple[str, ...]]:
    """A row that says how many are not shown."""
    return [(f"and {there - _MOST:,} more", *[""] * (columns - 1))] if there > _MOST else []


def runs(facts: Facts) -> str:
    """Predicted against achieved, an order a row."""
    largest = max(max(run.achieved_s) for run in facts.runs)
    times, unit = unit_for(largest)
    rows = [
        (
            run.order,
            "–" if run.predicted_us is None else microseconds(run.predicted_us),
            f"{float(np.median(run.achieved_s)) * times:.3g} {unit}",
            f"{min(run.achieved_s) * times:.3g} – {max(run.achieved_s) * times:.3g} {unit}",
            len(run.achieved_s),
        )
        for run in facts.runs
    ]
    heads = ("order", "predicted", "median", "fastest – slowest", "runs")
    return table("Predicted against achieved", heads, rows, 4)
