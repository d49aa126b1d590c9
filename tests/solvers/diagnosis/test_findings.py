"""From suspicions to findings: what they say, what a second measurement drops, what each other key of a file tells."""

import math
from typing import Any

import numpy as np
import pytest

from plink.model.diagnosis import Finding, Severity
from plink.model.hostlist import expand_hostlist
from plink.model.hosts import Host, Hosts
from plink.model.network import Matrix, Network, to_rows
from solvers.diagnosis.findings import diagnose, merged
from tests.networks import details_from

N = 6
ONE_GROUP = np.zeros(N, dtype=np.intp)


def flat(n: int = N, us: float = 100.0) -> Matrix:
    return us * ~np.eye(n, dtype=bool)


def slow_host(us: float = 180.0) -> Matrix:
    rows = flat()
    rows[2], rows[:, 2] = us, us
    rows[2, 2] = 0.0
    return rows


def slow_link(us: float = 180.0) -> Matrix:
    rows = flat()
    rows[1, 4] = rows[4, 1] = us
    return rows


def network(rows: Matrix, rates: Matrix | None = None, **details: Any) -> Network:
    hosts = Hosts(tuple(Host(f"h{i}", f"h{i}") for i in range(len(rows))))
    return Network(hosts, rows, rates, details_from(details))


def findings_of(rows: Matrix, again: dict[tuple[int, int], float] | None = None, **details: Any) -> list[Finding]:
    return merged(diagnose(network(rows, **details), np.zeros(len(rows), dtype=np.intp), again or {}))


@pytest.mark.parametrize(("rows", "other"), [(slow_host(), (0, 2)), (slow_link(), (1, 4))])
def test_second_measurement_confirms_above_a_quarter(rows: Matrix, other: tuple[int, int]) -> None:
    assert findings_of(rows, {other: 124.9}) == []
    (item,) = findings_of(rows, {other: 125.0})
    assert item.evidence.endswith("; 125 us when measured again")
    (item,) = findings_of(rows, {(0, 5): 1.0})
    assert "again" not in item.evidence, "of another pair"


def test_equal_pairs_are_separate_findings() -> None:
    rows = slow_link()
    rows[0, 3] = rows[3, 0] = 181.0
    rows[2, 5] = rows[5, 2] = rows[1, 4]
    assert [item.hosts for item in findings_of(rows)] == [["h0", "h3"], ["h1", "h4"], ["h2", "h5"]]


@pytest.mark.parametrize("kind", ["slow link", "asymmetric", "loss"])
def test_pairs_of_a_kind_are_named_from_the_worst_on(kind: str) -> None:
    rows, loss = flat(30), np.zeros((30, 30))
    expected = []
    for k in range(6):  # h0 - h20 is the least bad
        pair, worse = (k, 20 + k), 160.0 + 20.0 * k
        expected.insert(0, [f"h{pair[0]}", f"h{pair[1]}"])
        if kind == "loss":
            loss[pair] = 0.02 + 0.01 * k
        else:
            rows[pair] = worse
            rows[pair[::-1]] = worse if kind == "slow link" else 100.0
    result = findings_of(rows, loss_forward=to_rows(loss, 6))
    assert [sorted(item.hosts, key=len) for item in result if item.kind == kind] == expected


@pytest.mark.parametrize("asymmetric", [False, True])
def test_a_second_measurement_decides_where_the_first_was_noisy(asymmetric: bool) -> None:
    rows = slow_link(150.0)
    if asymmetric:
        rows[4, 1] = 100.0
    halves = [to_rows(rows - np.where(rows > 0, 15.0, 0.0)), to_rows(rows + np.where(rows > 0, 15.0, 0.0))]
    kind = "asymmetric" if asymmetric else "slow link"

    def named(again: dict[tuple[int, int], float]) -> bool:
        return any(item.kind == kind for item in findings_of(rows, again, halves_us=halves))

    assert not named({})
    assert named({(1, 4): 150.0, (4, 1): 100.0 if asymmetric else 150.0})
    assert not named({(1, 4): 105.0, (4, 1): 100.0})


