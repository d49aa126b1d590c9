"""Ranks that are lost without their connections ending: the others learn it by the group's time-out."""

from pathlib import Path

import pytest

from tests.runtime.allreduce.losses import check_losses, reduce_until_a_loss
from tests.runtime.allreduce.plans import plan_of, two_levels
from tests.runtime.ranks import run_ranks

TIMEOUT_S = 8.0


@pytest.mark.parametrize(
    ("how", "lost", "reasons", "after_s"),
    [
        ("hangs", 2, ["timed out after 8 s: rank 2 did not take part"], 7),
        ("freezes", 0, [], 0),  # the rank that keeps the store: nobody can say more than that it does not come
        ("differs", 1, ["rank 1: sum of 99999 x float32", "ranks 0, 2, 3: sum of 100000 x float32"], 0),
    ],
)
def test_a_lost_rank_is_named_to_all(how: str, lost: int, reasons: list[str], after_s: float, tmp_path: Path) -> None:
    unending = (lost,) if how != "differs" else ()
    plan = plan_of(tmp_path, two_levels(4))
    ended = run_ranks(
        reduce_until_a_loss, 4, how, lost, TIMEOUT_S, unending=unending, PLINK_BACKEND="2lha", PLINK_PLAN=plan
    )
    check_losses(ended, {0, 1, 2, 3} - set(unending), reasons, after_s)


@pytest.mark.parametrize(
    ("how", "reasons", "after_s"),
    [
        ("hangs", ["timed out after 8 s: rank 3 did not take part"], 7),
        ("differs", ["rank 3: sum of 99999 x float32", "ranks 1, 4: sum of 100000 x float32"], 0),
    ],
)
def test_a_lost_member_is_named_as_the_job_numbers_it(
    how: str, reasons: list[str], after_s: float, tmp_path: Path
) -> None:
    """To the other members; the other ranks are not concerned."""
    plan = plan_of(tmp_path, two_levels(5))
    ended = run_ranks(
        reduce_until_a_loss, 5, how, 3, TIMEOUT_S, [4, 1, 3], unending=(0, 2, 3), PLINK_BACKEND="on", PLINK_PLAN=plan
    )
    check_losses(ended, (1, 4), reasons, after_s)
