"""Orders to begin with, each written out a second time: by group, by the hierarchy's leaves, along a line."""

import dataclasses

import numpy as np
import pytest

from solvers.costs.fabric import Fabric
from solvers.grouping.even import leaves
from solvers.ordering.initial import _seriated, initial_orders
from tests.solvers.costs.test_cost_models import fabric
from tests.solvers.synthetic import Matrix, random_costs


def on_a_line(places: list[float]) -> Matrix:
    """Hosts as far from each other as their places are."""
    there = np.array(places)
    apart: Matrix = np.abs(there[:, None] - there[None, :])
    return apart


def written_out(found: Fabric, given: list[int]) -> list[list[int]]:
    """The orders, one after the other, none twice."""
    hosts = sorted(set(given))
    group = found.group_of.tolist()
    orders = [given, sorted(given, key=lambda host: group[host])]
    if len(hosts) > 2:
        rtt = found.rtt_us[np.ix_(hosts, hosts)]
        leaf = {hosts[k]: place for place, k in enumerate(leaves(rtt).tolist())}
        along = {hosts[k]: place for place, k in enumerate(_seriated(rtt).tolist())}
        ranks = {g: sum(group[host] == g for host in given) for g in group}
        first = {g: min((leaf[host] for host in hosts if group[host] == g), default=len(hosts)) for g in group}
        orders.append(sorted(given, key=leaf.__getitem__))
        orders.append(sorted(given, key=along.__getitem__))
        orders.append(sorted(given, key=lambda host: (-ranks[group[host]], first[group[host]], leaf[host])))
    return list(map(list, dict.fromkeys(map(tuple, orders))))


@pytest.mark.parametrize("n", [2, 3, 4, 6, 9, 14])
def test_orders_by_groups_leaves_and_a_line_are_what_they_say(n: int) -> None:
    """Of some of the hosts there are, in groups of many sizes; a host's ranks stay together."""
    for seed in range(6):
        rng = np.random.default_rng(seed)
        found = dataclasses.replace(fabric(n + 4, seed, groups=4), rtt_us=random_costs(n + 4, seed, 10, 1000))
        hosts = rng.permutation(n + 4)[:n]
        given = np.repeat(hosts, rng.integers(1, 4, n)) if seed % 2 else hosts
        assert [order.tolist() for order in initial_orders(found, given)] == written_out(found, given.tolist())


def test_groups_with_more_ranks_come_first_and_of_those_with_as_many_the_one_that_the_hierarchy_meets_first() -> None:
    """Hosts 0 to 7 on a line; groups of 1, 3, 2 and 2 of them, as they follow each other."""
    found = dataclasses.replace(
        fabric(8), rtt_us=on_a_line([0, 10, 21, 33, 46, 60, 75, 91]), group_of=np.array([0, 1, 1, 1, 2, 2, 3, 3])
    )
    last = initial_orders(found, np.array([7, 0, 2, 5, 4, 1, 3, 6]))[-1].tolist()
    assert sorted(last[:3]) == [1, 2, 3]
    assert {frozenset(last[3:5]), frozenset(last[5:7])} == {frozenset([4, 5]), frozenset([6, 7])}
    assert last[7] == 0


def test_two_hosts_have_no_hierarchy() -> None:
    found = dataclasses.replace(fabric(2), group_of=np.array([1, 0]))
    assert [order.tolist() for order in initial_orders(found, np.array([0, 1]))] == [[0, 1], [1, 0]]


def test_orders_that_are_the_same_are_begun_from_once() -> None:
    """On a line, in the order of the line: one group, and one way round of the rest."""
    found = dataclasses.replace(fabric(5, groups=1), rtt_us=on_a_line([0, 1, 2, 3, 4]))
    orders = [order.tolist() for order in initial_orders(found, np.arange(5))]
    assert orders[0] == [0, 1, 2, 3, 4]
    assert len({tuple(order) for order in orders}) == len(orders) <= 2


@pytest.mark.parametrize("unit", [1e-3, 1.0, 1e6])
def test_who_is_farthest_from_the_others_comes_last_on_the_line_in_any_unit(unit: float) -> None:
    """The vector's largest entry is made positive, and it is that of the host that is farthest off."""
    places = [3.0, 0.0, 9.0, 1.0, 2.0]
    assert _seriated(on_a_line(places) * unit).tolist() == [1, 3, 4, 0, 2]
    assert _seriated(on_a_line([10.0 - place for place in places]) * unit).tolist() == [1, 3, 4, 0, 2]


def test_hosts_at_no_distance_from_each_other_are_seriated_too() -> None:
    """The median round trip is 0 and no unit of length; one host is off."""
    assert _seriated(on_a_line([0.0, 0.0, 5.0, 0.0, 0.0]))[-1] == 2
