"""Bandwidths compared: of pairs by their slower direction, of groups by the range of their runs."""

import itertools
import math
from typing import Any

import numpy as np
import pytest
from msgspec import structs, to_builtins

from plink.errors import InputError
from plink.model.comparison import NetworkChange
from plink.model.diagnosis import Severity
from plink.model.document import UNSET
from plink.model.hosts import Hosts
from plink.model.network import Matrix, Network
from solvers.changes.compare import compare
from solvers.changes.differences import ChangeThresholds
from solvers.changes.noise import Labels, align
from solvers.changes.rates import capacities, host_rates, interface_rates, pair_rates
from tests.solvers.changes.files import named

HOSTS = "abcdefgh"


def rates(n: int = 6, gbps: float = 10.0, **but: float) -> Matrix:
    """All alike, except ``r01=...``: from host 0 to host 1."""
    result = np.full((n, n), gbps)
    np.fill_diagonal(result, np.nan)
    for place, other in but.items():
        result[int(place[1]), int(place[2])] = other
    return result


def changed_rates(old: Matrix | None, new: Matrix | None, share: float = 0.25) -> tuple[list[NetworkChange], int, int]:
    n = len(old if old is not None else new) if old is not None or new is not None else 6  # type: ignore[arg-type]
    files = [named(HOSTS[:n], None, item) for item in (old, new)]
    return pair_rates(align(*files), [], ChangeThresholds(share=share))


def of(result: tuple[list[NetworkChange], int, int]) -> list[tuple[str, str, tuple[str, ...], float, float]]:
    assert all(item.what == "rate" for item in result[0])
    return [(item.verdict, item.where, item.hosts + item.others, item.old, item.new) for item in result[0]]


def test_a_pair_s_rate_is_that_of_its_slower_direction() -> None:
    old = rates(r01=9.0, r23=4.0)
    assert of(changed_rates(old, rates(r01=9.0, r10=3.0, r23=4.0, r32=4.5))) == [("worse", "pair", ("a", "b"), 9, 3)]
    assert of(changed_rates(rates(r10=3.0), rates(r01=5.0))) == [("better", "pair", ("a", "b"), 3, 5)]
    assert of(changed_rates(rates(r10=3.0), rates(r01=3.0))) == []


def test_a_direction_counts_where_both_files_have_it() -> None:
    """Forth it was measured before and after; back, which is far slower, in one file only."""
    for old, new in ((rates(r10=1.0), rates(r10=np.nan)), (rates(r10=np.nan), rates(r10=1.0))):
        assert changed_rates(old, new) == ([], 15, 0)
    old, new = rates(r10=np.nan), rates(r01=2.0, r10=np.nan)
    assert of(changed_rates(old, new)) == [("worse", "pair", ("a", "b"), 10, 2)]
    assert changed_rates(rates(r01=np.nan), rates(r10=np.nan)) == ([], 14, 0)


def test_newly_unmeasured_pairs_are_counted_only() -> None:
    gone = rates(r01=np.nan, r10=np.nan, r23=np.nan, r32=np.nan, r45=np.nan)
    assert changed_rates(rates(), gone) == ([], 13, 2)
    assert changed_rates(gone, rates()) == ([], 13, 0)
    assert changed_rates(rates(r01=np.nan), rates(r01=np.nan, r10=np.nan)) == ([], 14, 1)
    assert changed_rates(rates(), None) == ([], 0, 15)
    assert changed_rates(rates(r01=np.nan, r10=np.nan), None) == ([], 0, 14)
    assert changed_rates(None, rates()) == ([], 0, 0)
    assert changed_rates(None, None) == ([], 0, 0)


@pytest.mark.parametrize(("now", "named"), [(8.01, False), (7.99, True)])
def test_a_fall_is_worth_naming_beyond_the_share(now: float, named: bool) -> None:
    assert len(changed_rates(rates(), rates(r01=now))[0]) == named
    assert len(changed_rates(rates(r01=now), rates())[0]) == named


def test_a_rate_of_zero_is_the_worst_and_no_change_from_zero() -> None:
    result = changed_rates(rates(r01=0.0), rates(r01=0.0))
    assert (result[0], result[1]) == ([], 14)
    assert of(changed_rates(rates(), rates(r01=0.0, r23=1.0))) == [
        ("worse", "pair", ("a", "b"), 10, 0), ("worse", "pair", ("c", "d"), 10, 1),
    ]  # fmt: skip
    assert of(changed_rates(rates(r01=0.0), rates())) == [("better", "pair", ("a", "b"), 0, 10)]


