"""What an embedding is judged by, against the same written out pair by pair and host by host."""

import math

import numpy as np
import pytest

import solvers.embedding.embed
from plink.errors import NoAnswer
from plink.model.network import Matrix
from solvers.embedding.embed import Embedding, _chosen, embed, held_out_of, refitted, triangle_violations
from solvers.embedding.fitting import Fits, Trial, fit_all
from solvers.embedding.pairs import EmbeddingConstraints, Setting, reachable
from solvers.embedding.verdict import _verdict, validate_halves, validate_held_out, word_for
from solvers.prediction.observed import by_neighbours, observed

PLAIN = EmbeddingConstraints(dimension=2, alpha=1.0, heights=False, relative=False)
NAN = math.nan


def plane(n: int, seed: int = 0, noise: float = 0.0) -> Matrix:
    """Round trips of hosts in a plane, the same in both directions."""
    rng = np.random.default_rng(seed)
    place = rng.uniform(0, 100, (n, 2))
    off = np.triu(rng.normal(0, noise, (n, n)), 1)
    return np.asarray(np.linalg.norm(place[:, None] - place, axis=2) * np.exp(off + off.T))


def like(setting: Setting, steps: int) -> Embedding:
    """An embedding of which only the setting and the steps count."""
    nothing = np.zeros((0, 0))
    return Embedding(nothing, nothing, nothing, setting, 0.0, 0.0, steps, 1, 0.0, ())


LIKE = like(Setting(2, 1.0, heights=False, relative=True), 20)


def test_less_than_two_standard_errors_are_no_difference() -> None:
    for gain, error, word in (
        (1.0, 0.5, "no difference"), (1.0, 0.499, "helps"), (-1.0, 0.5, "no difference"), (-1.0, 0.499, "hurts"),
        (0.0, 0.0, "no difference"), (1e-9, 0.0, "helps"), (-1e-9, 0.0, "hurts"),
    ):  # fmt: skip
        assert word_for(gain, error) == word, (gain, error)


def test_the_standard_error_leaves_out_one_host_after_the_other() -> None:
    """Jackknife; hosts without a pair are not left out, for that changes nothing. Errors are roots of mean squares."""
    rng = np.random.default_rng(0)
    i, j = np.array([0, 0, 1, 2, 4, 1, 0]), np.array([1, 2, 2, 4, 5, 5, 5])
    fitted, raw = rng.uniform(0, 1, 7), rng.uniform(0, 2, 7)
    result = _verdict(fitted, raw, i, j, 6, "halves")
    means = []
    for host in range(6):
        remaining = (i != host) & (j != host)
        means.append(float((raw - fitted)[remaining].mean()))
    middle = sum(means) / 6
    error = math.sqrt(5 / 6 * sum((mean - middle) ** 2 for mean in means))
    assert result.standard_error == pytest.approx(error, abs=1e-6)
    assert result.word == word_for(float(raw.mean() - fitted.mean()), error)
    errors = (math.sqrt(fitted.mean()), math.sqrt(raw.mean()))
    assert (result.fitted_error, result.raw_error) == pytest.approx(errors, abs=1e-6)
    assert (result.basis, result.pairs) == ("halves", 7)


def test_halves_validate_each_other_pair_by_pair() -> None:
    """With logarithms a and b of both, f and g of their fits: the fit is off by half of
    (f - b)^2 + (g - a)^2 - (a - b)^2, both halves together by (a - b)^2 / 4, and one alone by twice that."""
    halves = plane(14, noise=0.2), plane(14, noise=0.0)
    halves[1][2, 5] = halves[1][5, 2] = NAN
    halves[0][0, 13] = halves[0][13, 0] = NAN
    fits = [refitted(half, LIKE, 3) for half in halves]
    fitted, apart = [], []
    for i in range(14):
        for j in range(i + 1, 14):
            if (i, j) not in ((2, 5), (0, 13)):
                a, b, f, g = (math.log(item[i, j]) for item in (*halves, *fits))
                fitted.append(((f - b) ** 2 + (g - a) ** 2 - (a - b) ** 2) / 2)
                apart.append((a - b) ** 2)
    whole, half = (validate_halves(halves, LIKE, 3, whole=item) for item in (True, False))
    assert whole.pairs == half.pairs == 14 * 13 // 2 - 2
    assert (
        whole.fitted_error
        == half.fitted_error
        == pytest.approx(math.sqrt(max(0.0, sum(fitted) / len(fitted))), abs=1e-6)
    )
    assert whole.raw_error == pytest.approx(math.sqrt(np.mean(apart) / 4), abs=1e-6)
    assert half.raw_error == pytest.approx(math.sqrt(np.mean(apart) / 2), abs=1e-6)
    assert whole.word == word_for(float(np.mean(apart) / 4 - np.mean(fitted)), whole.standard_error)


