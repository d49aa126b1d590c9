"""Draw the time per iteration of an elastic run, with its stages and events (as Harlap thesis, figure 4.15)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np

from plink.model.units import count, time_unit
from plink.pictures import PAGE_INCHES, Palette, Picture, axes, drawing, figure, short, title
from plink.records.elastic_history import History, IterationRecord, TimelineEvent, work_shares
from plink.records.elastic_log import ControllerEvent, HostEvent

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_PLOT, _WORKERS, _ROW, _TOP, _BOTTOM, _LEFT, _RIGHT, _GAP = 3.4, 0.7, 0.24, 0.62, 0.5, 1.02, 0.15, 0.12
_SHADES = {1: "#ffffff", 2: "#e9edf2", 3: "#d3dae3"}  # told apart in black and white
_MAX_LINES = 32  # hosts whose waits are drawn
_MERGE_SHARE = 0.008  # share of the width within which events of one kind are one mark
_CHARACTER_INCHES, _GAP_INCHES = 0.066, 0.18  # inches: of a label, and what two marks need beside it
# Marks as different in shape as can be, for those are what is left without colours.
_KINDS = {
    "joined": ("^", "joined"),
    "warned": ("D", "warned"),
    "left": ("v", "left"),
    "let go": ("<", "let go"),
    "failed": ("X", "failed"),
    "rolled back": ("s", "rolled back"),
    "started": ("P", "controller"),
    "restarted": ("P", "controller"),
}


@dataclass(frozen=True)
class Mark:
    """Mark for events of one kind at about one position. ``at``: in the unit of the axis; ``row``: the row's name;
    ``brief``: a shorter ``text``."""

    row: str
    shape: str
    at: float
    text: str
    brief: str


def iterations(history: History, palette: Palette, over_seconds: bool = False) -> Picture:
    """Draw the time of each iteration over iterations or over seconds.

    :param history: with one iteration at least.
    """
    place = _by_time if over_seconds else _by_iteration(history)
    low, high = (0.0, history.seconds * 1.01 or 1.0) if over_seconds else _span(history)
    marks = marks_of(history, place, high - low)
    rows = [row for row in dict.fromkeys(name for _, name in _KINDS.values()) if row in {mark.row for mark in marks}]
    up, unit = time_unit(max(step.iteration.seconds for step in history.steps))
    above = _ROW * len(rows) + _GAP
    inner = PAGE_INCHES - _LEFT - _RIGHT
    waits = _WORKERS + _GAP if any(step.iteration.work for step in history.steps) else 0.0
    base = _BOTTOM + _WORKERS + _GAP + waits
    with drawing():
        fig = figure(PAGE_INCHES, _TOP + above + _PLOT + base, palette)
        title(fig, _heading(history), palette, _subtitle(history))
        lower = axes(fig, (_LEFT, _BOTTOM, inner, _WORKERS), palette, "workers", is_open=True)
        ax = axes(fig, (_LEFT, base, inner, _PLOT), palette, "iterations", is_open=True)
        upper = axes(fig, (_LEFT, base + _PLOT, inner, above), palette, "events")
        below = [lower]
        if waits:
            below.append(axes(fig, (_LEFT, _BOTTOM + _WORKERS + _GAP, inner, _WORKERS), palette, "waits", is_open=True))
        for each in (*below, ax, upper):
            each.set_xlim(low, high)
        _bands([*below, ax], ax, history, over_seconds, (low, high), palette)
        _times(ax, history, over_seconds, up, palette)
        _workers(lower, history, over_seconds, palette)
        for panel in below[1:]:
            _waits(panel, history, over_seconds, palette)
        _events([*below, ax], upper, marks, rows, inner, palette)
        ax.set_ylabel(f"time per iteration ({unit})", labelpad=4)
        lower.set_ylabel("workers", labelpad=4)
        lower.set_xlabel("seconds since the run began" if over_seconds else "iteration", labelpad=4)
    return Picture("elastic", f"{_heading(history)}. {_subtitle(history)} {_marks_text(marks)}".strip(), fig)


def marks_of(history: History, place: Callable[[float], float], width: float) -> list[Mark]:
    """Return the marks of all events, close ones merged. ``place``: from seconds to the axis."""
    marks: list[Mark] = []
    for name, row in _KINDS.items():
        events = [(place(event.at), event) for event in history.events if _kind(event) == name]
        while events:
            start = events[0][0]
            merged = [event for at, event in events if at - start <= _MERGE_SHARE * width]
            events = events[len(merged) :]
            marks.append(Mark(row[1], row[0], start, *_texts(merged)))
    return marks


def _kind(event: TimelineEvent) -> str:
    return event.event if isinstance(event, HostEvent | ControllerEvent) else event.what


def _texts(events: Sequence[TimelineEvent]) -> tuple[str, str]:
    first, times = events[0], f", {len(events)} times" if len(events) > 1 else ""
    if isinstance(first, ControllerEvent):
        return f"{first.event}{times}", ""
    if not isinstance(first, HostEvent):
        return f"to clock {first.clock}{times}", str(first.clock)
    if len(events) == 1:
        remaining = f", {first.seconds:.0f} s" if first.event == "warned" and first.seconds is not None else ""
        return f"{short(first.host)} ({first.tier}{remaining})", short(first.host)
    tiers = sorted(event.tier for event in events if isinstance(event, HostEvent))
    return ", ".join(f"{len(list(same))} {tier}" for tier, same in groupby(tiers)), str(len(events))


def _by_time(seconds: float) -> float:
    return seconds


def _by_iteration(history: History) -> Callable[[float], float]:
    """Return where on an axis of iterations, each from a half before to a half after its number, a moment lies."""
    iterations_done = [step.iteration for step in history.steps]
    ends = np.maximum.accumulate([each.at for each in iterations_done])

    def place(seconds: float) -> float:
        number = int(np.searchsorted(ends, seconds))
        if number < len(iterations_done):
            current = iterations_done[number]
            progress = (seconds - (current.at - current.seconds)) / (current.seconds or 1.0)
            if progress >= 0 or number == 0:
                return current.iteration - 0.5 + min(max(progress, 0.0), 1.0)
        return iterations_done[number - 1].iteration + 0.5  # after a roll-back the next one has a smaller number

    return place


def _span(history: History) -> tuple[float, float]:
    numbers = [step.iteration.iteration for step in history.steps]
    return min(numbers) - 0.5, max(numbers) + 0.5


def _at(step: IterationRecord, over_seconds: bool) -> float:
    return step.iteration.at if over_seconds else float(step.iteration.iteration)


def _stage_spans(history: History, over_seconds: bool, span: tuple[float, float]) -> list[tuple[float, float, int]]:
    if over_seconds and history.stages:
        return list(history.stages)
    spans: list[tuple[float, float, int]] = []
    start = span[0]
    for stage, stage_steps in groupby(history.completed, key=lambda each: each.stage):
        last = list(stage_steps)[-1]
        end = last.at if over_seconds else last.iteration + 0.5
        spans.append((start, end, stage))
        start = end
    return spans


def _bands(
    shaded: "list[Axes]",
    named: "Axes",
    history: History,
    over_seconds: bool,
    span: tuple[float, float],
    palette: Palette,
) -> None:
    label_end = -np.inf
    for number, (begin, end, stage) in enumerate(_stage_spans(history, over_seconds, span)):
        begin = span[0] if number == 0 else begin  # before the first there is no other
        for ax in shaded:
            ax.axvspan(begin, end, color=_SHADES[stage], linewidth=0, zorder=0)
            if begin > span[0]:
                ax.axvline(begin, color=palette.line, linewidth=0.8, zorder=0.5)
        if begin < label_end:
            continue  # there is no room between the two for a name
        named.annotate(
            f"stage {stage}",
            (begin, 1),
            xycoords=("data", "axes fraction"),
            xytext=(4, -4),
            textcoords="offset points",
            ha="left",
            va="top",
            size=8.5,
            weight="bold",
            color=palette.muted,
            zorder=4,
            bbox={"facecolor": _SHADES[stage], "edgecolor": "none", "pad": 1},
        )
        label_end = begin + 0.055 * (span[1] - span[0])


def _times(ax: "Axes", history: History, over_seconds: bool, up: float, palette: Palette) -> None:
    size = 5.0 if len(history.steps) <= 80 else 3.0 if len(history.steps) <= 400 else 1.5
    completed = [step for step in history.steps if not step.rolled_back]
    for label, steps, style in (
        ("counts", [step for step in completed if not step.repeated], {"marker": "o", "color": palette.ink}),
        (
            "done again after a roll-back",
            [step for step in completed if step.repeated],
            {"marker": "s", "color": palette.ink, "markerfacecolor": palette.surface, "markeredgewidth": 1.2},
        ),
        (
            "lost to a roll-back",
            [step for step in history.steps if step.rolled_back],
            {"marker": "x", "color": palette.accent, "markeredgewidth": 1.4},
        ),
    ):
        if steps:
            y = [step.iteration.seconds * up for step in steps]
            ax.plot(
                [_at(step, over_seconds) for step in steps],
                y,
                linestyle="",
                markersize=size,
                label=label,
                zorder=3,
                gid=label.split()[0],
                **style,
            )
    ax.plot(
        [_at(step, over_seconds) for step in completed],
        [step.iteration.seconds * up for step in completed],
        color=palette.muted,
        linewidth=0.8,
        zorder=2,
    )
    ax.set_ylim(0, max(step.iteration.seconds for step in history.steps) * up * 1.16 or 1.0)
    ax.tick_params(labelbottom=False)
    if any(step.rolled_back or step.repeated for step in history.steps):
        ax.legend(
            loc="lower left", fontsize=8, frameon=True, framealpha=0.9, edgecolor=palette.line, labelcolor=palette.ink
        )


def _workers(ax: "Axes", history: History, over_seconds: bool, palette: Palette) -> None:
    steps = list(history.steps) if over_seconds else [step for step in history.steps if not step.rolled_back]
    positions = [_at(step, over_seconds) for step in steps]
    workers = [step.iteration.workers for step in steps]
    ax.step(positions, workers, where="pre" if over_seconds else "mid", color=palette.ink, linewidth=1.2)
    ax.set_ylim(0, max(workers, default=0) * 1.2 or 1.0)
    ax.locator_params(axis="y", integer=True, nbins=3)
    ax.locator_params(axis="x", integer=not over_seconds)


def _waits(ax: "Axes", history: History, over_seconds: bool, palette: Palette) -> None:
    """Draw each host's share of time that it waited for others: thin lines, and their mean."""
    steps = [step for step in history.steps if not step.rolled_back and step.iteration.work]
    shares = [work_shares(step.iteration.work) for step in steps]
    drawn = [(_at(step, over_seconds), each) for step, each in zip(steps, shares, strict=True) if each is not None]
    for host in sorted({host for _, each in drawn for host in each.by_host})[:_MAX_LINES]:
        own = [(at, 100 * each.by_host[host]) for at, each in drawn if host in each.by_host]
        ax.plot(*zip(*own, strict=True), color=palette.muted, linewidth=0.5, alpha=0.7, gid=f"wait-{host}")
    ax.plot([at for at, _ in drawn], [100 * each.waited for _, each in drawn], color=palette.ink, linewidth=1.2)
    ax.set_ylim(0, 100)
    ax.set_yticks([0, 50, 100])
    ax.set_ylabel("waited (%)", labelpad=4)
    ax.tick_params(labelbottom=False)


