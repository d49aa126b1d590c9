"""Numbers by iteration, as a dict would have them."""

from hypothesis import given
from hypothesis import strategies as st

from plink.records.elastic_history import IterationValues


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 50))), st.integers(0, 30))
def test_like_a_dict(added: list[tuple[int, int]], last: int) -> None:
    values, wanted = IterationValues(), {}
    for iteration, value in added:
        values.add(iteration, value)
        wanted[iteration] = value
    assert list(values.values) == [wanted[iteration] for iteration in sorted(wanted)]
    rising = IterationValues()
    for iteration in range(30):
        rising.add(iteration, 2 * iteration)
    rising.keep_while(lambda value: value <= 2 * last)
    assert len(rising) == min(30, last + 1)
