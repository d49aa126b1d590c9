"""How hot runs of annealing begin and end."""

import numpy as np
import numpy.typing as npt
import pytest

from solvers.ordering.objectives import spread_nearby


def noisy(n: int, median_us: float = 100.0) -> npt.NDArray[np.float64]:
    """Hosts of one place."""
    rtt = median_us * np.random.default_rng(n).lognormal(0.0, 0.15, (n, n))
    rtt = np.maximum(rtt, rtt.T)
    np.fill_diagonal(rtt, 0.0)
    return rtt


def sites(sizes: list[int], apart_us: float) -> npt.NDArray[np.float64]:
    rtt, site = noisy(sum(sizes)), np.repeat(np.arange(len(sizes)), sizes)
    rtt[site[:, None] != site] = apart_us
    return rtt


def test_the_spread_nearby_is_that_of_the_hosts_of_one_place() -> None:
    alone = spread_nearby(noisy(64))
    assert alone == pytest.approx(noisy(64)[~np.eye(64, dtype=bool)].std())
    far = noisy(64)
    far[5, :5] = far[5, 6:] = far[:5, 5] = far[6:, 5] = 20_000.0
    assert alone < spread_nearby(far) < 2 * alone
    for sizes in ([32, 32], [16, 48], [22, 21, 21]):
        assert alone < spread_nearby(sites(sizes, 10_000.0)) < 5 * alone
    assert sites([16, 48], 10_000.0).std() > 100 * alone


def test_equal_round_trips_differ_from_a_host_itself() -> None:
    assert spread_nearby(np.where(np.eye(4, dtype=bool), 0.0, 100.0)) == pytest.approx(np.sqrt(3) * 25)
    assert spread_nearby(np.zeros((3, 3))) == 0
    assert spread_nearby(np.zeros((1, 1))) == 0
