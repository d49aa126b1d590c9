"""Classes of moves as the kernels take them: nothing lost, hosts alone far more often than blocks."""

from hypothesis import given, settings
from hypothesis import strategies as st

from solvers.ordering.constraints import ExchangeClass, moves_of

RANKS = 60


@st.composite
def disjoint(draw: st.DrawFn) -> list[ExchangeClass]:
    """Classes of hosts that have no rank in common, and blocks anywhere."""
    free, classes = list(range(0, RANKS, 4)), []
    for _ in range(draw(st.integers(0, 4))):
        taken = sorted(draw(st.sets(st.sampled_from(free), min_size=1))) if free else []
        free = [first for first in free if first not in taken]
        if taken:
            classes.append(ExchangeClass(tuple(taken), draw(st.integers(1, 4)), single_hosts=True))
    for _ in range(draw(st.integers(0, 3))):
        starts = draw(st.sets(st.sampled_from(range(0, RANKS, 4)), min_size=1))
        classes.append(ExchangeClass(tuple(sorted(starts)), 4))
    return draw(st.permutations(classes))


@settings(max_examples=40)
@given(disjoint())
def test_every_class_with_something_to_exchange_can_be_drawn(classes: list[ExchangeClass]) -> None:
    useful = [item for item in classes if len(item.first_ranks) > 1]
    moves = moves_of(classes, RANKS)
    if not useful:
        assert moves is None
        return
    assert moves is not None
    assert sorted(set(moves.classes.wheel.tolist())) == list(range(len(useful)))
    assert moves.classes.ptr[0] == 0
    for c, item in enumerate(useful):
        assert moves.classes.first[moves.classes.ptr[c] : moves.classes.ptr[c + 1]].tolist() == list(item.first_ranks)
        assert moves.classes.length[c] == item.length
        assert moves.classes.reversible[c] == item.single_hosts
    assert len(moves.classes.ptr) == len(useful) + 1
    assert moves.classes.ptr[-1] == len(moves.classes.first)


@settings(max_examples=40)
@given(disjoint())
def test_every_rank_knows_its_host(classes: list[ExchangeClass]) -> None:
    useful = [item for item in classes if len(item.first_ranks) > 1]
    moves = moves_of(classes, RANKS)
    expected = {
        rank: (unit[0], c, item.length)
        for c, item in enumerate(useful)
        if item.single_hosts
        for unit in item.units
        for rank in unit
    }
    if moves is not None:
        result = zip(*(column.tolist() for column in moves.units), strict=True)
        assert list(result) == [expected.get(rank, (-1, -1, -1)) for rank in range(RANKS)]
