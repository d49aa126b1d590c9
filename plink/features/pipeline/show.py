"""Plans of pipelines, their simulations, trainings and runs in lines for people."""

from collections.abc import Callable, Sequence
from itertools import islice

from plink.model.document import UNSET
from plink.model.hostlist import fold_hostlist
from plink.model.pipeline.actions import actions_of
from plink.model.pipeline.document import ComparedWay
from plink.model.pipeline.plan import PipelinePlan
from plink.model.pipeline.profile import ModelProfile
from plink.model.pipeline.rank_report import aligned
from plink.model.pipeline.results import (
    PipelineAssessment,
    PipelineTraining,
    PredictedFigure,
    SimulatedPipeline,
    TimedAction,
)
from plink.model.pipeline.shape import delay_of, minibatches_per_update
from plink.model.units import format_bytes, format_time, numbered, time_unit
from plink.pictures import PAGE_INCHES, Palette, Picture, axes, drawing, figure, title

_MAX_HOSTS_CHARS = 40
_MAX_TIMELINE_RANKS = 16
_TIMELINE_ACTIONS = 24
_MANY_MINIBATCHES = 1 << 16
_MAX_SIMULATED_RANKS = 32
_SHOWN_LINKS = 3
_MAX_LOSS_ROWS = 10


_ROW, _TOP, _BOTTOM, _LEFT, _RIGHT = 0.34, 0.62, 0.5, 1.4, 0.15  # inches
_MAX_RANKS = 32
_SHOWN_MINIBATCHES = 16
_MIN_LABEL_SHARE = 0.012  # of the width, below which a pass has no room for its number
_FILLS = {"F": "#cfe0f5", "B": "#8fb7e3", "UPDATE": "#f2b84b", "REDUCE": "#e6e6e6"}
_LEGEND = "light: forward, dark: backward, yellow: update, grey: waits for an all-reduce, white: waits"


def plan_lines(plan: PipelinePlan) -> list[str]:
    """Return the plan as a table, with what it is compared to."""
    return [_head(plan), *_table(plan), *_compared(plan)]


def _head(plan: PipelinePlan) -> str:
    layers = plan.stages[-1].last + 1
    hosts, idle = len(plan.hosts), len(plan.idle or ())
    used = f"{hosts} of {hosts + idle}" if idle else str(hosts)
    text = f"pipeline {plan.label} on {used} host{'s' * (hosts + idle != 1)}, {plan.kind}, {layers} layers, "
    text += f"minibatch {plan.minibatch}"
    predicted = plan.predicted
    if predicted:
        formulas = " by formulas" if predicted.by == "model" else ""
        text += f": {format_time(predicted.minibatch_s)} a minibatch{formulas}, {predicted.items_per_s:,.0f} items/s"
        if plan.lower_bound_s:
            text += f" (bound {format_time(plan.lower_bound_s)}, gap {plan.gap or 0:.0%})"
    return text


def _table(plan: PipelinePlan) -> list[str]:
    names, shape = plan.host_names(), plan.shape
    rows: list[tuple[str, ...]] = [("stage", "layers", "hosts", "depth", "delay", "update", "compute", "network")]
    has_memory = any(stage.memory_bytes for stage in plan.stages)
    if has_memory:
        rows = [(*rows[0], "memory")]
    for number, stage in enumerate(plan.stages):
        hosts = fold_hostlist(list(dict.fromkeys(names[rank] for rank in stage.ranks)), " ")
        if len(hosts) > _MAX_HOSTS_CHARS:
            hosts = f"{names[stage.ranks[0]]} ... ({len(stage.ranks)})"
        predicted = stage.predicted
        label = " ".join([stage.label, *dict.fromkeys(stage.names or ())][:2])
        rows.append(
            (
                str(number),
                label,
                hosts,
                str(stage.depth),
                str(delay_of(shape, number)),
                numbered(minibatches_per_update(shape, number) * plan.minibatch, "item"),
                format_time(predicted.compute_s) if predicted else "-",
                format_time(predicted.network_s) if predicted else "-",
                *([format_bytes(stage.memory_bytes.all) if stage.memory_bytes else "-"] if has_memory else []),
            )
        )
    return aligned(rows, left=(1, 2))


