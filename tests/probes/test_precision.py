"""When round trips are known well enough for their probes to end."""

import numpy as np

from probes.agent.summary import is_precise


def drawn(count: int, spread: float, seed: int = 1) -> list[int]:
    """Round trips of 20 us and what a queue adds, in nanoseconds."""
    generator = np.random.default_rng(seed)
    return [int(20_000 * (1 + spread * value)) for value in generator.exponential(1.0, count)]


def test_steady_round_trips_are_precise() -> None:
    assert is_precise(drawn(250, 0.01), 0.02)


def test_scattered_round_trips_need_more_probes() -> None:
    assert not is_precise(drawn(250, 1.0), 0.02)
    assert is_precise(drawn(20_000, 1.0), 0.02)


def test_drift_is_not_precise() -> None:
    early, late = drawn(2000, 0.01), [value + 4000 for value in drawn(2000, 0.01)]
    assert not is_precise(early + late, 0.02)


def test_few_answers_are_not_precise() -> None:
    assert not is_precise([], 0.02)
    assert not is_precise([20_000] * 10, 0.02)
    assert not is_precise([-1] * 100, 0.02), "a stepping clock"


def test_interval_covers_the_percentile() -> None:
    """Where probes end, the percentile is within the share of the true one in at least 9 of 10 cases."""
    true_ns = 20_000 * (1 + 1.0 * 0.10536)  # the 10th percentile of an exponential is -ln(0.9)
    ends, close = 0, 0
    for seed in range(200):
        samples = drawn(4000, 1.0, seed)
        if is_precise(samples, 0.02):
            ends += 1
            close += abs(sorted(samples)[400] - true_ns) <= 0.02 * true_ns
    assert ends > 100
    assert close >= 0.9 * ends
