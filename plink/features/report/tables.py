"""Tables of a page: what the pictures show as text, to read, listen to or search."""

import html
import re
from collections.abc import Iterable, Sequence

import numpy as np

from plink.features.report.colours import group_colour, group_mark
from plink.features.report.data import ReportData
from plink.features.report.link_tree import capacity, load
from plink.features.report.words import tier_table
from plink.model.hostlist import fold_hostlist
from plink.model.units import format_gbps, format_prediction, format_us, significant, time_unit
from plink.pictures import Floats

_MAX_ROWS = 60  # rows of what is wrong or missing
_MAX_MATRIX_HOSTS = 24  # hosts of which all round trips fit in a table
_MAX_WORST_PAIRS = 8


class Cell(str):
    """Markup that is not escaped."""


def prose(text: str) -> str:
    """Return text as HTML, `backticks` as code."""
    return re.sub("`([^`]+)`", r"<code>\1</code>", html.escape(text))


def table(caption: str, heads: Sequence[str], rows: Iterable[Sequence[object]], numbers: int = 0) -> str:
    """Return an HTML table; the first column heads its rows. ``numbers``: how many of the last columns hold numbers."""
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
    first, *rest = texts
    cells = "".join(f"<td{_right(k, len(texts), numbers)}>{text}</td>" for k, text in enumerate(rest, start=1))
    return f'<th scope="row">{first}</th>{cells}'


def _right(column: int, columns: int, numbers: int) -> str:
    return ' class="number"' if column >= columns - numbers else ""


def mark(group: int) -> Cell:
    """Return a group's mark in its colour, and its number."""
    return Cell(
        f'<span class="mark" style="color: {group_colour(group)}" aria-hidden="true">{group_mark(group)[1]}</span>'
        f" {group + 1}"
    )


def tiers(data: ReportData) -> str:
    """Return the table of tiers from near to far."""
    heads, *rows = tier_table(data)
    return table("Tiers", heads, rows, 3)


def groups(data: ReportData) -> str:
    """Return the table of groups and their hosts."""
    rows = [
        (mark(group), len(members), ", ".join(data.names[host] for host in members))
        for group, members in enumerate(data.groups.members())
    ]
    return table(f"Groups: {data.groups.source}", ("group", "hosts", "names"), rows)


def hosts(data: ReportData) -> str:
    """Return the table of hosts: position, group, nearest host, usual round trip, and unmeasured pairs."""
    n = len(data.names)
    place = np.argsort(data.shown_order())
    hubs = set() if data.route is None else set(range(n)) - set(data.route.order.tolist())
    rows = []
    for host, name in enumerate(data.names):
        latencies = np.where(np.arange(n) == host, np.nan, np.fmax(data.measured_us[host], data.measured_us[:, host]))
        measured = np.isfinite(latencies)
        nearest = int(np.nanargmin(latencies)) if measured.any() else None
        rows.append(
            (
                name,
                mark(int(data.groups.of[host])),
                "hub" if host in hubs else int(place[host]),
                "–" if nearest is None else f"{data.names[nearest]}, {format_us(float(latencies[nearest]))}",
                "–" if nearest is None else format_us(float(np.nanmedian(latencies))),
                int(n - 1 - measured.sum()),
            )
        )
    position_head = "place in the order" if data.route is not None else "position"
    return table(
        "Hosts (of the two directions of a pair the slower)",
        ("host", "group", position_head, "nearest", "median round trip", "pairs unmeasured"),
        rows,
        3,
    )


def links(data: ReportData) -> str:
    """Return the table of shared links, the innermost tier first."""
    rows = []
    is_known = any(link.confidence is not None for tier_links in data.bandwidths.tiers for link in tier_links)
    for tier, tier_links in enumerate(data.bandwidths.tiers, 1):
        for link in tier_links:
            names = fold_hostlist([data.names[host] for host in link.members], ", ")
            row = [tier, len(link.members), names, capacity(link.out), capacity(link.into)]
            if data.bandwidths.size_bytes is not None:
                row += [load(link.out), load(link.into)]
            rows.append([*row, *([_confidence(link.confidence)] if is_known else []), link.reason or "–"])
    loads = [] if data.bandwidths.size_bytes is None else ["load out", "load in"]
    heads = ["tier", "hosts", "names", "out", "in", *loads, *(["confidence"] if is_known else []), "note"]
    return table("Shared links (in brackets: lowest to highest of the repeats)", heads, rows)