def test_it_does_not_matter_which_half_is_which() -> None:
    halves = plane(10, noise=0.2), plane(10, noise=0.1)
    item, other = validate_halves(halves, LIKE), validate_halves(halves[::-1], LIKE)
    assert (item.word, item.raw_error) == (other.word, other.raw_error)
    assert (item.fitted_error, item.standard_error) == pytest.approx(
        (other.fitted_error, other.standard_error), abs=2e-6
    )


def test_held_out_pairs_are_validated_by_a_fit_without_them() -> None:
    rtt = plane(16, noise=0.2)
    pairs = reachable(rtt).pairs
    drawn = held_out_of(pairs, 4)
    i, j = pairs.i[drawn], pairs.j[drawn]
    rest = rtt.copy()
    rest[i, j] = rest[j, i] = NAN
    fitted = refitted(rest, LIKE, 4)
    verdict = validate_held_out(rtt, LIKE, 4)
    assert verdict.pairs == len(drawn) == 24
    error = math.sqrt((np.log(fitted[i, j] / rtt[i, j]) ** 2).mean())
    assert verdict.fitted_error == pytest.approx(error, abs=1e-6)
    neighbours = by_neighbours(rest, i, j)
    raw = math.sqrt((np.log(neighbours / rtt[i, j]) ** 2).mean())
    assert verdict.raw_error == pytest.approx(raw, abs=1e-6)
    assert verdict.word == word_for(raw**2 - error**2, verdict.standard_error)


@pytest.mark.parametrize(("gone", "enough"), [(5, True), (6, False)])
def test_ten_pairs_are_enough_to_validate(gone: int, enough: bool) -> None:
    """Of 11 hosts' 55 pairs, less some, a fifth is held out: 10, or 9."""
    rtt = plane(11)
    for k in range(gone):
        rtt[k, k + 1] = rtt[k + 1, k] = NAN
    if enough:
        assert validate_held_out(rtt, LIKE).pairs == 10
    else:
        with pytest.raises(NoAnswer, match="9 pairs are too few"):
            validate_held_out(rtt, LIKE)


@pytest.mark.parametrize(("common", "enough"), [(10, True), (9, False)])
def test_ten_pairs_in_common_are_enough(common: int, enough: bool) -> None:
    """Halves of which either is a ring with chords."""
    i, j = np.triu_indices(10, 1)
    parts = np.full((10, 10), NAN), np.full((10, 10), NAN)
    rtt = plane(10)
    ring = [k for k in range(45) if (j[k] - i[k]) in (1, 9)]
    rest = [k for k in range(45) if k not in ring]
    for half, part in enumerate(parts):
        for k in ring[:common] + rest[half * 17 : half * 17 + 17]:
            part[i[k], j[k]] = part[j[k], i[k]] = rtt[i[k], j[k]]
    if enough:
        assert validate_halves(parts, LIKE).pairs == 10
    else:
        with pytest.raises(NoAnswer, match="9 pairs are too few"):
            validate_halves(parts, LIKE)


def test_unmeasured_pair_is_predicted_by_three_near_hosts() -> None:
    """Host 0 is nearest to 1, 2 and 3, in this order, then to 5; host 4 is nearest to 5, 1, 2. Of the pair (0, 4):
    1, 2, 3 measured 30, 40, 100 to 4, and 5, 1, 2 measured 25, 10, 11 to 0."""
    rtt = np.zeros((6, 6))
    for a, b, us in (
        (0, 1, 10), (0, 2, 11), (0, 3, 12), (0, 5, 25), (0, 4, NAN),
        (4, 1, 30), (4, 2, 40), (4, 3, 100), (4, 5, 5),
        (1, 2, 50), (1, 3, 50), (1, 5, 50), (2, 3, 50), (2, 5, 50), (3, 5, 50),
    ):  # fmt: skip
        rtt[a, b] = rtt[b, a] = us
    ends = np.array([0]), np.array([4])
    assert by_neighbours(rtt, *ends).tolist() == [np.median([30, 40, 100, 25, 10, 11])]
    assert by_neighbours(rtt, *ends[::-1]).tolist() == by_neighbours(rtt, *ends).tolist()
    rtt[2, 4] = rtt[4, 2] = NAN  # nobody asks it then: 3 and 5 are asked instead
    assert by_neighbours(rtt, *ends).tolist() == [np.median([30, 100, 5, 25, 10, 12])]


