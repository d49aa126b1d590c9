"""Draw what each rank of a pipeline does over time (as Harlap thesis, figure 5.4)."""

from collections.abc import Sequence

from plink.model.pipeline.plan import PipelinePlan
from plink.model.pipeline.timeline import TimedAction
from plink.model.units import format_time, time_unit
from plink.pictures import PAGE_INCHES, Palette, Picture, axes, drawing, figure, title

_ROW, _TOP, _BOTTOM, _LEFT, _RIGHT = 0.34, 0.62, 0.5, 1.4, 0.15  # inches
_MAX_RANKS = 32
_SHOWN_MINIBATCHES = 16
_MIN_LABEL_SHARE = 0.012  # of the width, below which a pass has no room for its number
_FILLS = {"F": "#cfe0f5", "B": "#8fb7e3", "UPDATE": "#f2b84b", "REDUCE": "#e6e6e6"}
_LEGEND = "light: forward, dark: backward, yellow: update, grey: waits for an all-reduce, white: waits"


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