def test_a_pair_far_noisier_than_others_hides_no_slow_one() -> None:
    """Their round trips are alike, and so they are judged together."""
    rows = flat(16)
    rows[1, 4] = rows[4, 1] = 200.0
    rows[2, 7] = rows[7, 2] = 300.0
    noise = np.where(rows > 0, 2.0, 0.0)
    noise[2, 7] = noise[7, 2] = 200.0
    result = findings_of(rows, halves_us=[to_rows(rows - noise), to_rows(rows + noise)])
    assert [item.hosts for item in result] == [["h1", "h4"]]


def test_of_several_second_measurements_of_a_host_the_fastest_counts() -> None:
    (item,) = findings_of(slow_host(), {(0, 2): 150.0, (2, 5): 130.0, (0, 1): 1.0})
    assert item.evidence.endswith("; 130 us when measured again")
    assert findings_of(slow_host(), {(0, 2): 150.0, (2, 5): 120.0}) == []


def test_a_suspicion_that_is_dropped_does_not_hide_the_next_one() -> None:
    """Hosts 2 and 7 of nine are slow, and so are two links; the worse of either comes first and is not borne out."""
    rows = flat(9)
    for host, us in ((2, 250.0), (7, 180.0)):
        rows[host], rows[:, host] = us, us
        rows[host, host] = 0.0
    assert [item.hosts for item in findings_of(rows, {(0, 2): 100.0})] == [["h7"]]
    rows = flat(9)
    rows[0, 1] = rows[1, 0] = 300.0
    rows[4, 5] = rows[5, 4] = 200.0
    assert [item.hosts for item in findings_of(rows, {(0, 1): 100.0})] == [["h4", "h5"]]


@pytest.mark.parametrize("again", [{}, {(0, 2): 1.0}])
def test_a_slow_host_s_pairs_are_no_further_findings(again: dict[tuple[int, int], float]) -> None:
    """Also where the second measurement did not bear it out: its figures are not to be had."""
    rows = slow_host()
    rows[2, 4] = rows[4, 2] = 900.0
    rows[2, 3] = 600.0
    assert [(item.kind, item.hosts) for item in findings_of(rows, again)] == [("slow host", ["h2"])] * (not again)
    rows[0, 5] = 300.0
    kinds = [item.kind for item in findings_of(rows, again)]
    assert kinds == ["slow host"] * (not again) + ["slow link", "asymmetric"]


# Bandwidths


# Other keys


@pytest.mark.parametrize(("share", "named"), [(0.001, False), (0.0012, True)])
def test_a_loss_is_worth_naming_beyond_one_in_a_thousand(share: float, named: bool) -> None:
    loss = np.zeros((N, N))
    loss[4, 1] = share
    for key, way in (("loss_forward", "from h4 to h1"), ("loss_back", "from h1 to h4")):
        details: dict[str, Any] = {key: to_rows(loss, 6)}
        result = findings_of(flat(), **details)
        assert [item.hosts for item in result] == ([["h1", "h4"]] if named else [])
        assert all(item.evidence == f"0.12 % of the probes are lost {way}" for item in result)


def test_clock_steps_are_counted_by_who_measured() -> None:
    steps = np.zeros((N, N))
    steps[2, 0], steps[2, 3], steps[5, 0], steps[4, 1] = 3, 2, 1, math.nan
    result = findings_of(flat(), clock_steps=to_rows(steps))
    assert [(item.kind, item.hosts, item.evidence.split()[0]) for item in result] == [
        ("tainted", ["h2"], "5"), ("tainted", ["h5"], "1"),
    ]  # fmt: skip
    assert findings_of(flat()) == []


def lacking(*directions: tuple[int, int], n: int = N) -> Matrix:
    rows = flat(n)
    for i, j in directions:
        rows[i, j] = math.nan
    return rows


def test_what_was_not_measured_names_who_lacks_most_first_and_those_only() -> None:
    """Directions of either kind count: h4 lacks three, h1 two, h0, h2 and h3 one each, h5 none."""
    (item,) = findings_of(lacking((4, 0), (1, 4), (4, 2), (1, 3)))
    assert (item.kind, item.hosts) == ("unmeasured", ["h4", "h1", "h0", "h2", "h3"])
    assert item.evidence == "4 pairs were not measured in one direction, first h1 -> h3: never tried"


