"""Small price histories whose odds can be worked out by hand, and drawn ones."""

import numpy as np
from hypothesis import strategies as st

from plink.model.spot.prices import PriceTrace


def history(*changes: tuple[float, float], until: float, holes: tuple[tuple[float, float], ...] = ()) -> PriceTrace:
    """A price history from (hours, price); ``until`` and ``holes`` in hours."""
    times, prices = zip(*changes, strict=True)
    spans = tuple((3600 * a, 3600 * b) for a, b in holes)
    return PriceTrace(3600 * np.array(times, dtype=float), np.array(prices, dtype=float), 3600 * until, spans)


@st.composite
def histories(draw: st.DrawFn) -> PriceTrace:
    """Histories of 6 to 12 hours with prices that repeat."""
    gaps = draw(st.lists(st.sampled_from([60.0, 300.0, 900.0, 2400.0, 5000.0]), min_size=1, max_size=20))
    times = np.concatenate([[0.0], np.cumsum(gaps)])
    prices = draw(st.lists(st.sampled_from([0.1, 0.12, 0.2, 0.5, 0.9]), min_size=len(times), max_size=len(times)))
    return PriceTrace(times, np.array(prices), float(times[-1]) + draw(st.sampled_from([7200.0, 20000.0])))


def evicted_after(trace: PriceTrace, start: float, delta: float) -> float:
    """Seconds until the price exceeds that at ``start`` by more than delta: the definition, change by change."""
    bid = trace.price_at(start) + delta
    return next(
        (t - start for t, p in zip(trace.times.tolist(), trace.prices.tolist(), strict=True) if t > start and p > bid),
        float("inf"),
    )
