"""ZipLine against the algorithm as printed, and against all choices."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.zipline import as_printed
from plink.errors import UsageError
from plink.runtime.elastic.worker.zipline import barrier

# Whole numbers, so that ties are frequent.
ENDS = st.integers(1, 4).flatmap(
    lambda steps: st.lists(
        st.lists(st.integers(0, 12), min_size=steps, max_size=steps).map(lambda row: np.cumsum(row).tolist()),
        min_size=1, max_size=4,
    )
)  # fmt: skip


def best_wait(ends: list[list[float]]) -> float:
    return min(max(choice) - min(choice) for choice in itertools.product(*ends))


@given(ENDS)
def test_barrier_of_least_wait(ends: list[list[float]]) -> None:
    """No choice waits less, and the steps are a choice that waits so long."""
    wait_s, steps = barrier(ends)
    assert wait_s == best_wait(ends) == as_printed(np.array(ends))[0]
    chosen = [row[count - 1] for row, count in zip(ends, steps.tolist(), strict=True)]
    assert max(chosen) - min(chosen) == wait_s


@pytest.mark.parametrize("seed", range(20))
def test_the_first_of_equal_barriers_is_taken(seed: int) -> None:
    """As Algorithm 2 keeps it, where no two ends are at once."""
    rng = np.random.default_rng(seed)
    ends = np.cumsum(rng.uniform(0.5, 3, (6, 1)) * np.ones((6, 15)), axis=1) + rng.uniform(0, 1e-6, (6, 1))
    wait_s, steps = barrier(ends)
    assert (wait_s, steps.tolist()) == as_printed(ends)


def test_one_worker_at_half_speed() -> None:
    """Two steps of the fast ones for one of the slow, and nobody waits."""
    ends = np.array([1.0, 1.0, 2.0])[:, None] * np.arange(1, 16)
    wait_s, steps = barrier(ends)
    assert (wait_s, steps.tolist()) == (0.0, [2, 2, 1])


def test_equal_workers_do_one_step() -> None:
    wait_s, steps = barrier(np.ones((5, 1)) * np.arange(1, 16))
    assert (wait_s, steps.tolist()) == (0.0, [1] * 5)


@pytest.mark.parametrize("ends", [[], [[]], [[1.0, 0.5]], [[1.0, float("nan")]], [[float("inf")]]])
def test_ends_that_are_none(ends: list[list[float]]) -> None:
    with pytest.raises(UsageError, match="ends of steps"):
        barrier(ends)