def _compared(plan: PipelinePlan) -> list[str]:
    lines = []
    predicted = plan.predicted
    if predicted:
        lines.append(f"limited by: {predicted.limited_by or '-'}")
        if predicted.bytes_per_item is not UNSET:
            lines.append(f"on the network: {format_bytes(predicted.bytes_per_item)} an item")
        if plan.compared:
            lines += _compared_table(plan.compared, predicted.minibatch_s, plan.recompute)
    return lines


def _compared_table(ways: Sequence[ComparedWay], minibatch_s: float, recompute: bool) -> list[str]:
    """Return other ways to train, simulated, and how many times as fast the plan is.

    ``recompute``: the plan computes activations again, so each row says whether it does so too.
    """
    rows: list[tuple[str, ...]] = [("compared", "a minibatch", "the plan's gain", "delay", "update", "memory")]
    for way in ways:
        gain = f"{way.minibatch_s / minibatch_s:.2f} times"
        fits = "-" if way.fits in (None, UNSET) else "fits" if way.fits else "does not fit"
        update = numbered(round(way.items_per_update), "item") if way.items_per_update else "-"
        name = way.what
        if recompute and way.recompute is not UNSET:
            name += f", {'with' if way.recompute else 'without'} recomputation"
        rows.append((name, format_time(way.minibatch_s), gain, str(way.delay), update, fits))
    return aligned(rows, left=(0, 5))


def timeline_lines(plan: PipelinePlan) -> list[str]:
    """Return the first actions of each rank: forward passes as numbers, backward passes in brackets, + an update.

    Columns are actions in sequence, not time.
    """
    shape = plan.shape
    lines = ["first actions: 3 forward, (3) backward, + update"]
    for rank in range(min(plan.ranks, _MAX_TIMELINE_RANKS)):
        stage, replica = plan.place_of(rank)
        words = []
        for action in islice(actions_of(shape, stage, replica, _MANY_MINIBATCHES), _TIMELINE_ACTIONS):
            if action.kind == "F":
                words.append(str(action.number))
            elif action.kind == "B":
                words.append(f"({action.number})")
            elif action.kind == "UPDATE":
                words.append("+")
        lines.append(f"rank {rank} stage {stage}: {' '.join(words)} ...")
    if plan.ranks > _MAX_TIMELINE_RANKS:
        lines.append(f"... and {plan.ranks - _MAX_TIMELINE_RANKS} more ranks")
    return lines


def profile_lines(profile: ModelProfile) -> list[str]:
    """Return what matters of a profile."""
    longest = max(profile.layers, key=lambda layer: layer.compute_s)
    return [
        f"{len(profile.layers)} layer{'s' * (len(profile.layers) != 1)}, {format_time(profile.compute_s)} a minibatch, "
        f"{format_bytes(profile.parameter_bytes)} of parameters; "
        f"longest: {' '.join(filter(None, (longest.name, longest.kind)))}, {format_time(longest.compute_s)}",
        *tied_lines(profile),
    ]


def tied_lines(profile: ModelProfile) -> list[str]:
    """Return which layers no plan parts, for they share parameters."""
    return [
        f"{parameter} is shared by layers {first} and {last}: these and all between are in one stage"
        for first, last, parameter in profile.tied_spans()
    ]


def simulation_lines(plan: PipelinePlan, simulated: SimulatedPipeline) -> list[str]:
    """Return what a plan does on a network: the steady state, each rank's share of waiting, and the busiest links."""
    mean = "" if simulated.periodic else ", a mean"
    lines = [
        f"{plan.label}, {plan.kind}: {format_time(simulated.minibatch_s)} a minibatch{mean}, "
        f"{simulated.items_per_s:,.0f} items/s",
        f"{simulated.minibatches} minibatches take {format_time(simulated.job_s)}; "
        f"{format_time(simulated.fill_s)} of it to fill",
        f"limited by: {simulated.limited_by}",
    ]
    rows: list[tuple[str, ...]] = [
        ("rank", "host", "stage", "busy", "waits for: activations", "gradients", "all-reduce")
    ]
    for rank in simulated.ranks[:_MAX_SIMULATED_RANKS]:
        shares = (rank.busy, rank.waits_for_activations, rank.waits_for_gradients, rank.waits_for_all_reduce)
        rows.append((str(rank.rank), rank.host, str(rank.stage), *(f"{share:.0%}" for share in shares)))
    lines += aligned(rows, left=(1,))
    if plan.ranks > _MAX_SIMULATED_RANKS:
        lines.append(f"... and {plan.ranks - _MAX_SIMULATED_RANKS} more ranks")
    links = [f"{link.name} {link.used:.0%}" for link in simulated.links[:_SHOWN_LINKS]]
    if links:
        lines.append(f"busiest links: {'; '.join(links)}")
    return [*lines, f"rates: {simulated.capacities}"]


