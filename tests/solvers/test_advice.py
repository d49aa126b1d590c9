"""Which algorithm for which size: the envelope is the cheapest everywhere, and lines are prices."""

import itertools

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from plink.errors import UsageError
from solvers.advice import Line, envelope, lines
from solvers.costs.by_name import pricing_for
from solvers.schedules.catalogue import Options
from tests.solvers.test_cost_models import fabric

PRICES = st.floats(0, 1e4).map(lambda value: round(value, 2))


@example([(9317.0, 1.0), (195.5, 7117.0)], 1, 1)  # by rounding the same line is the cheapest where they meet
@given(st.lists(st.tuples(PRICES, PRICES), min_size=1, max_size=8), st.integers(1, 1000), st.integers(1, 10_000))
def test_the_envelope_is_cheapest_everywhere(prices: list[tuple[float, float]], low: int, width: int) -> None:
    candidates = [Line(f"a{k}", "given", start, slope) for k, (start, slope) in enumerate(prices)]
    found = envelope(candidates, low, low + width)
    assert found[0].from_bytes == low
    assert found[-1].to_bytes == low + width
    for one, next_ in itertools.pairwise(found):
        assert one.to_bytes == next_.from_bytes
        assert one.line.us_per_byte > next_.line.us_per_byte
    for stretch in found:
        for at in (stretch.from_bytes, (stretch.from_bytes + stretch.to_bytes) / 2, stretch.to_bytes):
            cheapest = min(line.at(at) for line in candidates)
            assert stretch.line.at(at) == pytest.approx(cheapest, rel=1e-9, abs=1e-6)


@given(st.integers(2, 20), st.integers(0, 99), st.sampled_from(["alpha-beta", "contention"]))
def test_a_price_is_a_line_in_the_size(n: int, seed: int, model: str) -> None:
    found, order = fabric(n, seed), np.random.default_rng(seed).permutation(n)
    algorithms = {"ring": Options(), "halving-doubling": Options(), "flat": Options(), "tree": Options(fan_out=3)}
    for line in lines(found, {"given": order}, algorithms, model)[0]:
        for size in (1.0, 64e3, 3e9):
            price = pricing_for(line.algo, n, algorithms[line.algo], found, size, model)
            assert line.at(size) == pytest.approx(price(order), rel=1e-6, abs=1e-6)


def test_what_does_not_fit_is_left_out_with_the_reason() -> None:
    found, left_out = lines(fabric(6), {"given": np.arange(6)}, {"ring": Options(), "bcube": Options()}, "contention")
    assert {line.algo for line in found} == {"ring"}
    assert "power of 2" in left_out["bcube"]
    with pytest.raises(UsageError, match="knows no sizes"):
        lines(fabric(6), {"given": np.arange(6)}, {"ring": Options()}, "latency")