def test_only_the_host_that_all_missing_pairs_share_is_named() -> None:
    (item,) = findings_of(lacking((4, 0), (0, 4), (1, 4)))
    assert (item.kind, item.hosts, item.severity) == ("unmeasured", ["h4"], Severity.WARNING)
    errors = [{"from": "h4", "to": "h0", "why": "h4: killed"}, {"from": "h2", "to": "h1", "why": "h2: killed"}]
    rows = lacking((4, 0), (0, 4), (1, 4), (2, 1))
    by_kind = {item.kind: item.hosts for item in findings_of(rows, errors=errors)}
    assert by_kind == {"unreachable": ["h4", "h2"], "unmeasured": ["h4", "h2"]}


def test_a_host_of_which_nothing_was_measured_is_an_error() -> None:
    pairs = [(2, other) for other in range(N) if other != 2]
    errors = [{"from": f"h{i}", "to": f"h{j}", "why": "h2: no answer to SSH"} for i, j in pairs]
    (item,) = findings_of(lacking(*pairs, *((j, i) for i, j in pairs)), errors=errors)
    assert (item.kind, item.hosts, item.severity) == ("unmeasured", ["h2"], Severity.ERROR)


@pytest.mark.parametrize(
    "reason", ["not tried: the budget was spent", "not tried: the time was over", "never tried", None]
)
def test_a_host_that_was_not_tried_is_no_error(reason: str | None) -> None:
    """Beside one that was, in a finding of its own."""
    pairs = [(host, other) for host in (2, 5) for other in range(N) if other != host]
    errors = [{"from": f"h{i}", "to": f"h{j}", "why": "h2: no answer to SSH" if 2 in (i, j) else reason}
              for i, j in pairs if reason or 2 in (i, j)]  # fmt: skip
    items = findings_of(lacking(*pairs, *((j, i) for i, j in pairs)), errors=errors)
    assert [(item.kind, item.hosts, item.severity) for item in items] == [
        ("unmeasured", ["h2"], Severity.ERROR), ("unmeasured", ["h5"], Severity.WARNING),
    ]  # fmt: skip


@pytest.mark.parametrize("in_details", [True, False])
def test_a_host_lost_after_its_round_trips_is_unreachable(in_details: bool) -> None:
    """That no flow came through is no finding of its own then."""
    pairs = [("h0", "h1"), ("h1", "h0"), ("h3", "h4"), ("h4", "h3")]
    details: dict[str, Any] = {
        "host_flows": [{"from": a, "to": b, "gbps": 1.0, "both_ways": False} for a, b in pairs],
        "host_flow_errors": [{"from": "h2", "to": "h5", "why": "no answer in time from the agents of h2 and h5"},
                             {"from": "h2", "to": "h0", "why": "h2: its agent is gone"}],
        "lost_hosts": {"h2": "its agent is gone"},
    }  # fmt: skip
    if in_details:
        details["host_flow_errors"].pop()
    else:
        details.pop("lost_hosts")
    (item,) = findings_of(flat(), **details)
    assert (item.kind, item.hosts, item.severity) == ("unreachable", ["h2"], Severity.ERROR)
    assert item.evidence == "its agent is gone"


def test_a_host_that_was_lost_once_and_is_there_now_is_reachable() -> None:
    """The reasons of flows are those of the run before, where one that resumes measured none."""
    errors = [{"from": "h2", "to": "h0", "why": "h2: its agent is gone"}]
    flows = [{"from": "h0", "to": "h1", "gbps": 1.0, "both_ways": False}]
    findings = findings_of(flat(), host_flows=flows, host_flow_errors=errors, lost_hosts={})
    assert "unreachable" not in {item.kind for item in findings}


def test_a_lost_host_without_a_reason_has_evidence() -> None:
    (item,) = findings_of(flat(), lost_hosts={"h2": " "})
    assert (item.kind, bool(item.evidence)) == ("unreachable", True)


