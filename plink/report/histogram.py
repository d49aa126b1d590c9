"""Draw the distribution of the round trips, and its tiers."""

import numpy as np

from plink.report.canvas import PAGE_INCHES, Picture, axes, drawing, figure, title
from plink.report.colours import MAGNITUDE, Palette, Scale, ticks
from plink.report.report_data import Floats, ReportData

_BINS = 60
_BARS_INCHES, _ROW, _TOP, _BOTTOM, _LEFT, _RIGHT = 2.2, 0.3, 0.62, 0.5, 0.62, 0.05


def spread(values: Floats, bins: int) -> tuple[Floats, Floats]:
    """(edges, counts) of even steps of the logarithm; round trips of zero count as the shortest there is.

    :param values: microseconds, shape (M,), M at least 1.
    """
    positive = values[values > 0]
    if not len(positive):
        return np.array([0.5, 1.5]), np.array([float(len(values))])
    low, high = float(positive.min()) * 0.98, float(positive.max()) * 1.02
    edges = np.geomspace(low, high, bins + 1)
    counts, _ = np.histogram(np.clip(values, low * 1.001, None), edges)
    return edges, counts.astype(np.float64)


def histogram(data: ReportData, scale: Scale, palette: Palette) -> Picture:
    """Draw bars in the heat maps' colours, and above them each tier from its 10th to its 90th percentile, with its
    median."""
    edges, counts = spread(data.values_us(), _BINS)
    tiers = [tier for tier in data.groups.tiers if tier.measured]
    width, above = PAGE_INCHES * 0.64, _ROW * len(tiers) + 0.08
    with drawing():
        import matplotlib

        fig = figure(width, _TOP + above + _BARS_INCHES + _BOTTOM, palette)
        number = len(tiers)
        title(fig, _heading(number), palette, "bars in the colours of the heat maps; a line spans 80% of its tier")
        ax = axes(fig, (_LEFT, _BOTTOM, width - _LEFT - _RIGHT, _BARS_INCHES), palette, "histogram")
        middles = np.sqrt(edges[:-1] * edges[1:])
        colours = matplotlib.colormaps[MAGNITUDE](scale.share(middles))
        ax.bar(
            edges[:-1], counts, np.diff(edges), align="edge", color=colours, edgecolor=palette.surface, linewidth=0.5
        )
        ax.set(xscale="log", xlim=(edges[0], edges[-1]))
        ax.minorticks_off()
        marks = ticks(edges[0], edges[-1], 10)
        ax.set_xticks(marks, [f"{mark:g}" for mark in marks])
        ax.locator_params(axis="y", integer=True, nbins=5)
        ax.yaxis.set_major_formatter("{x:,.0f}")
        for side in ("top", "right"):
            ax.spines[side].set_visible(False)
        ax.set_xlabel("round trip (us, logarithmic)", labelpad=4)
        ax.set_ylabel("round trips (number)", labelpad=4)
        upper = axes(fig, (_LEFT, _BOTTOM + _BARS_INCHES, width - _LEFT - _RIGHT, above), palette, "tiers")
        upper.set(xscale="log", xlim=(edges[0], edges[-1]), ylim=(number, 0))
        upper.axis("off")
        for row, tier in enumerate(tiers):
            upper.plot([tier.low_us, tier.high_us], [row + 0.7] * 2, color=palette.ink, linewidth=2)
            upper.plot([tier.median_us], [row + 0.7], "o", color=palette.ink, markersize=5)
            right = tier.median_us > np.sqrt(edges[0] * edges[-1])  # in the right half of the logarithmic axis
            upper.annotate(
                f"{tier.name}: {tier.median_us:.3g} us", (tier.low_us if right else tier.high_us, row + 0.7),
                xytext=(-7 if right else 7, 0), textcoords="offset points", ha="right" if right else "left",
                va="center_baseline", size=8.5, color=palette.ink,
            )  # fmt: skip
    alt = "; ".join(f"{tier.name}: median {tier.median_us:.3g} us" for tier in tiers)
    return Picture("histogram", f"Histogram of {int(counts.sum())} round trips. {alt}.", fig)


def _heading(tiers: int) -> str:
    if tiers < 2:
        return "The round trips fall into no tiers"
    return f"The round trips fall into {('two', 'three', 'four', 'five')[tiers - 2] if tiers < 6 else tiers} tiers"
