"""Closed forms where hosts and ranks are not as many, where costs are asked for in turns, where pairs are unknown."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plink.errors import NoAnswer, UsageError
from plink.model.schedule import make_schedule
from solvers.costs.by_name import pattern_for
from solvers.costs.closed_forms import closed_form
from solvers.costs.evaluator import MODELS, TIMING_MODELS, evaluate
from solvers.costs.patterns import all_to_all_pattern, pattern_of
from solvers.schedules.catalogue import ALGORITHMS, schedule_for
from tests.solvers.costs.test_cost_models import fabric, options_for

NINE = np.arange(9)


@given(st.sampled_from(list(ALGORITHMS)), st.sampled_from(MODELS), st.booleans())
def test_few_ranks_on_many_hosts_and_many_on_few(algo: str, model: str, pairs: bool) -> None:
    """Four ranks on some of nine hosts, and sixteen on three of them."""
    result = fabric(9, seed=3, groups=4, pairs=pairs)
    rng = np.random.default_rng(3)
    for ranks, hosts in ((4, NINE), (4, NINE[5:]), (16, np.array([1, 4, 8]))):
        options = options_for(algo, ranks, 3)
        cost_of = closed_form(pattern_for(algo, ranks, options), result, 3e6, model)
        for _ in range(3):
            order = rng.permutation(np.resize(hosts, max(ranks, len(hosts))))[:ranks]
            wanted = evaluate(schedule_for(algo, ranks, options), result, order, 3e6, model).cost_us
            assert cost_of(order) == pytest.approx(wanted, rel=1e-9)


def test_everyone_to_everyone_by_hand() -> None:
    """Ranks 0 and 1 on host a, 2 on b, 3 on c; 4 MB, so 1 MB from each rank to each other one, twice. All rates are 8
    Gbit/s (1,000 bytes a microsecond), and a and b share a way out and in of 4.

    a sends and gets 1 MB of either of its ranks with either of the two others: 4 MB. From a and b to c go three times 1
    MB, and as much comes back, at 500 bytes a microsecond each; for c alone these are 3 MB at 1,000."""
    result = fabric(3)
    result = dataclasses.replace(
        result,
        rtt_us=np.array([[0.0, 10.0, 30.0], [10.0, 0.0, 50.0], [30.0, 50.0, 0.0]]),
        host_out_gbps=np.full(3, 8.0),
        host_in_gbps=np.full(3, 8.0),
        group_of=np.array([0, 0, 1]),
        group_out_gbps=np.array([4.0, np.inf]),
        group_in_gbps=np.array([4.0, np.inf]),
    )
    order = np.array([0, 0, 1, 2])
    cost_of = {model: closed_form(all_to_all_pattern(4), result, 4e6, model)(order) for model in MODELS}
    assert cost_of["latency"] == 50.0
    assert cost_of["alpha-beta"] == pytest.approx(2 * (25 + 4000))
    assert cost_of["contention"] == pytest.approx(2 * (25 + 6000 * 2 ** (1 / 16)))
    result.rtt_us[0, 2] = result.rtt_us[2, 0] = np.nan
    with pytest.raises(NoAnswer, match="the round trip h0 - h2"):
        closed_form(all_to_all_pattern(4), result, 4e6, "latency")(order)


@given(st.sampled_from(TIMING_MODELS))
def test_a_pair_of_the_way_back_need_not_be_known_for_its_latency(timing: str) -> None:
    """Costs of the reduce phase."""
    result = fabric(3)
    result.rtt_us[0, 1] = result.rtt_us[1, 0] = 35.0
    result.rtt_us[1, 2] = result.rtt_us[2, 1] = np.nan
    schedule = make_schedule("mine", 3, 1, [(0, 0, 1, 0, 1, 0), (1, 1, 2, 0, 1, 1)], timing=timing)
    assert evaluate(schedule, result, np.arange(3), 1e6, "latency").cost_us == 35.0
    assert closed_form(pattern_of(schedule), result, 1e6, "latency")(np.arange(3)) == 35.0
    for model in ("alpha-beta", "contention"):
        for ask in (
            lambda model=model: evaluate(schedule, result, np.arange(3), 1e6, model),
            lambda model=model: closed_form(pattern_of(schedule), result, 1e6, model)(np.arange(3)),
        ):
            with pytest.raises(NoAnswer, match="the round trip h1 - h2"):
                ask()


def test_invalid_requests_are_refused_before_any_order() -> None:
    with pytest.raises(UsageError, match="--model guess"):
        closed_form(all_to_all_pattern(4), fabric(4), 1e6, "guess")
    with pytest.raises(UsageError, match="--size"):
        closed_form(all_to_all_pattern(4), fabric(4), 0.0, "latency")
