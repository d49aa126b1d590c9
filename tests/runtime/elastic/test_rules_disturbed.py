"""Rules under which clocks have steps or workers run ahead: each step counts once, whatever happens between two."""

import pytest

from plink.model.consistency import Rule
from plink.model.rules.asp import ASP
from plink.model.rules.dssp import DSSP
from plink.model.rules.elastic_bsp import ElasticBSP
from tests.runtime.elastic.stepping import (
    SHARDS,
    Counting,
    steps_with_moves,
    steps_with_roll_back,
    steps_with_takeover,
    uneven,
)

RULES = pytest.mark.parametrize("rule", [ASP(0.1), ElasticBSP(15), DSSP(1, 6)], ids=lambda rule: type(rule).__name__)


def check_count(rule: Rule, app: Counting, count: int) -> None:
    """Under ElasticBSP hardly more steps were counted than were wanted."""
    assert not isinstance(rule, ElasticBSP) or count < ((app.stop.clocks or 0) + 2) * SHARDS


@RULES
def test_shards_that_move_go_on_where_they_were(rule: Rule) -> None:
    app = Counting(uneven(3), 30)
    moves = {4: ((0, 3), (1, 2, 4, 5, 6, 7)), 7: ((0, 1, 2, 3, 4, 5, 6), (7,))}
    check_count(rule, app, steps_with_moves(rule, app, moves))


@RULES
@pytest.mark.parametrize("back_to", [3, 0])
def test_roll_back_amid_steps(back_to: int, rule: Rule) -> None:
    """What was done since counts once, though it was not the same number of steps the first time."""
    app = Counting(uneven(4), 40)
    check_count(rule, app, steps_with_roll_back(rule, app, back_to))


@RULES
def test_worker_taken_over_amid_steps(rule: Rule) -> None:
    app = Counting(uneven(4), 40)
    check_count(rule, app, steps_with_takeover(rule, app))