def test_drift_of_rates_is_at_most_a_fifth() -> None:
    """All fell alike, so no pair tells of noise and it counts as 0.2 of the logarithm. Beyond noise of 28 pairs is 3.96
    of these (Student's, 26 degrees of freedom); the median of a cause's pairs counts as that of four, sqrt(pi / 2) / 2
    of it: 0.496. A half is 0.69; 0.45 is beyond the share but not that."""
    (item,), compared, _ = changed_rates(rates(8), rates(8, 5.0))
    assert (item.verdict, item.where, compared) == ("worse", "network", 28)
    assert changed_rates(rates(8), rates(8) * math.exp(-0.45))[0] == []


# What groups share


def group(members: Any = ("a", "b"), out: Any = 4.0, into: Any = 8.0, **interval: Any) -> dict[str, Any]:
    result = {"members": list(members) if isinstance(members, tuple) else members, "out_gbps": out, "in_gbps": into}
    return result | ({"interval": interval} if interval else {})


def shared(*rows: Any) -> Network:
    return named(HOSTS, shared_links=[{"groups": list(rows)}])


def both(old: Network, new: Network, share: float = 0.25) -> tuple[list[NetworkChange], int, int, int]:
    return capacities(align(old, new), ChangeThresholds(share=share))


def change(severity: str, verdict: str, old: float, new: float, way: str) -> NetworkChange:
    """Of what a and b share, between them and the others."""
    return NetworkChange(
        what="capacity", severity=Severity(severity), verdict=verdict, where="uplink", hosts=("a", "b"), others=(),
        old=old, new=new, unit="Gbit/s", pairs=1, way=way,
    )  # fmt: skip


def test_what_a_group_shares_is_compared_in_both_ways() -> None:
    result, count, regrouped, lost = both(shared(group()), shared(group(out=2.0, into=16.0)))
    assert (count, regrouped, lost) == (2, 0, 0)
    assert result == [
        change("error", "worse", 4.0, 2.0, "out"),
        change("info", "better", 8.0, 16.0, "in"),
    ]


@pytest.mark.parametrize(("old", "new", "verdict"), [
    (5.0, 4.0, []), (5.01, 4.0, ["worse"]), (4.0, 5.0, []), (4.0, 5.01, ["better"]),
])  # fmt: skip
def test_a_capacity_fell_or_rose_beyond_the_share(old: float, new: float, verdict: list[str]) -> None:
    result = both(shared(group(out=old)), shared(group(out=new)))
    assert [item.verdict for item in result[0]] == verdict


@pytest.mark.parametrize(("was", "now", "apart"), [
    ([3.0, 5.0], [1.0, 2.9], True), ([3.0, 5.0], [1.0, 3.0], False), ([3.1, 5.0], [1.0, 3.0], True),
])  # fmt: skip
def test_ranges_of_runs_must_be_apart(was: list[float], now: list[float], apart: bool) -> None:
    """Which of the two is the old file makes it worse or better."""
    low, high = shared(group(out=2.0, out_gbps=now)), shared(group(out=4.0, out_gbps=was))
    assert [item.verdict for item in both(high, low)[0]] == (["worse"] if apart else [])
    assert [item.verdict for item in both(low, high)[0]] == (["better"] if apart else [])


def test_a_figure_without_a_range_is_its_own_range() -> None:
    """With a range that is wide enough no change would be told."""
    wide = shared(group(out=4.0, out_gbps=[1.0, 9.0]))
    for old in (shared(group(out=4.0)), shared(group(out=4.0, out_gbps=None))):
        assert [item.verdict for item in both(old, shared(group(out=2.0)))[0]] == ["worse"]
    assert both(wide, shared(group(out=2.0)))[0] == []


def test_what_is_at_least_so_much_rises_and_falls_where_that_is_certain() -> None:
    """Others were the limit: the capacity may be any greater one."""
    narrow, wide = shared(group(out=2.0)), shared(group(out=4.0))
    at_least_narrow, at_least_wide = (shared(group(out=out) | {"out_limited_by": "others"}) for out in (2.0, 4.0))
    assert both(at_least_narrow, wide)[0] == []
    assert [item.verdict for item in both(at_least_wide, narrow)[0]] == ["worse"]
    assert [item.verdict for item in both(narrow, at_least_wide)[0]] == ["better"]