def test_only_failed_pairs_of_a_sparse_file_are_missing() -> None:
    rows = lacking((1, 4), (4, 1), (1, 5), (0, 3))
    errors = [{"from": "h4", "to": "h1", "why": "refused"}, {"from": "h0", "to": "x", "why": ""},
              {"from": "y", "to": "h3", "why": ""}, {"from": "h2", "to": "h3", "why": "done"}]  # fmt: skip
    (item,) = findings_of(rows, plan="adaptive", errors=errors)
    assert item.evidence == "1 pair was not measured in one direction, first h4 -> h1: refused"
    assert findings_of(rows, plan="adaptive", errors=[]) == []
    assert findings_of(rows, plan="full", errors=errors)[0].evidence.startswith(
        "3 pairs were not measured, some in one direction"
    )
    assert math.isnan(rows[0, 3])


def test_round_trips_of_0_make_no_host_slow() -> None:
    rows = np.where(np.eye(N, dtype=bool), 0.0, 60.0)
    rows[0, 5] = rows[5, 0] = 0.0
    groups = np.array([0 if host in (0, 5) else host + 1 for host in range(N)])
    assert [item.kind for item in diagnose(network(rows), groups, {})] == ["zero"]


def test_findings_come_in_the_order_of_what_they_are() -> None:
    rows = slow_host()
    rows[0, 1] = rows[1, 0] = 400.0
    rows[4, 5] = 300.0
    rows[3, 0] = math.nan
    rates = flat(us=5.0)
    rates[3], rates[:, 3] = 1.0, 1.0
    shared = [
        {"members": [f"h{2 * k}", f"h{2 * k + 1}"], "out_gbps": gbps, "out_limited_by": "link"}
        for k, gbps in enumerate((5.0, 5.0, 1.0))
    ]
    steps, loss = np.zeros((N, N)), np.zeros((N, N))
    steps[1, 0], loss[0, 1] = 1, 0.5
    details = {"clock_steps": to_rows(steps), "loss_forward": to_rows(loss), "shared_links": [{"groups": shared}]}
    result = merged(diagnose(network(rows, rates, **details), ONE_GROUP, {}))
    assert [item.kind for item in result] == [
        "slow host (bandwidth)", "slow shared link", "loss", "slow host", "slow link", "slow link", "asymmetric",
        "tainted", "unmeasured",
    ]  # fmt: skip
    assert all(item.advice for item in result)


def parted(pairs: list[tuple[int, int]], reason: str = "no probe was answered", **details: Any) -> list[Finding]:
    """The findings of six hosts, when these pairs failed."""
    rows = flat()
    for a, b in pairs:
        rows[a, b] = rows[b, a] = np.nan
    errors = [{"from": f"h{i}", "to": f"h{j}", "why": reason} for a, b in pairs for i, j in ((a, b), (b, a))]
    return findings_of(rows, errors=errors, **details)


@pytest.mark.parametrize(
    ("near", "far"),
    [([0, 3], [1, 4]), ([0, 3], [1, 2, 4, 5]), ([2], [0, 1, 3, 4, 5])],
    ids=["two of three groups", "two halves", "a host and the others"],
)
def test_two_groups_that_cannot_reach_each_other_are_one_line(near: list[int], far: list[int]) -> None:
    pairs = [(a, b) for a in near for b in far]
    (finding,) = parted(pairs)
    assert (finding.kind, finding.severity, finding.pairs) == ("partition", "error", len(pairs))
    assert set(finding.hosts) == {f"h{host}" for host in near + far}
    here, _, there = finding.evidence.partition(" cannot reach")[0].partition(" and ")
    assert {tuple(expand_hostlist(side, "")) for side in (here, there)} == {
        tuple(f"h{host}" for host in hosts) for hosts in (near, far)
    }
    assert "no probe was answered" in finding.evidence


def test_three_isolated_groups_are_named_pairwise() -> None:
    groups = [[0, 1], [2, 3], [4, 5]]
    pairs = [(a, b) for k in range(3) for near in [groups[k]] for far in groups[k + 1 :] for a in near for b in far]
    assert [finding.kind for finding in parted(pairs)] == ["partition"] * 3


