"""Two measurements of a network: noise is passed over, and what changed is told once, by its cause."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.clouds import Cloud, alike, three_tier
from plink.errors import InputError, NoAnswer
from plink.model.comparison import NetworkChange, NetworkComparison
from plink.model.hosts import Host, Hosts
from plink.model.network import Matrix, Network, to_rows
from solvers.changes.causes import explain
from solvers.changes.compare import compare
from solvers.changes.differences import ChangeThresholds
from tests.networks import details_from

LIMITS = ChangeThresholds()
SEEDS = st.integers(0, 2**32 - 1)
some = settings(max_examples=25)


def probed(cloud: Cloud, rtt_us: Matrix | None = None, seed: int = 0) -> NetworkComparison:
    """Two probes of a cloud, the second when its true round trips had become others."""
    rng = np.random.default_rng(seed)
    later = cloud if rtt_us is None else replace(cloud, rtt_us=rtt_us)
    return compare(cloud.network(rng), later.network(rng), LIMITS)


def racks(n: int = 32, seed: int = 1) -> Cloud:
    """Racks of eight in pods of four."""
    return three_tier(n, seed, rack_sizes="powers")


def kinds_of(result: NetworkComparison) -> list[tuple[str, str, str, tuple[str, ...]]]:
    """What, better or worse, the kind of cause, and whose."""
    return [(finding.what, finding.verdict, finding.where, finding.hosts) for finding in result.findings]


def worse(result: NetworkComparison) -> int:
    """How many changes are for the worse."""
    return sum(finding.verdict == "worse" for finding in result.findings)


def host_times(rtt_us: Matrix, host: int, times: float) -> Matrix:
    """One host that takes so many times as long to everybody."""
    result = rtt_us.copy()
    result[host] *= times
    result[:, host] *= times
    return result


def plain(rows: Matrix, rates: Matrix | None = None, **details: Any) -> Network:
    """Hosts ``h0``, ``h1``, ... and their round trips, as they are."""
    return Network(
        Hosts(tuple(Host(f"h{i}", f"h{i}") for i in range(len(rows)))), rows, rates, details_from(details), "a file"
    )


def flat(n: int = 8, us: float = 50.0) -> Matrix:
    """All alike."""
    return us * ~np.eye(n, dtype=bool)


def test_two_probes_of_one_cloud_are_silent() -> None:
    """The promise is one false alarm in a hundred, if noise is normal; of a hundred, five may speak."""
    clouds = [
        lambda seed: three_tier(32, seed),
        lambda seed: alike(16, seed),
        lambda seed: three_tier(12, seed, sample_sigma=0.1),
        lambda seed: alike(4, seed),
    ]
    spoke = [seed for seed in range(100) if probed(clouds[seed % 4](seed), seed=seed).findings]
    assert len(spoke) <= 5, spoke


@some
@given(st.integers(4, 32), SEEDS, st.floats(2.0, 5.0), st.data())
def test_a_slow_host_is_named_alone(n: int, seed: int, times: float, data: st.DataObject) -> None:
    cloud = three_tier(n, seed) if n >= 8 else alike(n, seed)
    host = data.draw(st.integers(0, n - 1))
    result = probed(cloud, host_times(cloud.rtt_us, host, times), seed)
    assert kinds_of(result) == [("latency", "worse", "host", (f"host{host}",))]
    assert worse(result) == 1
    assert result.findings[0].pairs == n - 1
    assert 0.7 * times < result.findings[0].new / result.findings[0].old < 1.4 * times


@some
@given(SEEDS, st.floats(2.0, 4.0))
def test_a_host_that_got_faster_is_no_reason_to_worry(seed: int, times: float) -> None:
    cloud = alike(8, seed)
    slow = replace(cloud, rtt_us=host_times(cloud.rtt_us, 3, times))
    result = probed(slow, cloud.rtt_us, seed)
    assert kinds_of(result) == [("latency", "better", "host", ("host3",))]
    assert result.ok


@pytest.mark.parametrize("times", [0.5, 1.5])
def test_a_shift_of_everything_is_one_finding_and_others_show_on_top_of_it(times: float) -> None:
    cloud = racks()
    verdict = "worse" if times > 1 else "better"
    result = probed(cloud, cloud.rtt_us * times)
    assert [item[:3] for item in kinds_of(result)] == [("latency", verdict, "network")]
    assert result.shift == pytest.approx(times, rel=0.05)
    result = probed(cloud, host_times(cloud.rtt_us * times, 5, 3.0))
    assert kinds_of(result)[1:] == [("latency", "worse", "host", ("host5",))]


def test_a_drift_is_removed_and_reported() -> None:
    cloud = racks()
    result = probed(cloud, cloud.rtt_us * 1.15)
    assert not result.findings
    assert result.shift == pytest.approx(1.15, rel=0.03)


def test_a_rack_s_uplink_a_pod_s_link_and_tiers_are_named_as_such() -> None:
    cloud = racks(64)
    names = np.array([f"host{i}" for i in range(64)])
    rack = cloud.rack_of == 2
    across = rack[:, None] ^ rack[None, :]
    uplink = probed(cloud, np.where(across, 2.0, 1.0) * cloud.rtt_us)
    assert kinds_of(uplink) == [("latency", "worse", "uplink", tuple(names[rack]))]
    pod = cloud.pod_of[:, None] != cloud.pod_of[None, :]
    (link,) = probed(cloud, np.where(pod, 2.0, 1.0) * cloud.rtt_us).findings
    assert (link.where, {frozenset(link.hosts), frozenset(link.others)}) == (
        "link", {frozenset(names[cloud.pod_of == k]) for k in (0, 1)},
    )  # fmt: skip
    same = cloud.rack_of[:, None] == cloud.rack_of[None, :]
    (within,) = probed(cloud, np.where(same, 2.0, 1.0) * cloud.rtt_us).findings
    (between,) = probed(cloud, np.where(same, 1.0, 2.0) * cloud.rtt_us).findings
    assert (within.where, between.where) == ("within", "between")


def test_one_pair_is_named_as_one() -> None:
    cloud = racks()
    rtt = cloud.rtt_us.copy()
    rtt[4, 20] = rtt[20, 4] = 3 * rtt[4, 20]
    (item,) = probed(cloud, rtt).findings
    assert (item.where, item.hosts, item.others, item.pairs) == ("pair", ("host4",), ("host20",), 1)


def test_half_of_the_hosts_are_named_each() -> None:
    cloud = racks()
    rtt = cloud.rtt_us.copy()
    for host in range(0, 32, 2):
        rtt = host_times(rtt, host, 2.0)
    result = probed(cloud, rtt)
    assert {finding.hosts[0] for finding in result.findings if finding.where == "host"} == {
        f"host{k}" for k in range(0, 32, 2)
    }


@pytest.mark.parametrize(("racks_of", "slow"), [
    ("00110011", "0123"), ("00010111", "0123"), ("00001111", "012"), ("00001111", "014"), ("00001111", "01245"),
])  # fmt: skip
def test_only_hosts_that_halve_bandwidth_are_named(racks_of: str, slow: str) -> None:
    """A pair carries what its slower host does; of 20 such days 18 at least are told by exactly these hosts."""
    rack = np.array([int(item) for item in racks_of])
    rtt = np.where(rack[:, None] == rack, 30.0, 100.0) * ~np.eye(8, dtype=bool)
    halved = np.isin(np.arange(8), [int(item) for item in slow])
    rates = np.where(halved[:, None] | halved, 5.0, 10.0)
    right = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        old, new = (plain(rtt, gbps * rng.lognormal(0, 0.07, (8, 8))) for gbps in (10.0, rates))
        right += {(item.verdict, item.where, *item.hosts) for item in compare(old, new, LIMITS).findings} == {
            ("worse", "host", f"h{host}") for host in slow
        }
    assert right >= 18


def test_a_slow_host_with_one_pair_that_is_not_is_named() -> None:
    """To the rest of its own rack all of its pairs are slow, to the other rack three of four."""
    rack = np.arange(8) // 4
    rtt = np.where(rack[:, None] == rack, 60.0, 200.0) * ~np.eye(8, dtype=bool)
    slow = host_times(rtt, 0, 2.0)
    slow[0, 4] = slow[4, 0] = rtt[0, 4]
    assert kinds_of(compare(plain(rtt), plain(slow), LIMITS)) == [("latency", "worse", "host", ("h0",))]


def test_host_that_halves_bandwidth_is_named_despite_noise() -> None:
    """Of 40 such days 38 at least are told by this host alone."""
    rack = np.arange(8) // 4
    rtt = np.where(rack[:, None] == rack, 60.0, 200.0) * ~np.eye(8, dtype=bool)
    rates = 10.0 / host_times(np.ones((8, 8)), 0, 2.0)
    right = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        old, new = (plain(rtt, gbps * rng.lognormal(0, 0.2, (8, 8))) for gbps in (10.0, rates))
        slower = [finding for finding in compare(old, new, LIMITS).findings if finding.verdict == "worse"]
        right += [(finding.where, finding.hosts) for finding in slower] == [("host", ("h0",))]
    assert right >= 38


def test_a_change_within_the_floor_or_the_threshold_is_none() -> None:
    before = plain(flat())
    assert not compare(before, plain(host_times(flat(), 2, 1.19)), LIMITS).findings
    small = plain(flat(us=5.0))
    assert not compare(small, plain(host_times(flat(us=5.0), 2, 2.9)), LIMITS).findings
    assert worse(compare(small, plain(host_times(flat(us=5.0), 2, 2.9)), ChangeThresholds(floor_us=1.0))) == 1
    assert worse(compare(before, plain(host_times(flat(), 2, 1.3)), LIMITS)) == 1
    assert not compare(before, plain(host_times(flat(), 2, 1.3)), ChangeThresholds(share=0.5)).findings


def test_samples_that_disagree_hide_a_change() -> None:
    """Of the same figures, which halves of the samples bear out or do not."""
    rng = np.random.default_rng(0)
    after = host_times(flat(), 2, 1.4)

    def halves(rows: Matrix, sigma: float) -> dict[str, Any]:
        return {"halves_us": [to_rows(rows * rng.lognormal(0, sigma, rows.shape)) for _ in range(2)]}

    for sigma, count in ((0.01, 1), (0.6, 0)):
        result = compare(plain(flat(), **halves(flat(), sigma)), plain(after, **halves(after, sigma)), LIMITS)
        assert worse(result) == count


def test_risen_losses_are_reported_unless_few_probes_were_lost() -> None:
    def lossy(*pairs: tuple[int, int], share: float) -> Network:
        loss = np.zeros((8, 8))
        for i, j in pairs:
            loss[i, j] = loss[j, i] = share
        return plain(flat(), loss_forward=loss.tolist(), samples=[[5000] * 8 for _ in range(8)])

    of_three = [(3, j) for j in range(8) if j != 3]
    quiet = lossy(share=0.0)
    assert kinds_of(compare(quiet, lossy(*of_three, share=0.02), LIMITS)) == [("loss", "worse", "host", ("h3",))]
    assert kinds_of(compare(quiet, lossy((0, 1), share=0.02), LIMITS)) == [("loss", "worse", "pair", ("h0",))]
    assert kinds_of(compare(lossy((0, 1), share=0.02), quiet, LIMITS)) == [("loss", "better", "pair", ("h0",))]
    assert not compare(quiet, lossy((0, 1), share=0.0004), LIMITS).findings


def test_halved_bandwidths_are_reported_by_host_and_pair() -> None:
    rng = np.random.default_rng(1)
    before, after = (rng.lognormal(np.log(10.0), 0.02, (8, 8)) for _ in range(2))
    assert not compare(plain(flat(), before), plain(flat(), after), LIMITS).findings
    one_way = after.copy()
    one_way[:, 5] /= 2  # what h5 sends
    result = compare(plain(flat(), before), plain(flat(), one_way), LIMITS)
    assert kinds_of(result) == [("rate", "worse", "host", ("h5",))]
    assert result.compared.rates == 28
    after[1, 2] = 0.0
    assert kinds_of(compare(plain(flat(), before), plain(flat(), after), LIMITS)) == [
        ("rate", "worse", "pair", ("h1",))
    ]


@pytest.mark.parametrize(("low", "high", "verdicts"), [(1.8, 2.2, ["worse"]), (1.8, 4.1, [])])
def test_a_shared_capacity_fell_when_its_runs_are_apart(low: float, high: float, verdicts: list[str]) -> None:
    members = ["h0", "h1", "h2"]
    was = {"members": members, "out_gbps": 4.0, "in_gbps": 4.0, "interval": {"out_gbps": [3.9, 4.1]}}
    now = {"members": members[::-1], "out_gbps": 2.0, "in_gbps": None, "interval": {"out_gbps": [low, high]}}
    result = compare(
        plain(flat(), shared_links=[{"groups": [was]}]), plain(flat(), shared_links=[{"groups": [now]}]), LIMITS
    )
    assert [(item.what, item.way, item.verdict) for item in result.findings] == [
        ("capacity", "out", v) for v in verdicts
    ]
    assert result.compared.capacities == 1
    moved = [{"groups": [now | {"members": ["h0"]}]}]
    other = compare(plain(flat(), shared_links=[{"groups": [was]}]), plain(flat(), shared_links=moved), LIMITS)
    assert other.notes == ("one group's shared links are of other hosts now: not compared",)


def test_missing_pairs_are_reported_by_host() -> None:
    gone = flat()
    gone[2, :2] = gone[:2, 2] = gone[2, 3:] = gone[3:, 2] = np.nan
    assert kinds_of(compare(plain(flat()), plain(gone), LIMITS)) == [("unmeasured", "worse", "host", ("h2",))]
    assert kinds_of(compare(plain(gone), plain(flat()), LIMITS)) == [("unmeasured", "better", "host", ("h2",))]
    assert not compare(plain(flat()), plain(gone, plan="adaptive"), LIMITS).findings
    errors = [{"from": "h2", "to": "h0", "why": "a firewall"}]
    (item,) = compare(plain(flat()), plain(gone, plan="adaptive", errors=errors), LIMITS).findings
    assert (item.where, {*item.hosts, *item.others}) == ("pair", {"h0", "h2"})


def test_host_lost_during_the_measurement_is_worse() -> None:
    """All its round trips are there; what came after them is not."""
    lost = plain(flat(), lost_hosts={"h2": "its agent is gone"})
    assert kinds_of(compare(plain(flat()), lost, LIMITS)) == [("unmeasured", "worse", "host", ("h2",))]
    assert kinds_of(compare(lost, plain(flat()), LIMITS)) == [("unmeasured", "better", "host", ("h2",))]
    assert kinds_of(compare(lost, lost, LIMITS)) == []


def test_hops_that_changed_are_neither_better_nor_worse() -> None:
    before, after = np.ones((8, 8)), np.ones((8, 8))
    after[3], after[:, 3] = 2, 2
    (item,) = compare(plain(flat(), hops=before.tolist()), plain(flat(), hops=after.tolist()), LIMITS).findings
    assert (item.what, item.verdict, item.where, item.hosts, item.old, item.new) == (
        "hops", "changed", "host", ("h3",), 1, 2,
    )  # fmt: skip


def test_hosts_are_matched_by_name() -> None:
    """Whatever their order; who is in one file only, or elsewhere, is said."""

    def of(names: str, rows: Matrix, net: str) -> Network:
        members = tuple(Host(name, f"10.{net}.0.{ord(name)}") for name in names)
        return Network(Hosts(members), rows, None, details_from({}), "a file")

    rows = flat(5)
    rows[0, 1] = rows[1, 0] = 200.0  # a - b
    turned = np.ascontiguousarray(rows[::-1, ::-1])
    result = compare(of("abcde", rows, "0"), of("xdcba", turned, "0"), LIMITS)
    assert (result.hosts, result.gone, result.come, result.moved) == (("a", "b", "c", "d"), ("e",), ("x",), ())
    assert not result.findings
    assert compare(of("abcde", rows, "0"), of("abcde", rows, "1"), LIMITS).moved == tuple("abcde")


def test_what_was_measured_otherwise_is_not_compared() -> None:
    def by(method: int, rows: Matrix) -> Network:
        return plain(rows, methods=["", "stamp", "icmp"], method_used=np.full((8, 8), method).tolist())

    slow = host_times(flat(), 2, 3.0)
    with pytest.raises(NoAnswer, match=r"measured by another method now \(stamp -> icmp\): not compared"):
        compare(by(1, flat()), by(2, slow), LIMITS)
    assert worse(compare(by(1, flat()), by(1, slow), LIMITS)) == 1
    assert worse(compare(by(1, flat()), by(0, slow), LIMITS)) == 1
    with pytest.raises(InputError, match="method_used: there are only 3 methods"):
        compare(by(1, flat()), by(3, slow), LIMITS)
    with pytest.raises(NoAnswer, match=r"was not measured but assumed from topo\.yaml"):
        compare(plain(flat(), assumed_from="topo.yaml"), plain(slow), LIMITS)


@pytest.mark.parametrize("names", ["", "a"])
def test_fewer_than_two_hosts_in_common_are_no_comparison(names: str) -> None:
    def of(names: str) -> Network:
        return Network(
            Hosts(tuple(Host(name, name) for name in names)), flat(len(names)), None, details_from({}), names
        )

    with pytest.raises(NoAnswer, match=r"share (no host|one host \(a\)), by name"):
        compare(of("abc"), of(names + "xyz"), LIMITS)


@some
@given(st.integers(2, 8), st.integers(2, 8), SEEDS)
def test_every_changed_pair_is_explained_once(n: int, groups: int, seed: int) -> None:
    """Whatever changed: a pair belongs to one cause or to what is left, and the causes explain nearly changed ones."""
    rng = np.random.default_rng(seed)
    measured = np.triu(rng.random((n, n)) < 0.9, 1)
    moved = measured & (rng.random((n, n)) < 0.6)
    measured, moved = measured | measured.T, moved | moved.T
    result, left = explain(measured, moved, [rng.integers(groups, size=n)], lambda pairs: True)
    times = np.zeros((n, n), dtype=int)
    for cause in result:
        times[cause.pairs] += 1
        assert moved[cause.pairs].mean() > 0.8
    assert times.max() <= 1
    assert np.array_equal(np.triu(left, 1), np.triu(measured, 1) & (times == 0))


def test_a_file_without_anything_measured_is_no_answer() -> None:
    nothing = np.where(np.eye(4, dtype=bool), 0.0, np.nan)
    with pytest.raises(NoAnswer, match="no measured pair in common"):
        compare(plain(nothing), plain(nothing), LIMITS)
    result = compare(plain(flat(4)), plain(nothing), LIMITS)
    assert [finding.where for finding in result.findings] == ["network"]
    assert all(isinstance(finding, NetworkChange) and finding.what == "unmeasured" for finding in result.findings)
