"""What was predicted of orders against what they achieved when they were run."""

import numpy as np

from plink.model.units import time_unit
from plink.report.canvas import PAGE_INCHES, Picture, axes, drawing, figure, title
from plink.report.colours import Palette
from plink.report.labels import in_points, place, short
from plink.report.report_data import TimedOrder

_HEIGHT, _TOP, _BOTTOM, _LEFT, _RIGHT = 4.2, 0.62, 0.5, 0.62, 0.05


def achieved(runs: tuple[TimedOrder, ...], palette: Palette) -> Picture:
    """Draw a point for the median of each order that has a prediction, and a line from its fastest to its slowest
    run."""
    shown = [run for run in runs if run.predicted_us is not None]
    x = np.array([run.predicted_us or 0.0 for run in shown]) / 1e6
    medians = np.array([float(np.median(run.achieved_s)) for run in shown])
    ends = np.array([(min(run.achieved_s), max(run.achieved_s)) for run in shown])
    across, x_unit = time_unit(float(x.max()))
    up, y_unit = time_unit(float(ends.max()))
    width = PAGE_INCHES * 0.64
    with drawing():
        fig = figure(width, _HEIGHT, palette)
        heading = f"Predicted against achieved, {len(shown)} order{'s' if len(shown) > 1 else ''}"
        title(fig, heading, palette, "median of the runs; the line spans the fastest and the slowest")
        box = (width - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM)
        ax = axes(fig, (_LEFT, _BOTTOM, *box), palette, "achieved")
        ax.vlines(x * across, ends[:, 0] * up, ends[:, 1] * up, color=palette.muted, linewidth=1.5)
        ax.plot(x * across, medians * up, "o", color=palette.ink, markersize=6)
        ax.set(xlim=(0, float(x.max()) * across * 1.1 or 1.0), ylim=(0, float(ends.max()) * up * 1.12 or 1.0))
        for side in ("top", "right"):
            ax.spines[side].set_visible(False)
        ax.set_xlabel(f"predicted cost ({x_unit})", labelpad=4)
        ax.set_ylabel(f"achieved time ({y_unit})", labelpad=4)
        points = in_points(ax, np.stack([x * across, medians * up], axis=1))
        extent = (box[0] * 72, box[1] * 72)
        texts = [short(run.order) for run in shown]
        for label_place, text in zip(place(points, texts, extent, points), texts, strict=True):
            if label_place is not None:
                position = (label_place[0] / extent[0], label_place[1] / extent[1])
                ax.text(
                    *position,
                    text,
                    transform=ax.transAxes,
                    ha=label_place[2],
                    va="center_baseline",
                    size=8.5,
                    color=palette.ink,
                )
    return Picture("achieved", f"{heading}; the table beside it has the figures.", fig)
