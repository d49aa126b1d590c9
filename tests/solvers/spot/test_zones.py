"""Instances across zones whose capacity comes and goes: by hand, and what holds on any history."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.made_availability import KINDS, ZoneKind, make_availability
from benchmarks.spot_zone_policies import (
    NextZone,
    OneZone,
    ZoneBidBrain,
    ZoneJob,
    ZonePolicy,
    ZoneRecord,
    simulate_zones,
)
from plink.model.spot.prices import AvailabilityTrace
from solvers.spot.billing import BILLINGS
from solvers.spot.footprint import Application, Scaling
from solvers.spot.odds import Interruptions

APPLICATION = Application(Scaling(), start_s=120, add_s=30, evict_s=60)
NO_BELIEF = Interruptions(0.0, 0.0)


def job(nodes: int, billing: str = "first-hour-free") -> ZoneJob:
    return ZoneJob(nodes, APPLICATION, BILLINGS[billing])


def zone(*counts: int) -> AvailabilityTrace:
    """Sampled every ten minutes."""
    return AvailabilityTrace(600, np.array(counts))


def bidbrain(wanted: ZoneJob, *before: AvailabilityTrace) -> ZoneBidBrain:
    return ZoneBidBrain(wanted, [ZoneRecord.of(trace, wanted.nodes, NO_BELIEF) for trace in before])


def test_instances_that_nobody_takes() -> None:
    """Two hours of four, which begin to work after two minutes."""
    outcome = simulate_zones([zone(*[4] * 12)], job(4), OneZone(0))
    assert outcome.money == pytest.approx(8)
    assert outcome.work == pytest.approx(4 * (2 - 120 / 3600))
    assert outcome.half_share == pytest.approx(1 - 120 / 7200)
    assert (outcome.interrupted, outcome.free_hours) == (0, 0)


def test_the_first_hour_is_free_if_it_is_interrupted() -> None:
    """One of two instances goes after 30 minutes, and comes back after 10 more: it stops the other for a minute."""
    outcome = simulate_zones([zone(2, 2, 2, 1, 2, 2)], job(2), OneZone(0))
    assert outcome.interrupted == 1
    assert outcome.free_hours == pytest.approx(0.5)
    assert outcome.money == pytest.approx(1 + 20 / 60)
    missing_s, pauses_s = 600 + 120, 60 + 2 * 30  # the second pause stops both: the new one works already
    assert outcome.work == pytest.approx((2 * (3600 - 120) - missing_s - pauses_s) / 3600)


def test_the_next_zone_gives_what_the_first_takes_back() -> None:
    zones = [zone(2, 2, 0, 0, 2, 2), zone(0, 0, 2, 2, 2, 2)]
    assert simulate_zones(zones, job(2), OneZone(0)).work < simulate_zones(zones, job(2), NextZone(2)).work
    outcome = simulate_zones(zones, job(2), NextZone(2))
    assert outcome.interrupted == 2
    assert outcome.money == pytest.approx(2 * 40 / 60)


def test_bidbrain_prefers_calm_zones_where_nothing_is_free() -> None:
    calm, busy = zone(*[4] * 48), zone(*[4, 4, 2] * 16)
    wanted = job(4, "per-second")
    outcome = simulate_zones([busy, calm], wanted, bidbrain(wanted, busy, calm))
    assert outcome.interrupted == 0


def test_bidbrain_uses_free_hours() -> None:
    """A zone that takes an instance back within most hours costs less per work where these hours are free."""
    kinds = [ZoneKind(400, 0.1), ZoneKind(1.0, 0.2, 0.9)]
    before, after = (make_availability(kinds, 20, seed, nodes=4) for seed in (1, 2))
    costs = {}
    for billing in ("first-hour-free", "per-second"):
        wanted = job(4, billing)
        costs[billing] = simulate_zones(after, wanted, bidbrain(wanted, *before))
    assert costs["first-hour-free"].cost < 0.97 < 1 < costs["per-second"].cost
    assert costs["first-hour-free"].interrupted > costs["per-second"].interrupted


def test_bidbrain_learns_from_its_own_interruptions() -> None:
    """Both zones were calm before; one is not any more."""
    calm = zone(*[4] * 400)
    busy = zone(*[4, 4, 3] * 133, 4)
    wanted = job(4, "per-second")
    first_third, all_of_it = (
        simulate_zones([zone(*trace.counts[:count]) for trace in (busy, calm)], wanted, bidbrain(wanted, calm, calm))
        for count in (133, 400)
    )
    assert all_of_it.interrupted - first_third.interrupted <= first_third.interrupted


def test_it_leaves_a_zone_in_which_nothing_can_be_done() -> None:
    """It interrupts every minute, for five minutes each time."""
    bad = AvailabilityTrace(60, np.array([4, 3] * 200))
    good = AvailabilityTrace(60, np.full(400, 4))
    wanted = ZoneJob(4, Application(Scaling(), start_s=0, add_s=0, evict_s=300), BILLINGS["per-second"])
    brain = ZoneBidBrain(wanted, [ZoneRecord.of(each, 4, NO_BELIEF) for each in (bad, good)])
    assert simulate_zones([bad, good], wanted, brain).interrupted == 0


def test_histories_of_different_lengths() -> None:
    with pytest.raises(ValueError, match="different lengths"):
        simulate_zones([zone(1, 1), zone(1)], job(1), OneZone(0))


def test_generated_availability_has_the_mean_of_each_zone() -> None:
    zones = make_availability(KINDS, 200, 3)
    shares = [float((trace.counts == 16).mean()) for trace in zones]
    wanted = [kind.calm_h / (kind.calm_h + kind.scarce_h) for kind in KINDS]
    assert shares == pytest.approx(wanted, abs=0.08)
    assert all(np.array_equal(a.counts, b.counts) for a, b in zip(zones, make_availability(KINDS, 200, 3), strict=True))
    assert all(trace.counts.min() >= 0 and trace.counts.max() == 16 for trace in zones)


COUNTS = st.lists(st.lists(st.integers(0, 4), min_size=30, max_size=30), min_size=1, max_size=3)


@given(COUNTS, st.integers(1, 4), st.sampled_from(sorted(BILLINGS)))
@settings(max_examples=60, deadline=None)
def test_on_any_history(counts: Sequence[Sequence[int]], nodes: int, billing: str) -> None:
    """Nothing works that is not held, what is held was available, and only interruptions are free."""
    zones = [zone(*each) for each in counts]
    wanted = job(nodes, billing)
    policies: list[ZonePolicy] = [OneZone(0), NextZone(len(zones)), bidbrain(wanted, *zones)]
    available = np.minimum(nodes, np.sum([trace.counts for trace in zones], axis=0)).sum() / 6
    for policy in policies:
        outcome = simulate_zones(zones, wanted, policy, seed=1)
        assert 0 <= outcome.work <= available + 1e-9
        assert 0 <= outcome.half_share <= 1
        assert outcome.free_hours == 0 or outcome.interrupted > 0
        assert outcome.money >= 0
        if billing == "per-second":
            assert outcome.money >= outcome.work - 1e-9
