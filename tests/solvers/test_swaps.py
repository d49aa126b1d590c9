"""Swapping two ranks: the same price as pricing the whole order anew, before and after, over many swaps."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solvers.costs.by_name import pattern_for
from solvers.costs.closed_forms import closed_form
from solvers.costs.swaps import Swaps
from solvers.schedules.catalogue import Options
from tests.solvers.test_cost_models import fabric


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(["ring", "gloo", "ring-chunked", "halving-doubling", "recursive-doubling", "bcube", "bml", "2lha"]),
    st.integers(2, 20),
    st.integers(0, 999),
    st.lists(st.tuples(st.integers(0, 99), st.integers(0, 99)), min_size=1, max_size=12),
)
def test_swaps_are_priced_as_whole_orders(algo: str, n: int, seed: int, moves: list[tuple[int, int]]) -> None:
    n = 1 << (n.bit_length() - 1) if algo in ("bcube", "bml") else n
    found, groups = fabric(n, seed), [list(range(n // 2)), list(range(n // 2, n))]
    pattern = pattern_for(algo, n, Options(groups=[group for group in groups if group]))
    price, order = closed_form(pattern, found, 1e6, "latency"), np.random.default_rng(seed).permutation(n)
    swaps = Swaps(pattern, found.rtt_us, order)
    assert swaps.cost == pytest.approx(price(order))
    for number, (a, b) in enumerate((a % n, b % n) for a, b in moves):
        order[a], order[b] = order[b], order[a]
        assert swaps.price(a, b) == pytest.approx(price(order), rel=1e-9)
        if number % 2:
            swaps.swap(a, b)
        else:
            order[a], order[b] = order[b], order[a]
        assert swaps.order == order.tolist()
        assert swaps.cost == pytest.approx(price(order), rel=1e-9)