def test_hosts_without_an_agent_and_blocked_probes_are_no_partition() -> None:
    pairs = [(2, host) for host in (0, 1, 3, 4, 5)]
    assert [finding.kind for finding in parted(pairs, "h2: no answer to SSH")] == ["unmeasured"]
    assert [finding.kind for finding in parted(pairs, "not tried: the time was over")] == ["unmeasured"]
    flow = {"from": "h2", "to": "h0", "gbps": 1.0, "both_ways": False}
    assert [finding.kind for finding in parted(pairs, host_flows=[flow])] == ["unmeasured"]
    assert [finding.kind for finding in parted([(2, 5)])] == ["unmeasured"], "one pair"
    (blocked,) = parted(pairs, method="stamp", host_flows=[flow])
    assert (blocked.kind, blocked.severity, blocked.hosts, blocked.pairs) == ("closed", "warning", ["h2"], 5)
    assert blocked.evidence == "UDP is blocked"


def test_a_host_of_another_method_is_not_slow() -> None:
    """ICMP takes longer than STAMP, and by pairs differently: what that says of the host nobody knows."""
    rows, used = slow_host(), np.full((N, N), 1.0)
    rows[2, 4] = rows[4, 2] = 250.0
    assert findings_of(rows, methods=["", "stamp", "icmp"], method_used=used.tolist()) != []
    used[2], used[:, 2] = 2, 2
    assert findings_of(rows, methods=["", "stamp", "icmp"], method_used=used.tolist()) == []


def test_one_pair_of_another_method_hides_no_slow_host() -> None:
    used = np.full((N, N), 2.0)
    used[0, 2] = used[2, 0] = 1
    findings = findings_of(slow_host(), methods=["", "stamp", "icmp"], method_used=used.tolist())
    assert [(finding.kind, finding.hosts) for finding in findings] == [("slow host", ["h2"])]


def test_a_host_of_which_nothing_was_measured_is_named_alone() -> None:
    silent = [(a, b) for k in range(N) for a, b in ((2, k), (k, 2)) if k != 2]
    (item,) = findings_of(lacking(*silent))
    assert (item.kind, item.hosts, item.pairs) == ("unmeasured", ["h2"], N - 1)
    assert "leave it out" in item.advice
    host, rest = findings_of(lacking(*silent, (0, 1), (1, 0)))
    assert (host.hosts, host.pairs) == (["h2"], N - 1)
    assert (rest.hosts, rest.pairs) == (["h0", "h1"], 1)
    two = [(a, b) for k in (2, 4) for j in range(N) for a, b in ((j, k), (k, j)) if j != k]
    (item,) = findings_of(lacking(*two))
    assert (item.hosts, item.pairs) == (["h2", "h4"], 2 * N - 3)


def test_rates_of_zero_are_dead_links() -> None:
    """Of a group both ways are one finding, and the pairs that cross it none; other pairs have their own."""
    rates = np.full((N, N), 8.0)
    rates[0, 4] = rates[2, 1] = 0.0
    groups = [
        {"members": ["h0", "h1", "h2"], "out_gbps": 0, "in_gbps": 0},
        {"members": ["h3", "h4", "h5"], "out_gbps": 9, "in_gbps": 9},
    ]
    links, pair = diagnose(network(flat(), rates, shared_links=[{"groups": groups}]), ONE_GROUP, {})
    assert (links.kind, links.hosts, links.severity) == ("dead link", ["h0", "h1", "h2"], Severity.ERROR)
    assert (pair.kind, pair.hosts, pair.pairs) == ("dead link", ["h1", "h2"], 1)
    for group in groups:
        group["confidence"] = 0.1  # rather another group, whose link nobody knows
    results = diagnose(network(flat(), rates, shared_links=[{"groups": groups}]), ONE_GROUP, {})
    assert [item.hosts for item in results if item.kind == "dead link"] == [["h0", "h4"], ["h1", "h2"]]
    rates[3], rates[:, 3] = 0.0, 0.0  # which says that the host is slow
    results = diagnose(network(flat(), rates), ONE_GROUP, {})
    assert [(item.kind, sorted(item.hosts)) for item in results] == [
        ("slow host (bandwidth)", ["h3"]), ("dead link", ["h0", "h4"]), ("dead link", ["h1", "h2"]),
    ]  # fmt: skip


@pytest.mark.parametrize("n", [1, 2])
def test_hosts_without_others_to_compare_have_no_findings(n: int) -> None:
    assert diagnose(network(flat(n)), np.arange(n), {}) == []