def test_less_between_groups_is_reported_where_no_link_is_to_blame_by_itself() -> None:
    """Two groups: what one sends the other receives, and either's link may be why."""

    def two(gbps: float) -> Network:
        limits = {"out_limited_by": "others", "in_limited_by": "others"}
        rows = (group(members, out=gbps, into=gbps) | limits for members in (("a", "b"), tuple(HOSTS[2:])))
        return shared(*rows)

    result = both(two(4.0), two(1.0))[0]
    assert [(item.verdict, item.where, item.way) for item in result] == [("worse", "link", "out")] * 2
    assert {item.hosts for item in result} == {item.others for item in result} == {("a", "b"), tuple(HOSTS[2:])}
    assert both(two(1.0), two(4.0))[0] == both(two(4.0), two(3.9))[0] == []
    slower = shared(group(out=1.0), group(("c", "d"), out=1.0) | {"out_limited_by": "others"})
    (only,) = both(shared(group(out=4.0), group(("c", "d"), out=4.0)), slower)[0]
    assert (only.where, only.hosts) == ("uplink", ("a", "b"))


def test_a_figure_that_is_missing_is_not_compared() -> None:
    assert both(shared(group()), shared(group(out=None)))[1:] == (1, 0, 1)
    assert both(shared(group(into=None)), shared(group()))[1:] == (1, 0, 0)


@pytest.mark.parametrize(
    ("rows", "where"),
    [
        ("all", ""),
        (["row"], "[0]"),
        ([group(())], "[0].members"),
        ([group(("a", 1))], "[0].members[1]"),
        ([group(), group(out=-1.0)], "[1].out_gbps"),
        ([group(out=True)], "[0].out_gbps"),
        ([group(out=math.inf)], "[0].out_gbps"),
        ([group(out_gbps=[1.0])], "[0].interval.out_gbps"),
        ([group(out_gbps=["1", 9.0])], "[0].interval.out_gbps[0]"),
    ],
)
def test_malformed_shared_links_are_refused(rows: Any, where: str) -> None:
    with pytest.raises(InputError) as caught:
        both(shared(group()), named(HOSTS, shared_links=[{"groups": rows}]))
    assert caught.value.location == f"details: shared_links[0].groups{where}"


def test_a_link_that_carries_nothing_any_more_is_worse() -> None:
    nothing = shared(group(out=0, out_gbps=[0, 0.5]))
    result, count, _, lost = both(shared(group()), nothing)
    assert (count, lost) == (2, 0)
    assert result == [change("error", "worse", 4.0, 0.0, "out")]
    assert [item.verdict for item in both(nothing, shared(group()))[0]] == ["better"]
    assert both(nothing, nothing)[0] == []


def test_a_group_is_the_same_hosts_in_any_order() -> None:
    assert both(shared(group(("b", "a"))), shared(group(("a", "b"), out=1.0)))[1] == 2
    assert both(shared(group(("a", "b"))), shared(group(("a", "b", "c"), out=1.0)))[1:] == (0, 1, 0)


def test_groups_that_are_others_now_are_counted_where_there_are_any_now() -> None:
    old = shared(group(("a", "b")), group(("c", "d")), group(("e", "f")))
    assert both(old, shared(group(("a", "b")), group(("c", "e"))))[1:] == (2, 2, 0)
    assert both(named(HOSTS), old)[1:] == (0, 0, 0)


def test_figures_that_are_not_there_any_more_are_counted() -> None:
    """Of a group that could not be measured, of one that is not named and is no part of another, of all of them."""
    old = shared(group(("a", "b")), group(("c", "d")), group(("e", "f"), into=None))
    assert both(old, shared(group(("a", "b"), out=None), group(("c", "d"))))[1:] == (3, 0, 2)
    assert both(old, named(HOSTS))[1:] == (0, 0, 5)
    assert both(named(HOSTS), named(HOSTS))[1:] == (0, 0, 0)