def test_of_several_starts_the_one_with_the_least_loss_is_kept() -> None:
    """Four for an embedding, two where another one has settled how."""
    rtt = plane(12, noise=0.3)
    result, pairs = embed(rtt, PLAIN, 1), reachable(rtt).pairs
    setting, nothing = result.setting, np.empty(0, dtype=np.intp)
    fits = fit_all(pairs, [Trial(setting, nothing)] * 4, 1, result.steps)
    best = int(fits.loss.argmin())
    assert result.loss == fits.loss.min() < fits.loss.max()
    np.testing.assert_allclose(result.coordinates, fits.coordinates[best] - fits.coordinates[best].mean(axis=0))
    again = fit_all(pairs, [Trial(setting, nothing)] * 2, 1, result.steps)
    place = again.coordinates[int(again.loss.argmin())]
    np.testing.assert_allclose(refitted(rtt, result, 1), np.linalg.norm(place[:, None] - place, axis=2), atol=1e-4)


def chosen(monkeypatch: pytest.MonkeyPatch, errors: dict[Setting, list[list[float]]]) -> tuple[Setting, int, float]:
    """What is chosen of settings when their held-out errors are these: of each check one row, whose values go round the
    pairs held out."""
    settings = list(errors)

    def made_up(pairs: object, trials: list[Trial], *more: object) -> Fits:
        held = np.array([[np.resize(row, len(held_out)) for row in errors[setting]] for setting, held_out in trials])
        nothing = np.zeros((len(trials), 1))
        return Fits(nothing, nothing, nothing[:, 0], 100 + 20 * np.arange(held.shape[1]), held)

    monkeypatch.setattr(solvers.embedding.embed, "fit_all", made_up)
    return _chosen(observed(plane(20)), settings, 0, "cpu", lambda: True)  # four folds of 38 pairs


def setting(dimension: int, relative: bool = False, alpha: float = 1.0) -> Setting:
    return Setting(dimension, alpha, False, relative)


def test_setting_and_steps_of_the_least_error_are_chosen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Though others would be more expressive, or better in the end, or worse at first."""
    errors = {
        setting(2): [[0.5], [0.3], [0.4]],
        setting(4): [[0.25], [0.2], [0.6]],
        setting(8, relative=True): [[0.22], [0.23], [0.21]],
    }
    for values in (errors, dict(reversed(errors.items()))):
        best, steps, error = chosen(monkeypatch, values)
        assert (best, steps) == (setting(4), 120)
        assert error == pytest.approx(0.2)
    errors[setting(8, relative=True)] = [[0.1], [0.23], [0.21]]
    best, steps, error = chosen(monkeypatch, errors)
    assert (best, steps) == (setting(8, relative=True), 100)
    assert error == pytest.approx(0.1)


def test_of_settings_that_are_as_good_the_most_expressive_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Relative errors before dimensions, these before a smaller error."""
    even = [0.3, 0.1]  # its mean is 0.2; another that is 0.2 throughout cannot be told from it
    errors = {setting(4): [[0.2]], setting(2, relative=True): [even], setting(2): [even]}
    assert chosen(monkeypatch, errors)[0] == setting(2, relative=True)
    errors = {setting(2): [[0.2]], setting(8): [even], setting(4): [even]}
    assert chosen(monkeypatch, errors)[0] == setting(8)
    errors = {setting(2): [[0.2005, 0.2005]], setting(2, alpha=2.0): [even], setting(2, alpha=1.5): [[0.31, 0.1]]}
    assert chosen(monkeypatch, errors)[0] == setting(2, alpha=2.0)


def test_of_many_hosts_256_are_enough_to_count_detours_by() -> None:
    """Where every pair is measured and those of two kinds are near each other, a quarter of the detours are shorter."""
    n = 300
    rtt = np.full((n, n), 10.0)
    near = np.arange(n) % 2 == 0
    rtt[near[:, None] != near] = 4.0  # by way of a host of the other kind it is 8
    exact = (n / 2 - 1) * (n / 2) * (n / 2) / (n * (n - 1) / 2 * (n - 2))
    assert triangle_violations(rtt) == pytest.approx(exact, rel=0.02)
    assert triangle_violations(rtt[:100, :100]) == pytest.approx(49 * 50 * 50 / (4950 * 98))
