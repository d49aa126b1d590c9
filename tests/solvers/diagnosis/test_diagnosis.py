"""What is wrong with a network is said, once, of the right host or link; where nothing is wrong, nothing is said."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.clouds import three_tier
from plink.model.diagnosis import Finding
from plink.model.hosts import Host, Hosts
from plink.model.network import Network, to_rows
from solvers.diagnosis.findings import diagnose
from solvers.diagnosis.latency import DiagnosisThresholds
from solvers.hierarchy.tiers import nearest_tier
from tests.networks import details_from
from tests.solvers.synthetic import Matrix, racks

SIZES = st.lists(st.integers(2, 5), min_size=1, max_size=4).filter(lambda sizes: sum(sizes) >= 6)
# Racks in which one host, or one pair, is a minority: of two or three hosts it would be part of the standard.
LARGE = st.lists(st.integers(5, 7), min_size=2, max_size=3)
SEEDS = st.integers(0, 2**32 - 1)
some = settings(max_examples=40, deadline=None)
Integers = npt.NDArray[np.intp]


def measured(sizes: list[int], seed: int, noise: float = 0.03) -> tuple[Matrix, Integers]:
    """Round trips of racks, both directions with noise of their own; and the rack of every host."""
    cost, rack_of = racks(sizes, seed)
    return cost * np.random.default_rng(seed).uniform(1 - noise, 1 + noise, cost.shape), rack_of


def network(latency: Matrix, **details: Any) -> Network:
    """Hosts ``h0``, ``h1``, ... and their round trips."""
    hosts = Hosts(tuple(Host(f"h{i}", f"10.0.0.{i}") for i in range(len(latency))))
    return Network(hosts, latency, None, details_from(details))


def slow(latency: Matrix, host: int, us: float) -> Matrix:
    """One host slower to everybody."""
    latency = latency.copy()
    latency[host] += us
    latency[:, host] += us
    latency[host, host] = 0.0
    return latency


def kinds_of(findings: list[Finding]) -> list[tuple[str, list[str]]]:
    """What and whose."""
    return [(finding.kind, finding.hosts) for finding in findings]


@some
@given(SIZES, SEEDS, st.floats(0, 0.08))
def test_healthy_network_has_no_findings(sizes: list[int], seed: int, noise: float) -> None:
    latency, rack_of = measured(sizes, seed, noise)
    assert diagnose(network(latency), rack_of, {}) == []
    assert diagnose(network(latency), nearest_tier(np.fmax(latency, latency.T)), {}) == []


@some
@given(LARGE, SEEDS, st.floats(40.0, 400.0), st.data())
def test_a_slow_host_is_named_and_its_links_are_not(
    sizes: list[int], seed: int, us: float, data: st.DataObject
) -> None:
    latency, rack_of = measured(sizes, seed)
    host = data.draw(st.integers(0, len(latency) - 1))
    findings = diagnose(network(slow(latency, host, us)), rack_of, {})
    assert kinds_of(findings) == [("slow host", [f"h{host}"])]
    assert "us more than the usual" in findings[0].evidence
    assert findings[0].advice


@some
@given(st.lists(st.integers(4, 5), min_size=3, max_size=4), SEEDS, st.floats(60.0, 400.0), st.data())
def test_slow_host_in_its_own_group_is_named(sizes: list[int], seed: int, us: float, data: st.DataObject) -> None:
    """Which is where clustering by latency puts it: it must not become its own standard."""
    latency, rack_of = measured(sizes, seed)
    host = data.draw(st.integers(0, len(latency) - 1))
    groups = rack_of.copy()
    groups[host] = len(sizes)
    assert kinds_of(diagnose(network(slow(latency, host, us)), groups, {})) == [("slow host", [f"h{host}"])]


@pytest.mark.parametrize("us", [80.0, 20_000.0])
def test_among_four_hosts_the_slow_one_is_no_part_of_what_is_usual(us: float) -> None:
    """Half of all pairs are its own; clustering puts it into one group and the others into another."""
    latency, _ = measured([2, 2], 1)
    for host in range(4):
        groups = (np.arange(4) == host).astype(np.intp)
        assert kinds_of(diagnose(network(slow(latency, host, us)), groups, {})) == [("slow host", [f"h{host}"])]
        again = {(0, host) if host else (0, 1): 90.0 + us}
        (finding,) = diagnose(network(slow(latency, host, us)), groups, again)
        assert "when measured again" in finding.evidence


@given(st.lists(st.integers(3, 5), min_size=2, max_size=3), SEEDS)
def test_a_host_alone_in_its_rack_is_not_slow_for_being_far(sizes: list[int], seed: int) -> None:
    latency, rack_of = measured([*sizes, 1], seed)
    assert diagnose(network(latency), rack_of, {}) == []


@some
@given(LARGE, SEEDS, st.floats(40.0, 400.0), st.data())
def test_a_slow_link_is_named_and_its_hosts_are_not(
    sizes: list[int], seed: int, us: float, data: st.DataObject
) -> None:
    latency, rack_of = measured(sizes, seed)
    i, j = sorted(data.draw(st.lists(st.integers(0, len(latency) - 1), min_size=2, max_size=2, unique=True)))
    latency[i, j] += us
    latency[j, i] += us
    assert kinds_of(diagnose(network(latency), rack_of, {})) == [("slow link", [f"h{i}", f"h{j}"])]


@some
@given(LARGE, SEEDS, st.floats(60.0, 400.0), st.data())
def test_a_pair_whose_directions_differ_is_named_slow_direction_first(
    sizes: list[int], seed: int, us: float, data: st.DataObject
) -> None:
    latency, rack_of = measured(sizes, seed)
    i, j = data.draw(st.lists(st.integers(0, len(latency) - 1), min_size=2, max_size=2, unique=True))
    latency[i, j] += us
    findings = kinds_of(diagnose(network(latency), rack_of, {}))
    assert ("asymmetric", [f"h{i}", f"h{j}"]) in findings
    assert ("slow link", [f"h{min(i, j)}", f"h{max(i, j)}"]) in findings
    assert len(findings) == 2


def sampled(seed: int, noise: float) -> tuple[Matrix, Matrix, Integers]:
    """Two halves of the samples of eight racks, which are 25, 80 and 160 us apart, each direction with noise of its
    own; and the rack of every host."""
    rack_of = np.arange(64) // 8
    cost = np.where(rack_of[:, None] // 4 == rack_of // 4, 80.0, 160.0)
    cost[rack_of[:, None] == rack_of] = 25.0
    np.fill_diagonal(cost, 0.0)
    first, second = cost * np.exp(np.abs(np.random.default_rng(seed).normal(0, noise, (2, 64, 64))))
    return first, second, rack_of


@pytest.mark.parametrize("noise", [0.1, 0.15, 0.2, 0.25])
def test_noise_of_both_directions_is_no_asymmetry(noise: float) -> None:
    for seed in range(3):
        first, second, rack_of = sampled(seed, noise)
        halves = [to_rows(first), to_rows(second)]
        findings = diagnose(network((first + second) / 2, halves_us=halves), rack_of, {})
        assert "asymmetric" not in [finding.kind for finding in findings]


def test_an_asymmetry_stands_out_from_noise_but_not_from_that_of_its_own_samples() -> None:
    for factors, kinds in (((3.0, 1.0), []), ((1.6, 1.6), ["asymmetric"])):
        first, second, rack_of = sampled(0, 0.1)
        first[3, 40] *= factors[0]
        second[3, 40] *= factors[1]
        findings = diagnose(network((first + second) / 2, halves_us=[to_rows(first), to_rows(second)]), rack_of, {})
        assert [item.kind for item in findings if item.hosts == ["h3", "h40"] and item.kind != "slow link"] == kinds


def test_of_many_pairs_none_is_slow_by_chance() -> None:
    """Among 179,700 pairs one is four standard errors off."""
    cloud = three_tier(600, seed=2, noise_sigma=0.02, sample_sigma=0.08)
    assert diagnose(cloud.network(np.random.default_rng(2)), cloud.rack_of, {}) == []


def test_worst_come_first() -> None:
    latency, rack_of = measured([8, 8], 3)
    latency = slow(slow(latency, 4, 50.0), 9, 300.0)
    assert kinds_of(diagnose(network(latency), rack_of, {})) == [("slow host", ["h9"]), ("slow host", ["h4"])]


def test_lossy_host_is_one_finding() -> None:
    """One line for the host, not one for each of its pairs."""
    latency, rack_of = measured([4, 4], 1)
    loss = np.zeros((8, 8))
    loss[5], loss[:, 5] = 0.03, 0.02
    (finding,) = diagnose(network(latency, loss_forward=to_rows(loss)), rack_of, {})
    assert (finding.kind, finding.severity, finding.hosts, finding.pairs) == ("loss", "error", ["h5"], 7)


def test_two_lost_probes_are_no_finding() -> None:
    latency, rack_of = measured([3, 3], 1)
    loss, samples = np.zeros((6, 6)), np.full((6, 6), 198.0)
    loss[0, 1] = 2 / 200
    assert diagnose(network(latency, loss_forward=to_rows(loss), samples=to_rows(samples)), rack_of, {}) == []


def test_host_with_slow_links_to_a_group_is_one_finding() -> None:
    latency, rack_of = measured([6, 4], 1, noise=0.01)
    host, others = int(np.flatnonzero(rack_of == 0)[0]), np.flatnonzero(rack_of == 1)
    latency[host, others] += 50.0
    latency[others, host] += 50.0
    (finding,) = diagnose(network(latency), rack_of, {})
    assert (finding.kind, finding.severity, finding.pairs) == ("slow link", "warning", 4)
    assert set(finding.hosts) == {f"h{k}" for k in (host, *others)}


def test_floor_hides_small_excesses() -> None:
    latency, rack_of = measured([5, 5], 1, noise=0.01)
    a, b = np.flatnonzero(rack_of == 0)[:2]
    latency[a, b] = latency[b, a] = latency[a, b] + 12.0
    assert [finding.kind for finding in diagnose(network(latency), rack_of, {})] == ["slow link"]
    assert diagnose(network(latency), rack_of, {}, DiagnosisThresholds(floor_us=15.0)) == []


def test_excess_within_the_noise_of_its_own_samples_is_no_finding() -> None:
    latency, rack_of = measured([5, 5], 1, noise=0.01)
    latency[1, 2] = latency[2, 1] = latency[1, 2] + 40.0
    low, high = latency.copy(), latency.copy()
    low[1, 2], high[1, 2] = latency[1, 2] - 40.0, latency[1, 2] + 40.0
    halves = [to_rows(low), to_rows(high)]
    assert diagnose(network(latency, halves_us=halves), rack_of, {}) == []
    assert diagnose(network(latency, halves_us=[to_rows(latency)] * 2), rack_of, {}) != []


def test_zero_between_different_hosts_is_doubted() -> None:
    latency, rack_of = measured([3, 3], 1)
    latency[0, 1] = latency[1, 0] = 0.0
    (finding,) = diagnose(network(latency), rack_of, {})
    assert (finding.kind, finding.severity, finding.hosts) == ("zero", "warning", ["h0", "h1"])


def test_few_hosts_give_no_suspicion() -> None:
    for n in (2, 3, 4):
        latency, rack_of = measured([n], 5)
        assert diagnose(network(latency), rack_of, {}) == []


def test_unmeasured_network_has_one_finding() -> None:
    latency = np.full((5, 5), np.nan)
    np.fill_diagonal(latency, 0.0)
    assert [finding.kind for finding in diagnose(network(latency), np.zeros(5, dtype=np.intp), {})] == ["unmeasured"]


def test_host_without_tcp_is_named() -> None:
    latency, rack_of = measured([3, 3], 1)
    flows = [{"from": "h0", "to": "h1", "gbps": 1.0, "both_ways": False}]
    errors = [{"from": "h2", "to": other, "why": "timed out"} for other in ("h0", "h1")]
    (finding,) = diagnose(network(latency, host_flows=flows, host_flow_errors=errors), rack_of, {})
    assert (finding.kind, finding.severity, finding.hosts) == ("closed", "error", ["h2"])


def test_slow_hosts_of_zones_are_no_slow_links() -> None:
    """Clustering puts each into a group of its own; its pairs in its zone are no slower than others between zones."""
    rack_of = np.arange(96) // 8
    zone_of = np.arange(96) // 48
    same_rack, same_zone = (label[:, None] == label for label in (rack_of, zone_of))
    latency = np.where(same_rack, 25.0, np.where(same_zone, 100.0, 400.0))
    latency *= np.random.default_rng(1).uniform(0.95, 1.05, latency.shape)
    np.fill_diagonal(latency, 0.0)
    for host in (3, 20, 70):
        latency = slow(latency, host, 150.0)
        rack_of[host] = zone_of[host] = 12 + host
    for groups in (rack_of, zone_of):
        groups = np.unique(groups, return_inverse=True)[1]
        findings = diagnose(network(latency), groups, {})
        assert {(item.kind, host) for item in findings for host in item.hosts} == {
            ("slow host", "h3"), ("slow host", "h20"), ("slow host", "h70"),
        }  # fmt: skip


def test_line_of_many_hosts_is_short() -> None:
    latency, rack_of = measured([400, 400], 1)
    latency[::2, 1::4] = np.nan
    (finding,) = diagnose(network(latency), rack_of, {})
    assert len(finding.hosts) > 500
    assert len(finding.line) < 400
