"""Harlap's figures on spot machines, beside what is recorded of simulated jobs."""

import statistics
from typing import Any

from benchmarks.drawing import strips
from benchmarks.thesis_plot import ThesisPlot

_CONFIGURATIONS = ("standard-checkpoint", "standard-agile", "bidbrain")
_HOURS_OF = {"paid": "paid", "free": "free", "on_demand": "on demand"}


def thesis_plots(figures: dict[str, Any]) -> dict[str, ThesisPlot]:
    """Return figures 4.1, 4.7, 4.8 and 4.9; a point is a zone."""
    two, twenty = figures["jobs"]["2 h"], figures["jobs"]["20 h"]
    hours = {name: [zone["bidbrain"][key] * 100 for zone in two.values()] for key, name in _HOURS_OF.items()}
    return {
        "harlap-4-1": _costs("harlap-4-1", two, ("standard-checkpoint", "bidbrain")),
        "harlap-4-7": _costs("harlap-4-7", two, _CONFIGURATIONS),
        "harlap-4-8": _costs("harlap-4-8", twenty, _CONFIGURATIONS),
        "harlap-4-9": ThesisPlot(
            f"{statistics.mean(hours['free']):.0f} % free",
            strips("harlap-4-9", "Machine hours of BidBrain, jobs of 2 h", "a point: a zone", hours, "% of the hours"),
        ),
    }


def _costs(name: str, zones: dict[str, Any], strategies: tuple[str, ...]) -> ThesisPlot:
    """Cost and time of strategies, by those on demand."""
    rows = {
        f"{what}, {strategy}": [zone[strategy][what] for zone in zones.values()]
        for what in ("cost", "time") for strategy in strategies
    }  # fmt: skip
    means = {label: statistics.mean(samples) for label, samples in rows.items()}
    text = "; ".join(
        f"{strategy}: cost {means[f'cost, {strategy}']:.3f}, time {means[f'time, {strategy}']:.2f}"
        for strategy in strategies
    )
    picture = strips(name, "Cost and time of a job, by on-demand machines", "a point: a zone", rows, "times as much")
    return ThesisPlot(text, picture)
