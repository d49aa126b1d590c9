"""Stages and thresholds exactly at their edges."""

import math
from typing import Any

import pytest

from plink.errors import UsageError
from solvers.agile.hosts import Host, Tier
from solvers.agile.partitions import Partition, balanced, serving
from solvers.agile.stages import SLACK, Stage, Thresholds, Traffic, measured_thresholds, stage_for
from tests.solvers.agile.world import hosts

ONE, TWO, THREE = Stage.PARAMETER_SERVERS, Stage.ACTIVE_AND_BACKUP, Stage.BACKUP_ONLY


def test_thresholds_are_those_of_the_thesis_unless_told_otherwise() -> None:
    assert Thresholds() == Thresholds(active=1.0, backup_only=15.0)
    assert SLACK == 0.1


@pytest.mark.parametrize("ratios", [(0, 0), (0, 3), (2, 2), (1, math.inf)])
def test_two_ratios_in_order_are_thresholds(ratios: tuple[float, float]) -> None:
    assert Thresholds(*ratios).active == ratios[0]


@pytest.mark.parametrize(
    ("reliable", "active", "transient"),
    [(1, 3.0, 2), (4, 0.5, 1), (10, 2.0, 18), (20, 2.0, 36), (30, 1.0, 27), (5, 1.0, 4)],
)
def test_the_stage_goes_down_below_a_tenth_under_the_threshold_or_one_host(
    reliable: int, active: float, transient: int
) -> None:
    """``transient`` is the most with which stage 2 is left: at 40 hosts for a threshold a tenth is four of them."""
    limits = Thresholds(active, 50.0)
    assert stage_for(reliable, transient, limits, TWO) is ONE
    assert stage_for(reliable, transient + 1, limits, TWO) is TWO
    assert stage_for(reliable, transient + 1, limits, ONE) is (TWO if transient + 1 > active * reliable else ONE)


def test_each_threshold_on_the_way_down_must_be_undercut() -> None:
    """Ten reliable hosts: edges at 20 and 30, left at 18 and 27."""
    limits = Thresholds(2.0, 3.0)
    wanted = {28: THREE, 27: TWO, 21: TWO, 20: TWO, 19: TWO, 18: ONE, 1: ONE}
    assert {transient: stage_for(10, transient, limits, THREE) for transient in wanted} == wanted
    assert stage_for(10, 19, limits, TWO) is TWO
    assert stage_for(10, 28, limits, TWO) is TWO, "up it goes over the edge itself"
    assert stage_for(10, 31, limits, TWO) is THREE


def test_the_stage_goes_up_over_a_threshold_and_not_at_it() -> None:
    limits = Thresholds(2.0, 3.0)
    assert [stage_for(2, transient, limits) for transient in (4, 5, 6, 7)] == [ONE, TWO, TWO, THREE]
    assert stage_for(2, 7, limits, ONE) is THREE
    assert stage_for(1, 1, Thresholds(0.0, 0.0)) is THREE
    assert stage_for(1, 0, Thresholds(0.0, 0.0), THREE) is ONE


def test_measured_thresholds_by_hand() -> None:
    """Of 100 a half may be used. Workers take 10: five hosts, one of them itself. Backups 2: 40 of what is left."""
    now = Thresholds(1.0, 2.0)
    traffic = Traffic(worker=10.0, capacity=100.0, backup=2.0, load=0.5)
    assert measured_thresholds(traffic, now) == Thresholds(4.0, 20.0)
    assert measured_thresholds(Traffic(10.0, 100.0, None, 0.5), now) == Thresholds(4.0, 4.0), "never below the first"
    assert measured_thresholds(Traffic(10.0, 100.0, 0.0, 0.5), Thresholds(1.0, 30.0)) == Thresholds(4.0, 30.0)
    assert measured_thresholds(Traffic(0.0, 100.0, 5.0, 0.5), now) == Thresholds(1.0, 10.0)
    assert measured_thresholds(Traffic(0.5, 1.0, 1.0, 0.5), now) == Thresholds(0.0, 0.0)
    assert measured_thresholds(Traffic(80.0, 100.0, 5.0, 0.5), now) == Thresholds(0.0, 0.0), "none below nothing"


@pytest.mark.parametrize(("workers", "active"), [(9.0, 10.0), (11.0, 10.0), (8.0, 8.0), (12.0, 12.0)])
def test_a_threshold_moves_by_more_than_a_tenth_or_not_at_all(workers: float, active: float) -> None:
    """Capacity for so many hosts' workers, and one more."""
    traffic = Traffic(worker=1.0, capacity=workers + 1, load=1.0)
    assert measured_thresholds(traffic, Thresholds(10.0, 99.0)).active == active


def test_four_fifths_of_a_line_may_be_used_unless_told_otherwise() -> None:
    assert Traffic(1.0, 1.0) == Traffic(1.0, 1.0, None, 0.8)


@pytest.mark.parametrize("wrong", [{"worker": -1.0}, {"capacity": math.inf}, {"backup": -0.1}, {"load": math.nan}])
def test_traffic_that_cannot_be_is_refused(wrong: dict[str, float]) -> None:
    right: dict[str, Any] = {"worker": 0.0, "capacity": 0.0, "backup": 0.0, "load": 0.0}
    Traffic(**right)
    with pytest.raises(UsageError, match="traffic"):
        Traffic(**(right | wrong))


# Who serves


def test_half_of_the_transient_hosts_serve_rounded_up_and_no_more_than_there_are_partitions() -> None:
    for transient, servers in ((1, 1), (2, 1), (3, 2), (5, 3), (6, 3)):
        assert serving(TWO, hosts(1, transient), 99) == tuple(range(1, 1 + servers))
    assert serving(TWO, hosts(1, 6), 2) == (1, 2)
    assert serving(THREE, hosts(1, 6), 3) == (1, 2, 3)
    assert serving(ONE, hosts(3, 6), 1) == (0, 1, 2)


def test_entries_without_a_server_go_to_who_lacks_most_and_then_to_the_lowest_number() -> None:
    assert balanced([None] * 5, [4, 2, 7]) == (2, 4, 2, 4, 7)
    assert balanced([4, None, 4, None, None], [2, 4]) == (4, 2, 4, 2, 4)  # 4 may have three


def test_the_odd_entries_stay_with_those_that_have_most() -> None:
    assert balanced([7, 7, 7, 2, None], [2, 4, 7]) == (7, 7, 2, 2, 4)
    assert balanced([2, 7, 7, 7], [2, 7]) == (2, 7, 7, 2)
    assert balanced([2, 7, 7], [2, 7]) == (2, 7, 7)
    assert balanced([9, 9, 7], [2, 7]) == (2, 7, 7)


def test_a_partition_is_safe_and_at_rest_unless_told_otherwise() -> None:
    assert Partition(1, 2, 3, 4) == Partition(1, 2, 3, 4, safe=True, waiting=False, heir=None, copy=None)


def test_the_least_numbers_that_a_host_may_have() -> None:
    one = Host(0, "a", Tier.RELIABLE, 1, 1e-9)
    assert Host(0, "a", Tier.RELIABLE) == Host(0, "a", Tier.RELIABLE, slots=1, bytes_per_s=None)
    assert one.bytes_per_s == 1e-9