def flows(n: int = 6, gbps: float = 10.0, noise: float = 0.0, **but: float) -> Network:
    """Each host's flows with the next two, both ways, each repeated; ``h2=1.0``: that host sends and receives so much,
    ``out2=1.0`` sends alone. Repeats differ by up to ``noise``."""
    rng, rows = np.random.default_rng(2), []
    for host in range(n):
        for far in ((host + 1) % n, (host + 2) % n):
            for source, target in ((host, far), (far, host)):
                limits = [but.get(name, gbps) for name in (f"h{source}", f"h{target}", f"out{source}")]
                for both_ways in (False, True):
                    rate = min(limits) * float(rng.uniform(1 - noise, 1))
                    ends = {"from": HOSTS[source], "to": HOSTS[target]}
                    rows.append(ends | {"gbps": rate, "both_ways": both_ways})
    return named(HOSTS[:n], None, host_flows=rows)


def changed_hosts(
    old: Network, new: Network, groups: list[Labels] | None = None
) -> list[tuple[str, str, tuple[str, ...], str]]:
    changes, _, _ = host_rates(align(old, new), groups or [], ChangeThresholds())
    return [(item.verdict, item.where, item.hosts, item.way or "") for item in changes]


def test_hosts_own_rates_are_compared() -> None:
    """By the flows that every probe measures: a host that got slower by a third is named, not its partners."""
    assert changed_hosts(flows(), flows(h2=7.0)) == [("worse", "host", ("c",), "")]
    assert changed_hosts(flows(h2=7.0), flows()) == [("better", "host", ("c",), "")]
    assert changed_hosts(flows(), flows(out2=1.0)) == [("worse", "host", ("c",), "out")]
    assert changed_hosts(flows(), flows(h2=9.0)) == []
    assert changed_hosts(flows(), flows(gbps=5.0)) == [("worse", "network", tuple("abcdef"), "")]
    (item,) = host_rates(align(flows(), flows(h2=2.0)), [], ChangeThresholds())[0]
    assert (item.old, item.new, item.severity) == (10.0, 2.0, Severity.ERROR)


def test_hosts_rates_differ_by_more_than_repeated_flows_do() -> None:
    assert changed_hosts(flows(), flows(h2=6.5)) == [("worse", "host", ("c",), "")]
    for sides in ((0.4, 0.4), (0.4, 0.0), (0.0, 0.4)):
        assert changed_hosts(flows(noise=sides[0]), flows(noise=sides[1], h2=6.5)) == []


def test_flows_over_shared_links_are_no_rates_of_hosts() -> None:
    """In racks of three a host may have had its rack's other hosts as partners before, and another rack's now."""
    rack = np.array([0, 0, 0, 1, 1, 1])

    def between(pairs: list[tuple[int, int]]) -> Network:
        rows = [
            {"from": HOSTS[a], "to": HOSTS[b], "gbps": 10.0 if rack[a] == rack[b] else 3.0, "both_ways": False}
            for pair in pairs
            for a, b in (pair, pair[::-1])
        ]
        return named(HOSTS[:6], None, host_flows=rows)

    old, new = between([(0, 1), (1, 2), (3, 4), (4, 5)]), between([(0, 1), (2, 3), (4, 5), (3, 5)])
    assert changed_hosts(old, new, [rack]) == changed_hosts(new, old, [rack]) == []
    assert changed_hosts(old, new) != []


def test_rates_are_those_of_the_hosts_that_both_files_have() -> None:
    """Whatever their order; a host that left took a fast partner along, and no rate of another host."""
    new = flows(h2=5.0)
    turned = Network(Hosts(new.hosts.members[::-1]), new.latency_us, None, new.details, "another file")
    assert changed_hosts(flows(), turned) == [("worse", "host", ("c",), "")]
    rows = [
        {"from": a, "to": b, "gbps": rate, "both_ways": False}
        for pair, rate in (("ab", 10.0), ("cd", 25.0), ("ac", 10.0), ("bd", 10.0))
        for a, b in (pair, pair[::-1])
    ]
    left = named("abc", None, host_flows=[row for row in rows if "d" not in (row["from"], row["to"])])
    assert changed_hosts(named("abcd", None, host_flows=rows), left) == []


def test_a_host_whose_partners_got_slower_did_not() -> None:
    """Its flows show their rates, not its own."""
    changes = changed_hosts(flows(8, h2=20.0), flows(8, h2=20.0, h0=1.0, h1=1.0, h3=1.0, h4=1.0))
    assert changes == [("worse", "host", (name,), "") for name in "abde"]


