"""Which algorithm for which size: the envelope is the cheapest everywhere, and lines are costs."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from plink.errors import UsageError
from solvers.advice import (
    CostLine,
    PricedAlgorithm,
    SizeInterval,
    cost_lines,
    envelope,
    fastest_lines,
    line_of,
    simulated_envelope,
    simulated_line,
)
from solvers.costs.by_name import closed_form_in_slices, engine_slices, pattern_for
from solvers.schedules.catalogue import Options
from tests.solvers.costs.test_cost_models import fabric

COSTS = st.floats(0, 1e4).map(lambda value: round(value, 2))


@example([(9317.0, 1.0), (195.5, 7117.0)], 1, 1)  # by rounding the same line is the cheapest where they meet
@given(st.lists(st.tuples(COSTS, COSTS), min_size=1, max_size=8), st.integers(1, 1000), st.integers(1, 10_000))
def test_the_envelope_is_cheapest_everywhere(costs: list[tuple[float, float]], low: int, width: int) -> None:
    candidates = [CostLine(f"a{k}", "given", start, slope) for k, (start, slope) in enumerate(costs)]
    result = envelope(candidates, low, low + width)
    assert result[0].from_bytes == low
    assert result[-1].to_bytes == low + width
    for item, next_ in itertools.pairwise(result):
        assert item.to_bytes == next_.from_bytes
        assert item.line.us_per_byte > next_.line.us_per_byte
    for stretch in result:
        for at in (stretch.from_bytes, (stretch.from_bytes + stretch.to_bytes) / 2, stretch.to_bytes):
            cheapest = min(line.at(at) for line in candidates)
            assert stretch.line.at(at) == pytest.approx(cheapest, rel=1e-9, abs=1e-6)


RISES = st.lists(st.floats(0, 100), min_size=4, max_size=4)


@given(st.lists(st.tuples(RISES, st.floats(0, 1)), min_size=1, max_size=6))
def test_lines_are_simulated_where_they_may_be_the_fastest(drawn: list[tuple[list[float], float]]) -> None:
    """Their envelope is that of all times, whatever bounds are known; what is hopeless is not simulated."""
    sizes = (1.0, 10.0, 100.0, 1000.0)
    times = [dict(zip(sizes, np.cumsum(rises).tolist(), strict=True)) for rises, _ in drawn]
    candidates, full = [], []
    for k, (_, tightness) in enumerate(drawn):
        busiest = tightness * min(time / size for size, time in times[k].items())
        candidates.append(PricedAlgorithm(f"a{k}", "job", times[k].__getitem__, busiest))
        full.append(simulated_line(f"a{k}", "job", times[k].__getitem__, sizes))
    result = simulated_envelope(fastest_lines(candidates, sizes), 1, 1000)
    assert [(each.line.algo, each.to_bytes) for each in result] == [
        (each.line.algo, each.to_bytes) for each in simulated_envelope(full, 1, 1000)
    ]

    def never(size: float) -> float:
        raise AssertionError(f"simulated at {size:g}")

    slowest = max(max(each.values()) for each in times)
    lines = fastest_lines([*candidates, PricedAlgorithm("hopeless", "job", never, slowest + 1)], sizes)
    assert [line.algo for line in lines] == [*(each.algo for each in candidates), "hopeless"]


@given(
    st.integers(2, 20),
    st.integers(0, 99),
    st.sampled_from(["alpha-beta", "contention"]),
    st.sampled_from([0.0, 1.0, 1e3, 1e5]),
)
def test_a_cost_is_linear_in_the_size_and_in_slices(n: int, seed: int, model: str, overhead_us: float) -> None:
    result = replace(fabric(n, seed), overhead_us=overhead_us)
    order = np.random.default_rng(seed).permutation(n)
    algorithms = {"ring": Options(), "halving-doubling": Options(), "flat": Options(), "tree": Options(fan_out=3)}
    for line in cost_lines(result, {"given": order}, algorithms, model)[0]:
        for size in (1.0, 64e3, 3e9):
            slices = engine_slices(line.algo, algorithms[line.algo], result, size) if model == "contention" else 1
            pattern = pattern_for(line.algo, n, algorithms[line.algo])
            cost_of = closed_form_in_slices(pattern, slices, result, size, model)
            assert line.at(size) == pytest.approx(cost_of(order), rel=1e-6, abs=1e-6)


def test_what_does_not_fit_is_left_out_with_the_reason() -> None:
    result, left_out = cost_lines(
        fabric(6), {"given": np.arange(6)}, {"ring": Options(), "bcube": Options()}, "contention"
    )
    assert {line.algo for line in result} == {"ring"}
    assert "power of 2" in left_out["bcube"]
    with pytest.raises(UsageError, match="ignores sizes"):
        cost_lines(fabric(6), {"given": np.arange(6)}, {"ring": Options()}, "latency")


def test_what_does_not_fit_keeps_nothing_else_out() -> None:
    """Whichever comes first: every algorithm that fits is there, in every order."""
    orders = {"given": np.arange(6), "back": np.arange(6)[::-1]}
    algorithms = {"bcube": Options(), "ring": Options(), "2lha": Options(), "flat": Options()}
    result, left_out = cost_lines(fabric(6), orders, algorithms, "contention")
    assert [(line.algo, line.family) for line in result] == [
        ("ring", "given"), ("ring", "back"), ("flat", "given"), ("flat", "back"),
    ]  # fmt: skip
    assert left_out.keys() == {"bcube", "2lha"}


def test_a_line_goes_through_its_costs_and_is_never_negative() -> None:
    line = line_of("ring", "given", lambda size: 0.25 + 3e-5 * size)
    assert (line.algo, line.family) == ("ring", "given")
    assert [line.start_us, line.us_per_byte] == pytest.approx([0.25, 3e-5])
    assert line.at(2e6) == pytest.approx(60.25)
    assert line_of("a", "b", lambda _: 0.0) == CostLine("a", "b", 0.0, 0.0)
    assert line_of("a", "b", lambda _: 7.0) == CostLine("a", "b", 7.0, 0.0)
    # By rounding a cost may fall, or its line begin below zero.
    assert line_of("a", "b", lambda size: 7.0 - 1e-6 * size).us_per_byte == 0.0
    assert line_of("a", "b", lambda size: 1e-5 * size - 1.0).start_us == 0.0


STEEP, MIDDLE, FLAT = (
    CostLine(name, "given", start, slope) for name, start, slope in (("s", 0, 3), ("m", 10, 2), ("f", 40, 1))
)


@pytest.mark.parametrize("candidates", list(itertools.permutations([STEEP, MIDDLE, FLAT])))
def test_three_lines_by_hand(candidates: tuple[CostLine, ...]) -> None:
    """The steep one meets the middle one at 10 and the flat one at 20, but these two meet at 30."""
    assert envelope(candidates, 1, 100) == [
        SizeInterval(STEEP, 1, 10),
        SizeInterval(MIDDLE, 10, 30),
        SizeInterval(FLAT, 30, 100),
    ]
    assert envelope(candidates, 1, 20) == [SizeInterval(STEEP, 1, 10), SizeInterval(MIDDLE, 10, 20)]
    assert envelope(candidates, 15, 31) == [SizeInterval(MIDDLE, 15, 30), SizeInterval(FLAT, 30, 31)]
    # Where lines meet at an end there is no stretch of no length.
    assert envelope(candidates, 1, 10) == [SizeInterval(STEEP, 1, 10)]
    assert envelope(candidates, 10, 30) == [SizeInterval(MIDDLE, 10, 30)]


def test_three_lines_through_one_point_leave_out_the_middle_one() -> None:
    lines_ = [CostLine("a", "given", 0.0, 3.0), CostLine("b", "given", 10.0, 2.0), CostLine("c", "given", 20.0, 1.0)]
    for candidates in itertools.permutations(lines_):
        assert envelope(candidates, 1, 50) == [SizeInterval(lines_[0], 1, 10), SizeInterval(lines_[2], 10, 50)]


def test_nothing_is_the_fastest_between_two_sizes_a_byte_apart() -> None:
    """One falls there from 300 to 100 us, where the line of another would be the fastest on its way."""
    sizes = (10.0, 100.0, 101.0, 1000.0)
    falling = simulated_line("falling", "given", dict(zip(sizes, (300, 300, 100, 100), strict=True)).__getitem__, sizes)
    low = simulated_line("low", "given", dict(zip(sizes, (150, 150, 190, 900), strict=True)).__getitem__, sizes)
    between = simulated_line("between", "given", dict(zip(sizes, (170, 170, 150, 900), strict=True)).__getitem__, sizes)
    stretches = simulated_envelope([falling, low, between], 10, 1000)
    assert [(each.line.algo, each.from_bytes, each.to_bytes) for each in stretches] == [
        ("low", 10, 100), ("falling", 101, 1000)
    ]  # fmt: skip


def test_of_equal_lines_the_first_is_taken() -> None:
    twins = [CostLine("a", "given", 5.0, 1.0), CostLine("b", "given", 5.0, 1.0)]
    assert envelope(twins, 1, 9) == [SizeInterval(twins[0], 1, 9)]
    assert envelope([STEEP, *twins], 1, 9)[-1].line is twins[0]
    assert envelope(twins[::-1], 1, 9) == [SizeInterval(twins[1], 1, 9)]
