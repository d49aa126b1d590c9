"""Which settings are tried for so many hosts, and what a setting may be."""

import pytest

from plink.errors import UsageError
from solvers.embedding.pairs import EmbeddingConstraints, Setting


def test_the_plainest_setting_comes_first_and_all_others_once() -> None:
    result = EmbeddingConstraints().settings(16)
    assert result[0] == Setting(2, 1.0, heights=False, relative=False)
    assert result == sorted(result, key=lambda item: (item.dimension, item.alpha, item.heights, item.relative))
    assert len(set(result)) == len(result) == 2 * 2 * 2 * 2
    assert {item.alpha for item in result} == {1.0, 2.0}


def test_fixed_settings_are_not_varied() -> None:
    """A wish for no heights is a wish."""
    for constraints, number in (
        (EmbeddingConstraints(dimension=3), 8),
        (EmbeddingConstraints(alpha=1.5), 8),
        (EmbeddingConstraints(heights=False), 8),
        (EmbeddingConstraints(relative=False), 8),
        (EmbeddingConstraints(dimension=1, alpha=2.0, heights=True, relative=True), 1),
    ):
        result = constraints.settings(16)
        assert len(result) == len(set(result)) == number
        for name in ("dimension", "alpha", "heights", "relative"):
            if (constraint := getattr(constraints, name)) is not None:
                assert {getattr(setting, name) for setting in result} == {constraint}
            else:
                assert len({getattr(setting, name) for setting in result}) == 2


def test_dimension_and_alpha_have_limits() -> None:
    for dimension, alpha in ((1, 1.0), (64, 2.0)):
        assert Setting(dimension, alpha, heights=False, relative=False).alpha == alpha
    for dimension, alpha, culprit in (
        (0, 1.0, "dimension"), (65, 1.0, "dimension"), (2, 0.999, "alpha"), (2, 2.001, "alpha"),
        (2, float("nan"), "alpha"),
    ):  # fmt: skip
        with pytest.raises(UsageError, match=culprit):
            Setting(dimension, alpha, heights=False, relative=False)