def test_rates_of_hosts_that_one_file_has_are_counted_only() -> None:
    without = named(HOSTS[:6], None)
    assert host_rates(align(flows(), without), [], ChangeThresholds()) == ([], 0, 12)
    assert host_rates(align(without, flows()), [], ChangeThresholds()) == ([], 0, 0)


def dead_or_not(rate: float | None) -> str | None:
    return "no route" if rate is None else None


def on_rails(
    *, out: dict[tuple[int, int], float | None] | None = None, gone: int | None = None, **keys: Any
) -> Network:
    """Four hosts with two interfaces of 10 Gbit/s, but these; one may lack its second. None: no flow came through."""
    counts = [1 if host == gone else 2 for host in range(4)]
    entry = {
        "names": [["eth0", "eth1"][:count] for count in counts],
        "used": [[None if i == j else 0 for j in range(4)] for i in range(4)], "relays": [[None] * 4] * 4,
        "switches": [[[host, rail] for host in range(4) if counts[host] > rail] for rail in range(2)],
        "out_gbps": [[(out or {}).get((host, k), 10.0) for k in range(counts[host])] for host in range(4)],
        "in_gbps": [[10.0] * count for count in counts],
        "why": [[dead_or_not((out or {}).get((host, k), 10.0)) for k in range(counts[host])] for host in range(4)],
    }  # fmt: skip
    return named("abcd", None, None, **({"interfaces": entry} | keys))


def interface_changes(old: Network, new: Network) -> list[tuple[str, str, Any, float | None, float | None]]:
    return [
        (item.verdict, f"{item.hosts[0]}/{item.interface}", item.way, item.old, item.new)
        for item in compare(old, new, ChangeThresholds()).findings
    ]


@pytest.mark.parametrize(("rate", "now"), [(2.0, 2.0), (None, 0.0)])
def test_a_slow_or_dead_interface_is_a_change(rate: float | None, now: float) -> None:
    healthy, slow = on_rails(), on_rails(out={(2, 1): rate})
    assert interface_changes(healthy, slow) == [("worse", "c/eth1", "out", 10.0, now)]
    assert interface_changes(slow, healthy) == [("better", "c/eth1", "out", now, 10.0)]
    assert interface_changes(slow, slow) == interface_changes(healthy, on_rails(out={(2, 1): 8.5})) == []
    assert compare(healthy, slow, ChangeThresholds()).compared.interface_rates == 16


def test_an_interface_that_a_host_no_longer_uses_is_a_change() -> None:
    assert interface_changes(on_rails(), on_rails(gone=2)) == [("worse", "c/eth1", UNSET, None, None)]
    assert interface_changes(on_rails(gone=2), on_rails()) == [("better", "c/eth1", UNSET, None, None)]
    partners_lost = on_rails(gone=2, lost_hosts=dict.fromkeys("abd", "killed"))
    assert [change[1] for change in interface_changes(on_rails(), partners_lost) if "/eth" in change[1]] == []


def edited(**edits: Any) -> Network:
    """The four hosts with other values of their interfaces."""
    entry = on_rails().interfaces
    assert entry is not None
    return on_rails(interfaces=to_builtins(structs.replace(entry, **edits)))


def test_interfaces_that_cannot_be_matched_are_counted_and_no_change() -> None:
    """A file without interfaces; one without rates; a host whose interfaces have other names now."""
    renamed = edited(names=[["eth0", "eth1"]] * 3 + [["ens1", "ens2"]])
    for other, rates in (
        (on_rails(interfaces=UNSET), 16), (edited(out_gbps=UNSET, in_gbps=UNSET, errors=UNSET), 16), (renamed, 4),
    ):  # fmt: skip
        assert interface_changes(on_rails(), other) == interface_changes(other, on_rails()) == []
        assert interface_rates(align(on_rails(), other), ChangeThresholds())[2] == rates


def test_interfaces_that_carry_nothing_come_and_go() -> None:
    """A default route's, where a container's bridge was its only target."""
    rates = [[10.0, None]] * 4
    on_one_switch = {"switches": [[(host, 0) for host in range(4)]], "out_gbps": rates, "in_gbps": rates}
    alone = edited(**on_one_switch | {"names": [["eth0"]] * 4, "out_gbps": [[10.0]] * 4, "in_gbps": [[10.0]] * 4,
                                      "errors": UNSET})  # fmt: skip
    assert interface_changes(edited(**on_one_switch), alone) == []


