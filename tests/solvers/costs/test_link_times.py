"""How long a ring takes on its links: worked by hand, and against a count of bits link by link."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from solvers.costs.closed_forms import ring_seconds

MEGABIT = 1_000_000


def test_the_demo_by_hand() -> None:
    """Four racks of four at 200 Mbit/s, 8 MB: 2 * 15/16 * 64 Mbit are 0.6 s, four times that when all hops leave."""
    racks = np.repeat(np.arange(4), 4)
    together = np.arange(16)
    apart = together.reshape(4, 4).T.ravel()
    rate = 200 * MEGABIT
    assert ring_seconds(racks, together, 8_000_000, rate, rate) == pytest.approx(0.6)
    assert ring_seconds(racks, apart, 8_000_000, rate, rate) == pytest.approx(2.4)


@given(
    st.lists(st.integers(0, 3), min_size=2, max_size=12),
    st.randoms(use_true_random=False),
    st.sampled_from([1, 100, 1000]),
    st.sampled_from([1, 100, 1000]),
)
def test_the_busiest_link_counts(groups: list[int], rng: object, host_mbit: int, uplink_mbit: int) -> None:
    """Every hop's bits are put on the links it crosses; the slowest to finish is the time."""
    assert hasattr(rng, "sample")
    n = len(groups)
    order = rng.sample(range(n), n)
    bits = 8 * 1_000_000 * 2 * (n - 1) / n
    seconds: dict[tuple[str, int], float] = {}
    for here, there in zip(order, [*order[1:], order[0]], strict=True):
        links = [("host", here, host_mbit)]
        if groups[here] != groups[there]:
            links.append(("uplink", groups[here], uplink_mbit))
        for kind, which, rate in links:
            seconds[kind, which] = seconds.get((kind, which), 0.0) + bits / (rate * MEGABIT)
    got = ring_seconds(np.array(groups), np.array(order), 1_000_000, host_mbit * MEGABIT, uplink_mbit * MEGABIT)
    assert got == pytest.approx(max(seconds.values()))


def test_one_host_has_nothing_to_send() -> None:
    assert ring_seconds(np.zeros(1, dtype=np.intp), np.zeros(1, dtype=np.intp), 1e9, 1.0, 1.0) == 0.0
