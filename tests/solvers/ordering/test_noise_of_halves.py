"""Noise of which all is known: what is drawn around a round trip, and how wide an interval that makes."""

import numpy as np
import pytest
from scipy.special import ndtri, stdtrit

from solvers.costs.by_name import pattern_for
from solvers.costs.fabric import Fabric
from solvers.ordering.judging import Judgement, _Noise, judge, split
from solvers.schedules.catalogue import Options
from tests.solvers.costs.test_cost_models import fabric
from tests.solvers.synthetic import Matrix, random_costs


def symmetric(values: Matrix) -> Matrix:
    upper = np.triu(values, 1)
    return upper + upper.T


def halves(n: int, seed: int) -> tuple[Matrix, Matrix]:
    """Round trips of which no two are alike, by either half of the samples."""
    rng = np.random.default_rng(seed)
    return symmetric(rng.uniform(10, 1000, (n, n))), symmetric(rng.uniform(10, 1000, (n, n)))


def offs(fit: Matrix, held_out: Matrix) -> list[tuple[float, float]]:
    """Of every pair, nearest first: the logarithm of how far, and of what one half is off by."""
    pairs = [(fit[a, b], held_out[a, b]) for a in range(len(fit)) for b in range(a)]
    known = [(one, other) for one, other in pairs if one > 0 and other > 0]
    return sorted(
        ((np.log(one) + np.log(other)) / 2, abs(np.log(one) - np.log(other)) / 2**0.5) for one, other in known
    )


