"""Whether a check came out worse, exactly at what is tolerated."""

from solvers.checking.agreement import Correlation
from solvers.checking.regression import Tolerance, ranks_worse, slower


def test_exactly_the_tolerance_or_the_worst_before_is_not_slower() -> None:
    """Medians 1 and 1.5, of a tolerance of a half; and a median of 3 where it took 3 once before."""
    assert slower([1.0, 1.0], [1.5, 1.5], Tolerance(time=0.5)) is None
    assert slower([1.0, 1.0], [1.5, 1.5], Tolerance(time=0.49)) == 1.5
    assert slower([1.0, 1.0, 3.0], [3.0, 3.0, 2.0], Tolerance(time=0.5)) is None
    assert slower([1.0, 1.0, 2.9], [3.0, 3.0, 2.0], Tolerance(time=0.5)) == 3.0
    assert slower([2.0], [1.0], Tolerance(time=0.0)) is None
    assert slower([2.0], [6.0], Tolerance(time=0.0)) == 3.0


def test_exactly_the_tolerance_or_the_end_of_the_interval_ranks_no_worse() -> None:
    before = Correlation(0.75, None, None, 3)
    assert not ranks_worse(before, 0.5, Tolerance(spearman=0.25))
    assert ranks_worse(before, 0.499, Tolerance(spearman=0.25))
    known = Correlation(0.75, 0.25, 0.9, 9)
    assert not ranks_worse(known, 0.25, Tolerance(spearman=0.25))
    assert ranks_worse(known, 0.249, Tolerance(spearman=0.25))


def test_what_is_tolerated_unless_told_otherwise() -> None:
    assert Tolerance() == Tolerance(time=0.1, spearman=0.05)