def _events(
    below: "list[Axes]", ax: "Axes", marks: Sequence[Mark], rows: Sequence[str], width: float, palette: Palette
) -> None:
    low, high = ax.get_xlim()
    ax.set_ylim(len(rows) + _GAP / _ROW, 0)
    ax.set_xticks([])
    ax.set_yticks([row + 0.5 for row in range(len(rows))], rows)
    ax.tick_params(axis="y", length=0, pad=9)
    for spine in ax.spines.values():
        spine.set_visible(False)
    for row, name in enumerate(rows):
        row_marks = sorted((mark for mark in marks if mark.row == name), key=lambda mark: mark.at)
        for mark, following in zip(row_marks, [*row_marks[1:], None], strict=True):
            ax.plot([mark.at], [row + 0.5], mark.shape, color=palette.ink, markersize=6, clip_on=False)
            for each in below:
                each.axvline(mark.at, color=palette.muted, linewidth=0.7, linestyle=(0, (2, 3)), zorder=1)
            previous_at = max((other.at for other in row_marks if other.at < mark.at), default=low)
            for text in filter(None, (mark.text, mark.brief)):
                needed = (len(text) * _CHARACTER_INCHES + _GAP_INCHES) / width * (high - low)
                on_left = following is None and mark.at + needed > high  # the last one may have it on its other side
                if (
                    previous_at > mark.at - needed
                    if on_left
                    else mark.at + needed > (high if following is None else following.at)
                ):
                    continue
                ax.annotate(
                    text,
                    (mark.at, row + 0.5),
                    xytext=(-7 if on_left else 7, 0),
                    textcoords="offset points",
                    ha="right" if on_left else "left",
                    va="center_baseline",
                    size=8,
                    color=palette.ink,
                    annotation_clip=False,
                )
                break