@pytest.mark.parametrize(("n", "reach"), [(3, 1), (4, 3), (9, 18), (12, 32), (20, 32), (24, 34), (40, 97)])
def test_a_pair_draws_from_one_in_eight_to_either_side_but_from_32_and_never_more_than_half(n: int, reach: int) -> None:
    """n (n - 1) / 2 pairs are seen; at the ends of the row it is as many, all to one side."""
    fit, held_out = halves(n, n)
    noise, seen = _Noise(fit, held_out, np.random.default_rng(0)), offs(fit, held_out)
    levels = [level for level, _ in seen]
    asked = np.exp([levels[0] - 1, levels[len(levels) // 2] + 1e-9, levels[len(levels) // 3] + 1e-9, levels[-1] + 1])
    drawn = np.abs(np.log(noise.factors(asked, 40 * reach, np.random.default_rng(1))))
    for k, us in enumerate(asked.tolist()):
        place = sum(level < np.log(us) for level in levels)
        first = min(max(place - reach, 0), len(seen) - 2 * reach)
        near = sorted(off for _, off in seen[first : first + 2 * reach])
        found = np.unique(np.round(drawn[:, k], 9))
        assert set(found.tolist()) <= set(np.round(near, 9).tolist())
        assert found[0] == pytest.approx(near[0], abs=1e-8)
        assert found[-1] == pytest.approx(near[-1], abs=1e-8)
        assert len(found) > 0.9 * len(near)


def test_noise_goes_either_way_as_often() -> None:
    fit, held_out = halves(8, 1)
    factors = _Noise(fit, held_out, np.random.default_rng(0)).factors(np.array([100.0]), 4000, np.random.default_rng(1))
    assert 0.45 < (factors > 1).mean() < 0.55


@pytest.mark.parametrize(("n", "reach"), [(4, 3), (12, 32), (40, 97)])
@pytest.mark.parametrize("confidence", [0.5, 0.95, 0.99])
def test_noise_known_from_few_pairs_widens_by_student_over_gauss(n: int, reach: int, confidence: float) -> None:
    """With as many degrees of freedom as pairs are drawn from."""
    half = (1 + confidence) / 2
    expected = stdtrit(2 * reach, half) / ndtri(half)
    assert _Noise(*halves(n, 2), np.random.default_rng(0)).few(confidence) == pytest.approx(expected, rel=1e-9)


def test_pairs_that_one_half_does_not_have_say_nothing_and_without_any_there_is_no_noise() -> None:
    fit, held_out = halves(5, 3)
    held_out[0, :] = held_out[:, 0] = np.nan
    fit[1, 2] = fit[2, 1] = np.nan
    held_out[3, 4] = held_out[4, 3] = 0.0
    factors = _Noise(fit, held_out, np.random.default_rng(0)).factors(np.full(3, 50.0), 60, np.random.default_rng(1))
    known = {round(off, 9) for _, off in offs(fit, held_out)}
    assert len(known) == 4
    assert set(np.round(np.abs(np.log(factors)), 9).ravel().tolist()) == known
    nothing = _Noise(fit, np.full((5, 5), np.nan), np.random.default_rng(0))
    assert nothing.factors(np.full(3, 50.0), 2, np.random.default_rng(1)).tolist() == [[1.0] * 3] * 2


def test_of_very_many_pairs_some_are_seen_and_never_a_host_with_itself() -> None:
    """400 hosts make 79,800 pairs. All are off by the same, and a host from itself by more."""
    n = 400
    fit = random_costs(n, 1, 100, 200) + np.eye(n)
    held_out = fit * (np.exp(0.2) + 5 * np.eye(n))
    noise = _Noise(fit, held_out, np.random.default_rng(0))
    factors = noise.factors(np.full(2, 150.0), 500, np.random.default_rng(1))
    assert np.abs(np.log(factors)) == pytest.approx(np.full((500, 2), 0.2 / 2**0.5))
    gauss = ndtri(0.975)
    assert stdtrit(2 * 65536 // 8, 0.975) / gauss < noise.few(0.95) * (1 + 1e-12)
    assert noise.few(0.95) < stdtrit(2 * 60000 // 8, 0.975) / gauss


def one_pair_each(off: float, confidence: float, order: list[int], given: list[int]) -> Judgement:
    """Two ranks on four hosts, 100 us apart but for 40 us from 2 to 3; every half is off by so much, up or down."""
    rtt = 100.0 * ~np.eye(4, dtype=bool)
    rtt[2, 3] = rtt[3, 2] = 40.0
    up = symmetric(np.exp(np.where(np.add.outer(np.arange(4), np.arange(4)) % 2, off, -off) * 2**0.5))
    found = fabric(4)
    two = Fabric(
        found.names, rtt * up, None, found.host_out_gbps, found.host_in_gbps, found.group_of, found.group_out_gbps,
        found.group_in_gbps, "measured",
    )  # fmt: skip
    pattern = pattern_for("halving-doubling", 2, Options())
    return judge([(1.0, pattern)], two, 1e6, "latency", np.array(order), np.array(given), rtt, 5, confidence)


@pytest.mark.parametrize("off", [0.01, 0.1, 0.3])
def test_an_interval_is_the_quantile_of_what_two_drawings_differ_by(off: float) -> None:
    """The gain is 1 - 0.4 f / g, with f and g off up or down, each as often: 0.4 times exp(2 off), 1, 1 or exp(-2 off).
    Of two drawings 6 of 16 agree, 4 differ by the smaller step, 4 by the larger and 2 by both. Six pairs are known,
    which Student's quantile with six degrees widens."""
    for confidence, apart in (
        (0.95, np.exp(2 * off) - np.exp(-2 * off)),
        (0.8, np.exp(2 * off) - 1),
        (0.5, 1 - np.exp(-2 * off)),
        (0.2, 0.0),
    ):
        said = one_pair_each(off, confidence, [2, 3], [0, 1])
        half = (1 + confidence) / 2
        reach = 0.4 * apart * stdtrit(6, half) / ndtri(half)
        assert said.gain == pytest.approx(0.6)
        assert said.high - said.gain == pytest.approx(reach, abs=1e-12)
        assert said.gain - said.low == pytest.approx(reach, abs=1e-12)
        assert said.pairs == 2
        # 2 to 3 and 0 to 1 were both fitted as much too high.
        assert said.predicted == pytest.approx(0.6)


def test_an_order_that_saves_nothing_is_within_the_noise() -> None:
    """At a gain of nothing the interval begins below it; without noise as well."""
    assert one_pair_each(0.1, 0.95, [0, 2], [0, 1]).within_noise
    assert not one_pair_each(0.01, 0.95, [2, 3], [0, 1]).within_noise
    assert Judgement(0.1, 0.0, 0.2, 0.1, 3).within_noise
    assert not Judgement(0.1, 1e-9, 0.2, 0.1, 3).within_noise


def test_halves_are_split_pair_by_pair() -> None:
    """A pair that both have is fitted on the first and judged on the second; any other as all samples say."""
    all_of_them, (first, second) = random_costs(4, 1, 10), halves(4, 4)
    first[0, 1] = first[1, 0] = np.nan
    second[0, 2] = second[2, 0] = 0.0
    parts = split((first, second), all_of_them)
    assert parts is not None
    fit, held_out = parts
    for a in range(4):
        for b in range(4):
            both = a != b and {a, b} not in ({0, 1}, {0, 2})
            assert fit[a, b] == (first[a, b] if both else all_of_them[a, b])
            assert held_out[a, b] == (second[a, b] if both else 0.0) or (np.isnan(held_out[a, b]) and not both)
    assert split((np.zeros((4, 4)), second), all_of_them) is None