def training_lines(training: PipelineTraining) -> list[str]:
    """Return mean losses of a few ranges of minibatches."""
    lines = ["  ".join(["minibatches", "pipeline", *(["sequential"] if training.sequential else [])])]
    count = training.minibatches
    size = max(1, -(-count // _MAX_LOSS_ROWS))
    for first in range(0, count, size):
        last = min(count, first + size) - 1
        kinds = [losses for losses in (training.losses, training.sequential) if losses]
        means = [sum(losses[first : last + 1]) / (last + 1 - first) for losses in kinds]
        columns = [f"{mean:>{width}.5g}" for mean, width in zip(means, (8, 10), strict=False)]
        lines.append("  ".join([f"{f'{first}-{last}':>11}", *columns]))
    return lines


def assessment_lines(assessment: PipelineAssessment) -> list[str]:
    """Return a run beside its plan, a stage a line, and what was off."""
    period = _pair(assessment.minibatch_s, format_time)
    rows: list[tuple[str, ...]] = [("stage", "compute", "busy", "sent a minibatch", "versions")]
    for stage in assessment.stages:
        rows.append(
            (
                str(stage.stage),
                _pair(stage.compute_s, format_time),
                _pair(stage.busy, lambda share: f"{share:.0%}"),
                _pair(stage.sent_bytes, format_bytes),
                f"{stage.versions} (planned {stage.planned_versions})",
            )
        )
    head = f"{assessment.run}, {assessment.minibatches} minibatches: {period} a minibatch"
    return [head, *aligned(rows, left=tuple(range(5))), *assessment.verdict]


def _pair(figure: PredictedFigure, formatted: Callable[[float], str]) -> str:
    text = "-" if figure.measured is None else formatted(figure.measured)
    return text if figure.predicted is None else f"{text} (predicted {formatted(figure.predicted)})"


def pipeline_timeline(
    plan: PipelinePlan, timeline: Sequence[TimedAction], minibatch_s: float, palette: Palette
) -> Picture:
    """Draw the first minibatches: a row a rank, the number of the minibatch in each pass."""
    ranks = min(plan.ranks, _MAX_RANKS)
    end_s = max((item.end_s for item in timeline if item.action.number < _SHOWN_MINIBATCHES // 2), default=0.0)
    end_s = max(end_s, _SHOWN_MINIBATCHES * minibatch_s)
    up, unit = time_unit(end_s)
    names = plan.host_names()
    heading = f"Pipeline {plan.label}, {plan.kind}: {format_time(minibatch_s)} a minibatch"
    with drawing():
        fig = figure(PAGE_INCHES, _TOP + _ROW * ranks + _BOTTOM, palette)
        title(fig, heading, palette, _LEGEND)
        ax = axes(fig, (_LEFT, _BOTTOM, PAGE_INCHES - _LEFT - _RIGHT, _ROW * ranks), palette, "timeline")
        for item in timeline:
            rank = plan.stages[item.action.stage].ranks[item.replica]
            if rank >= ranks or item.begin_s >= end_s or item.end_s <= item.begin_s:
                continue
            width = min(item.end_s, end_s) - item.begin_s
            bar, fill = [(item.begin_s * up, width * up)], _FILLS[item.action.kind]
            ax.broken_barh(bar, (rank - 0.4, 0.8), facecolor=fill, edgecolor=palette.ink, linewidth=0.4)
            if item.action.kind in ("F", "B") and width > _MIN_LABEL_SHARE * end_s:
                middle = (item.begin_s + width / 2) * up
                text = str(item.action.number)
                ax.text(middle, rank, text, size=7, color=palette.ink, ha="center", va="center")
        ax.set_xlim(0, end_s * up)
        ax.set_ylim(ranks - 0.5, -0.5)
        ax.set_yticks(range(ranks), [f"stage {plan.place_of(rank)[0]}, {names[rank]}"[:24] for rank in range(ranks)])
        ax.set_xlabel(f"time ({unit})", labelpad=4)
    return Picture("pipeline", f"{heading}. {_LEGEND}.", fig)
