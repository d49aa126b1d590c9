"""Draw one job on spot machines: prices, what was held at which bid, evictions, and its work."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from plink.features.spot.simulate import SimulatedJob
from plink.model.spot.prices import HOUR_S
from plink.model.units import format_duration
from plink.pictures import PAGE_INCHES, Palette, Picture, axes, drawing, figure, title

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_TOP, _BOTTOM, _LEFT, _RIGHT, _GAP = 0.62, 0.5, 0.9, 0.15, 0.14  # inches
_PRICES, _CORES, _WORK = 1.25, 1.1, 1.0  # heights, inches
_COLOURS = ("#2f6fb3", "#d98324", "#4c9a5b", "#8e5bb0", "#b04a5a", "#4aa3a8")
_LEGEND = (
    "line: price, dots: on demand, shaded: held, up to its bid, cross: evicted; below: cores (grey: on demand), and "
    "share of work"
)


@dataclass(frozen=True)
class _Held:
    """An allocation: hours since the job's start, its bid, and the cores of all its instances."""

    begin_h: float
    end_h: float
    bid: float
    cores: float
    is_evicted: bool = False


def picture_of(job: SimulatedJob, palette: Palette) -> Picture:
    """Draw a panel of each market, of the cores held, and of the work done."""
    markets, outcome, hours = job.comparison.markets, job.outcome, job.outcome.seconds / HOUR_S
    heading = (
        f"{job.strategy} in {job.zone}: {format_duration(outcome.seconds)}, cost {outcome.money:.2f}, "
        f"allocations evicted: {outcome.evictions}{'' if outcome.finished else ', not finished when prices ended'}"
    )
    height = _TOP + len(markets.traces) * (_PRICES + _GAP) + _CORES + _GAP + _WORK + _BOTTOM
    with drawing():
        fig = figure(PAGE_INCHES, height, palette)
        title(fig, heading, palette, _LEGEND)
        top = height - _TOP

        def panel(name: str, label: str, tall: float, last: bool = False) -> "Axes":
            nonlocal top
            ax = axes(fig, (_LEFT, top - tall, PAGE_INCHES - _LEFT - _RIGHT, tall), palette, name)
            top -= tall + _GAP
            ax.set_xlim(0, hours)
            ax.set_ylabel(label[:14])
            if not last:
                ax.set_xticklabels([])
            return ax

        layers: list[tuple[Sequence[_Held], str]] = [(_reliable(job), palette.muted)]
        for number in range(len(markets.traces)):
            held, colour = _held(job, number), _COLOURS[number % len(_COLOURS)]
            layers.append((held, colour))
            label = job.comparison.offers[number].market.type
            _draw_market(panel(f"price-{number}", label, _PRICES), job, number, held, (colour, palette))
        _draw_cores(panel("cores", "cores", _CORES), hours, layers)
        ax = panel("work", "work", _WORK, last=True)
        ax.plot(
            [_hours(job, time) for time, _ in job.progress], [share for _, share in job.progress], color=palette.ink
        )
        ax.set_ylim(0, 1.05)
        ax.set_xlabel("hours since its start", labelpad=4)
    return Picture("spot-job", f"{heading}. {_LEGEND}.", fig)


def _hours(job: SimulatedJob, time: float) -> float:
    return (time - job.start) / HOUR_S


def _held(job: SimulatedJob, number: int) -> list[_Held]:
    """Return the allocations of a market."""
    cores = job.comparison.markets.cores[number]
    return [
        _Held(
            _hours(job, each.stay.start),
            _hours(job, each.stay.until),
            each.bid,
            each.stay.count * cores,
            each.stay.end == "interrupted",
        )
        for each in job.outcome.stays
        if each.market == number
    ]


def _reliable(job: SimulatedJob) -> list[_Held]:
    """Return the machines on demand that work."""
    hours, anchors, reference = job.outcome.seconds / HOUR_S, job.anchors, job.comparison.reference
    reliable = [_Held(0.0, hours, anchors.price, anchors.count * anchors.cores)]
    if job.outcome.fell_back_at is not None:
        reliable.append(_Held(_hours(job, job.outcome.fell_back_at), hours, reference.price, reference.total_cores))
    return reliable


def _draw_market(
    ax: "Axes", job: SimulatedJob, number: int, allocations: Sequence[_Held], colours: tuple[str, Palette]
) -> None:
    trace, on_demand = job.comparison.markets.traces[number], job.comparison.offers[number].on_demand
    colour, palette = colours
    end = job.start + job.outcome.seconds
    inside = (trace.times > job.start) & (trace.times < end)
    prices = [trace.price_at(job.start), *trace.prices[inside].tolist()]
    times = [_hours(job, time) for time in (job.start, *trace.times[inside].tolist(), end)]
    ax.step(times, [*prices, prices[-1]], where="post", color=colour, linewidth=1.2)
    ax.axhline(on_demand, color=palette.muted, linewidth=0.9, linestyle=":")
    for held in allocations:
        ax.fill_between([held.begin_h, held.end_h], 0, held.bid, color=colour, alpha=0.16, linewidth=0)
        if held.is_evicted:
            ax.plot([held.end_h], [held.bid], "x", color=palette.ink, markersize=6)
    ax.set_ylim(0, 1.25 * max(on_demand, *(held.bid for held in allocations), 0.0))


def _draw_cores(ax: "Axes", hours: float, layers: Sequence[tuple[Sequence[_Held], str]]) -> None:
    """Stack the cores of reliable machines, and of each market."""
    edges = sorted({0.0, hours, *(edge for held, _ in layers for each in held for edge in (each.begin_h, each.end_h))})
    low = [0.0] * len(edges)
    for held, colour in layers:
        high = [
            below + sum(each.cores for each in held if each.begin_h <= edge < each.end_h)
            for below, edge in zip(low, edges, strict=True)
        ]
        ax.fill_between(edges, low, high, step="post", color=colour, alpha=0.55, linewidth=0)
        low = high
    ax.set_ylim(bottom=0)
