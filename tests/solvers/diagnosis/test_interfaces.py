"""Which interface is slow, by flows over each."""

import numpy as np
import pytest

from solvers.diagnosis.bandwidth import slow_interfaces


def rates(hosts: int, slow: dict[tuple[int, int], float]) -> list[list[float | None]]:
    """Two interfaces a host of about 1 Gbit/s, but these."""
    noise = np.random.default_rng(hosts).uniform(0.85, 1.0, (hosts, 2))
    return [[slow.get((host, k), float(noise[host, k])) for k in range(2)] for host in range(hosts)]


@pytest.mark.parametrize("way", ["sends", "receives"])
def test_one_direction_of_one_interface_is_named(way: str) -> None:
    slow, usual = rates(9, {(4, 1): 0.1}), rates(9, {})
    (result,) = slow_interfaces(slow if way == "sends" else usual, usual if way == "sends" else slow, [])
    assert result.ports == ((4, 1),)
    assert result.ways == {way: 0.1}
    assert 0.85 < result.usual_gbps < 1.0


def test_both_ends_of_a_slow_cable_are_named_together() -> None:
    ends = {(0, 0): 0.1, (3, 1): 0.1}
    result = slow_interfaces(rates(4, ends), rates(4, ends), [((0, 0), (3, 1)), ((1, 0), (2, 0))])
    assert [item.ports for item in result] == [((0, 0), (3, 1))]


def test_unknown_rates_and_noise_name_nothing() -> None:
    unknown = [[None, 1.0], [None, None], [0.1, None]]
    assert not slow_interfaces(rates(9, {}), rates(9, {}), [])
    assert not slow_interfaces([[None] * 2] * 3, [[None] * 2] * 3, [])
    assert not slow_interfaces(unknown, unknown, [])  # of two nobody knows which is slow
