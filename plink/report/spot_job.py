"""Draw one job on spot machines: prices, what was held at which bid, evictions, and its work."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from plink.report.canvas import PAGE_INCHES, Picture, axes, drawing, figure, title
from plink.report.colours import Palette

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
class HeldCores:
    """An allocation: hours since the job's start, its bid, and the cores of all its instances."""

    begin_h: float
    end_h: float
    bid: float
    cores: float
    evicted: bool


@dataclass(frozen=True)
class MarketPath:
    """A market during the job. ``steps``: (hours since the job's start, price from then on), the first at 0."""

    name: str
    on_demand: float
    steps: tuple[tuple[float, float], ...]
    held: tuple[HeldCores, ...]


@dataclass(frozen=True)
class SpotJobPath:
    """A job of ``hours``. ``progress``: (hours since its start, share of its work that is done); ``reliable``: machines
    on demand that work."""

    heading: str
    hours: float
    markets: tuple[MarketPath, ...]
    reliable: tuple[HeldCores, ...]
    progress: tuple[tuple[float, float], ...]


def spot_job(job: SpotJobPath, palette: Palette) -> Picture:
    """Draw a panel of each market, of the cores held, and of the work done."""
    height = _TOP + len(job.markets) * (_PRICES + _GAP) + _CORES + _GAP + _WORK + _BOTTOM
    with drawing():
        fig = figure(PAGE_INCHES, height, palette)
        title(fig, job.heading, palette, _LEGEND)
        top = height - _TOP

        def panel(name: str, label: str, tall: float, last: bool = False) -> "Axes":
            nonlocal top
            ax = axes(fig, (_LEFT, top - tall, PAGE_INCHES - _LEFT - _RIGHT, tall), palette, name)
            top -= tall + _GAP
            ax.set_xlim(0, job.hours)
            ax.set_ylabel(label[:14])
            if not last:
                ax.set_xticklabels([])
            return ax

        for number, market in enumerate(job.markets):
            _draw_market(panel(f"price-{number}", market.name, _PRICES), market, job.hours, _colour(number), palette)
        ax = panel("cores", "cores", _CORES)
        _draw_cores(ax, job, palette)
        ax = panel("work", "work", _WORK, last=True)
        ax.plot([hours for hours, _ in job.progress], [share for _, share in job.progress], color=palette.ink)
        ax.set_ylim(0, 1.05)
        ax.set_xlabel("hours since its start", labelpad=4)
    return Picture("spot-job", f"{job.heading}. {_LEGEND}.", fig)


def _colour(number: int) -> str:
    return _COLOURS[number % len(_COLOURS)]


def _draw_market(ax: "Axes", market: MarketPath, hours: float, colour: str, palette: Palette) -> None:
    times, prices = [at for at, _ in market.steps], [price for _, price in market.steps]
    ax.step([*times, hours], [*prices, prices[-1]], where="post", color=colour, linewidth=1.2)
    ax.axhline(market.on_demand, color=palette.muted, linewidth=0.9, linestyle=":")
    for held in market.held:
        ax.fill_between([held.begin_h, held.end_h], 0, held.bid, color=colour, alpha=0.16, linewidth=0)
        if held.evicted:
            ax.plot([held.end_h], [held.bid], "x", color=palette.ink, markersize=6)
    ax.set_ylim(0, 1.25 * max(market.on_demand, *(held.bid for held in market.held), 0.0))


def _draw_cores(ax: "Axes", job: SpotJobPath, palette: Palette) -> None:
    """Stack the cores of reliable machines, and of each market."""
    layers = [(job.reliable, palette.muted), *((market.held, _colour(k)) for k, market in enumerate(job.markets))]
    stays = [held for layer, _ in layers for held in layer]
    edges = sorted({0.0, job.hours, *(edge for held in stays for edge in (held.begin_h, held.end_h))})
    low = [0.0] * len(edges)
    for held, colour in layers:
        high = [below + _cores_at(held, edge) for below, edge in zip(low, edges, strict=True)]
        ax.fill_between(edges, low, high, step="post", color=colour, alpha=0.55, linewidth=0)
        low = high
    ax.set_ylim(bottom=0)


def _cores_at(held: Sequence[HeldCores], hours: float) -> float:
    return sum(each.cores for each in held if each.begin_h <= hours < each.end_h)