def _heading(history: History) -> str:
    completed = history.completed
    hosts = len(history.members)
    hosts_text = f" on {count(hosts, 'host')}" if hosts else ""
    return f"{len(completed):,} iteration{'' if len(completed) == 1 else 's'}{hosts_text} in {history.seconds:,.3g} s"


def _subtitle(history: History) -> str:
    by_stage: dict[int, list[float]] = {}
    for each in history.completed:
        by_stage.setdefault(each.stage, []).append(each.seconds)
    up, unit = time_unit(max(step.iteration.seconds for step in history.steps))
    medians = [f"{np.median(times) * up:.3g} {unit} in stage {stage}" for stage, times in sorted(by_stage.items())]
    rolled_back = sum(step.rolled_back for step in history.steps)
    return (
        f"median {', '.join(medians)}"
        + _waited_text(history)
        + (f"; {count(rolled_back, 'iteration')} lost to roll-backs" if rolled_back else "")
        + "."
    )


def _waited_text(history: History) -> str:
    work = [row for each in history.completed for row in each.work.values()]
    total = sum(computed_s + waited_s for computed_s, waited_s, _ in work)
    return f"; workers waited {sum(waited_s for _, waited_s, _ in work) / total:.0%}" if total else ""


def _marks_text(marks: Sequence[Mark]) -> str:
    return " ".join(f"{mark.row}: {mark.text}." for mark in sorted(marks, key=lambda mark: mark.at))