def on_cables(reason: str, **keys: Any) -> Network:
    """A square of cables (BCube(2,2)) in which all flows with d failed."""
    switches = [[(0, 0), (1, 0)], [(2, 0), (3, 0)], [(0, 1), (2, 1)], [(1, 1), (3, 1)]]
    rates = [[10.0, 10.0], [10.0, None], [None, 10.0], [None, None]]
    entry = on_rails().interfaces
    assert entry is not None
    errors = [[reason if rate is None else None for rate in row] for row in rates]
    new = structs.replace(entry, switches=switches, out_gbps=rates, in_gbps=rates, errors=errors)
    return on_rails(interfaces=to_builtins(new), **keys)


@pytest.mark.parametrize("lost", [{}, {"d": "killed"}])
def test_partners_of_hosts_that_no_flow_reaches_did_not_change(lost: dict[str, str]) -> None:
    """Whether its agent was lost, or TCP to it is blocked."""
    healthy = edited(switches=[[(0, 0), (1, 0)], [(2, 0), (3, 0)], [(0, 1), (2, 1)], [(1, 1), (3, 1)]])
    changes = interface_changes(healthy, on_cables("timed out", lost_hosts=lost))
    assert [change for change in changes if change[1] != "d/UNSET"] == []


@pytest.mark.parametrize("reason", ["not tried: the time was over", None])
def test_interfaces_that_were_not_tried_did_not_change(reason: str | None) -> None:
    rates = [[10.0, 10.0]] * 3 + [[10.0, None]]
    assert interface_changes(on_rails(), edited(out_gbps=rates, errors=[[None, None]] * 3 + [[None, reason]])) == []


def test_noise_of_many_interfaces_is_no_change() -> None:
    """Repeated flows differ by 5 %: of thousands of rates some differ by a quarter."""
    rng = np.random.default_rng(1)
    names = [f"h{k}" for k in range(256)]

    def drawn() -> Network:
        rates = rng.lognormal(2.3, 0.05, (3, 256, 4)).tolist()
        entry = {
            "names": [["eth0", "eth1", "eth2", "eth3"]] * 256, "used": [[None] * 256] * 256,
            "relays": [[None] * 256] * 256, "switches": [[[host, k] for host in range(256)] for k in range(4)],
            "out_gbps": rates[0], "in_gbps": rates[1],
        }  # fmt: skip
        flows = [
            {"from": a, "to": b, "gbps": rates[2][k][both], "both_ways": bool(both)}
            for k, (a, b) in enumerate(itertools.pairwise(names)) for both in (0, 1)
        ]  # fmt: skip
        return named(names, None, None, interfaces=entry, host_flows=flows)

    assert [change for change in interface_changes(drawn(), drawn()) if "/eth" in change[1]] == []


def test_interfaces_that_all_changed_alike_are_one_change() -> None:
    entry = on_rails().interfaces
    assert entry is not None
    half = to_builtins(structs.replace(entry, out_gbps=[[5.0] * 2] * 4, in_gbps=[[5.0] * 2] * 4))
    (item,) = compare(on_rails(), on_rails(interfaces=half), ChangeThresholds()).findings
    assert (item.where, item.old, item.new) == ("network", 10.0, 5.0)
    gone = on_rails(gone=0).interfaces  # which is no rate that changed
    assert gone is not None
    rates = [[5.0], [5.0, 5.0], [5.0, 5.0], [5.0, 10.0]]
    mixed = to_builtins(structs.replace(gone, out_gbps=rates, in_gbps=rates))
    changes = compare(on_rails(), on_rails(interfaces=mixed), ChangeThresholds()).findings
    assert {item.where for item in changes} == {"interface"}
    rates = [[5.0], *[[5.0, 5.0]] * 3]
    all_slower = to_builtins(structs.replace(gone, out_gbps=rates, in_gbps=rates))
    changes = compare(on_rails(), on_rails(interfaces=all_slower), ChangeThresholds()).findings
    assert {(item.where, item.what) for item in changes} == {("network", "rate"), ("interface", "unmeasured")}