def _confidence(share: float | None) -> str:
    return "–" if share is None else f"{share:.0%}"


def rates(data: ReportData) -> str:
    """Return the table of what each host sends and receives at best."""
    measured = data.bandwidths
    if measured.out_gbps is None or measured.in_gbps is None:
        return ""
    rows = [
        (name, *("–" if value != value else format_gbps(value) for value in values))
        for name, *values in zip(data.names, measured.out_gbps.tolist(), measured.in_gbps.tolist(), strict=True)
    ]
    return table("Hosts, at best with any other", ("host", "sends", "receives"), rows, 2)


def matrix(data: ReportData) -> str:
    """Return the table of all round trips for few hosts, nothing for many."""
    if len(data.names) > _MAX_MATRIX_HOSTS:
        return ""
    rows = [
        (name, *("–" if i == j else "?" if value != value else f"{value:.1f}" for j, value in enumerate(row)))
        for i, (name, row) in enumerate(zip(data.names, data.measured_us.tolist(), strict=True))
    ]
    return table("Round trips, us, from row to column", ("from", *data.names), rows, len(data.names))


def departing(data: ReportData, ratio: Floats) -> str:
    """Return the table of pairs that the embedding explains worst."""
    off = np.abs(np.log(np.where(np.isfinite(ratio), ratio, 1.0)))
    deviation = np.triu(np.fmax(off, off.T), 1)
    rows = []
    threshold = (
        np.partition(deviation, -_MAX_WORST_PAIRS, axis=None)[-_MAX_WORST_PAIRS]
        if deviation.size > _MAX_WORST_PAIRS
        else 0.0
    )
    candidates = np.flatnonzero((deviation >= threshold) & (deviation > 0))
    for index in candidates[np.argsort(-deviation.ravel()[candidates], kind="stable")][:_MAX_WORST_PAIRS].tolist():
        i, j = divmod(index, len(ratio))
        i, j = (i, j) if off[i, j] >= off[j, i] else (j, i)
        assert data.map is not None
        fitted = format_us(float(data.map.fitted_us[i, j]))
        measured = format_us(float(data.measured_us[i, j]))
        rows.append((f"{data.names[i]} → {data.names[j]}", measured, fitted, f"{ratio[i, j]:.2f}"))
    return table("The pairs farthest from it", ("pair", "measured", "fitted", "ratio"), rows, 3) if rows else ""


def gaps(data: ReportData) -> str:
    """Return the table of unmeasured pairs and reasons."""
    rows: list[tuple[str, ...]] = [(gap.hosts, gap.reason, f"{gap.pairs:,}") for gap in data.gaps[:_MAX_ROWS]]
    rows += _rest(len(data.gaps), 3)
    return table("Round trips that were not measured", ("between", "why", "number"), rows, 1)


def remarks(data: ReportData) -> str:
    """Return the table of findings, with evidence and advice."""
    rows: list[tuple[str, ...]] = [
        (remark.severity, remark.kind, fold_hostlist(remark.hosts, ", "), remark.evidence, remark.advice)
        for remark in data.remarks[:_MAX_ROWS]
    ]
    rows += _rest(len(data.remarks), 5)
    return table("Findings", ("severity", "what", "hosts", "evidence", "what to do"), rows)


def _rest(total: int, columns: int) -> list[tuple[str, ...]]:
    """Return a row with the number of rows that are not shown."""
    return [(f"and {total - _MAX_ROWS:,} more", *[""] * (columns - 1))] if total > _MAX_ROWS else []


def runs(data: ReportData) -> str:
    """Return the table of predicted and achieved times, an order per row."""
    largest = max(max(run.achieved_s) for run in data.runs)
    times, unit = time_unit(largest)
    rows = [
        (
            run.order,
            "–" if run.predicted_us is None else format_prediction(run.predicted_us, run.interval_us),
            f"{significant(float(np.median(run.achieved_s)) * times)} {unit}",
            f"{significant(min(run.achieved_s) * times)} – {significant(max(run.achieved_s) * times)} {unit}",
            len(run.achieved_s),
        )
        for run in data.runs
    ]
    heads = ("order", "predicted", "median", "fastest – slowest", "runs")
    return table("Predicted against achieved", heads, rows, 4)
