"""Batches of updates for properties."""

from hypothesis import strategies as st

from benchmarks.transfer_batches import RATES_BYTES_S, Batch
from plink.model.transfers.ordering import WaitingUpdate


@st.composite
def batches(draw: st.DrawFn, max_updates: int = 20, max_members: int = 1) -> Batch:
    """Two workers a host at most; deadlines Uniform(1, 2 |U|), as in M 7.4, and some that have passed."""
    number = draw(st.integers(1, max_updates))
    hosts = draw(st.integers((number + 1) // 2, number))
    updates = tuple(
        WaitingUpdate(
            k % hosts,
            draw(st.sampled_from([1e8, 1e8, 1e8, 3e7, 2.5e8])),
            draw(st.integers(-1, 2 * number)),
            draw(st.integers(1, max_members)),
        )
        for k in range(number)
    )
    rates = [draw(st.sampled_from(RATES_BYTES_S)) for _ in range(2 * hosts)]
    return Batch(updates, (*rates, RATES_BYTES_S[-1]))
