"""Two files compared: what is counted, noted and refused, and which groups causes are looked for in."""

import math
from typing import Any

import numpy as np
import pytest

from plink.errors import NoAnswer
from plink.model.comparison import NetworkComparison
from plink.model.network import Matrix, Network
from solvers.changes.compare import compare
from solvers.changes.differences import ChangeThresholds
from tests.solvers.changes.files import even, flat, named

LIMITS = ChangeThresholds()
NAN = math.nan


def racks(near: float = 50.0, far: float = 200.0) -> Matrix:
    """Two racks of four: a to d, e to h."""
    rack = np.arange(8) // 4
    return np.where(rack[:, None] == rack, near, far) * ~np.eye(8, dtype=bool)


def kinds_of(result: NetworkComparison) -> list[tuple[str, str, tuple[str, ...]]]:
    return [(finding.what, finding.where, finding.hosts) for finding in result.findings]


def test_groups_are_those_of_the_old_file() -> None:
    result = compare(named("abcdefgh", racks()), named("abcdefgh", racks(far=400.0)), LIMITS)
    (finding,) = result.findings
    assert (finding.where, finding.hosts, finding.others, finding.pairs) == ("link", tuple("abcd"), tuple("efgh"), 16)
    assert (finding.old, finding.new) == pytest.approx((200, 400))
    result = compare(named("abcdefgh", flat(8)), named("abcdefgh", racks(far=150.0)), LIMITS)
    assert {finding.where for finding in result.findings} == {"pair"}, "which had no groups"


def test_groups_of_a_sparse_file_are_those_that_predictions_rest_on() -> None:
    """Of 28 pairs only those within racks and one between were measured: with what lacks taken for far, as in a file
    that has most, there would be groups too; what got slower in one rack is that rack's."""
    old = np.where(racks() == 200.0, NAN, racks())
    old[0, 4] = old[4, 0] = 200.0
    new = old.copy()
    new[:4, :4] *= 3
    result = compare(named("abcdefgh", old), named("abcdefgh", new), LIMITS)
    assert (result.compared.round_trips, kinds_of(result)) == (13, [("latency", "inside", tuple("abcd"))])


def test_counts_are_of_what_was_compared() -> None:
    rates = 10.0 * ~np.eye(8, dtype=bool)
    shared = {"shared_links": [{"groups": [{"members": ["a", "b"], "out_gbps": 3.0, "in_gbps": 4.0}]}]}
    result = compare(named("abcdefgh", racks(), rates, **shared), named("hgfedcba", racks(), rates, **shared), LIMITS)
    assert (result.compared.round_trips, result.compared.rates, result.compared.capacities) == (28, 28, 2)
    assert (result.findings, result.notes, result.ok) == ((), (), True)
    assert (result.shift, result.noise) == pytest.approx((1, 0))


def test_changes_of_all_kinds_are_in_a_fixed_order() -> None:
    """Round trips, what is missing, losses, rates, capacities, hops."""
    rates, slower = (gbps * np.ones((8, 8)) for gbps in (10.0, 10.0))
    slower[0, 1] = 2.0
    rows = racks()
    rows[0, 4] = rows[4, 0] = 900.0
    rows[1, 5] = rows[5, 1] = NAN

    def of(rows: Matrix, rates: Matrix, loss: float, gbps: float, hop: float) -> Network:
        shared = [{"groups": [{"members": ["a", "b"], "out_gbps": gbps}]}]
        details: dict[str, Any] = {"loss_forward": even(8, 0.0, x23=loss, x32=loss), "samples": even(8, 1000)}
        return named("abcdefgh", rows, rates, **details, shared_links=shared, hops=even(8, 2, x67=hop))

    result = compare(of(racks(), rates, 0.0, 4.0, 2), of(rows, slower, 0.3, 1.0, 3), LIMITS)
    assert [finding.what for finding in result.findings] == [
        "latency",
        "unmeasured",
        "loss",
        "rate",
        "capacity",
        "hops",
    ]
    assert sum(finding.verdict == "worse" for finding in result.findings) == 5, (
        "other hops are neither better nor worse"
    )
    back = compare(of(rows, slower, 0.3, 1.0, 3), of(racks(), rates, 0.0, 4.0, 2), LIMITS)
    assert [finding.verdict for finding in back.findings] == ["better"] * 5 + ["changed"]
    assert back.ok


def test_notes_say_what_could_not_be_compared() -> None:
    rates = 10.0 * np.ones((8, 8))
    fewer = rates.copy()
    fewer[0, 1] = fewer[1, 0] = NAN
    shared = [[{"groups": [{"members": ["a", other], "out_gbps": 4.0}]}] for other in "bc"]

    def by(method: int, clock: int, **more: Any) -> dict[str, Any]:
        words = {"methods": ["", "stamp", "icmp"], "clocks": ["", "kernel", "user"]}
        used = {"method_used": even(8, 1, x01=method), "clock_used": even(8, 1, x02=clock, x20=clock)}
        return words | used | more

    old = named("abcdefgh", racks(), rates, **by(1, 1, shared_links=shared[0]))
    new = named("abcdefgh", racks(), fewer, **by(2, 2, shared_links=shared[1]))
    result = compare(old, new, LIMITS)
    assert result.notes == (
        "one round trip was measured by another method now (stamp -> icmp): not compared",
        "two round trips were measured by another clock now (kernel -> user): not compared",
        "one group's shared links are of other hosts now: not compared",
        "one pair's bandwidth was measured before and not now: not compared",
    )
    assert (result.compared.round_trips, result.compared.rates, result.compared.capacities) == (27, 27, 0)


def test_rates_alone_or_missing_pairs_alone_are_something_to_compare() -> None:
    none, rates = np.full((3, 3), NAN), np.ones((3, 3))
    assert compare(named("abc", none, rates), named("abc", none, rates), LIMITS).compared.rates == 3
    result = compare(named("abc", none), named("abc"), LIMITS)
    assert (result.compared.round_trips, result.compared.rates) == (0, 0)
    assert [finding.what for finding in result.findings] == ["unmeasured"]
    with pytest.raises(NoAnswer, match="no measured pair in common; three pairs' bandwidths were measured before"):
        compare(named("abc", none, rates), named("abc", none), LIMITS)


def test_rates_of_hosts_are_among_the_findings() -> None:
    """Beside what pairs of the host say, but for the same verdict."""

    def rates(host: float, pairs: float) -> Network:
        rows = [
            {"from": a, "to": b, "gbps": host if "c" in (a, b) else 10.0, "both_ways": False}
            for a in "abcd"
            for b in "abcd"
            if a != b
        ]
        gbps = np.full((4, 4), 10.0)
        gbps[2] = gbps[:, 2] = pairs
        return named("abcd", None, gbps, host_flows=rows)

    for was, now, verdicts in (
        (rates(10.0, 10.0), rates(1.0, 10.0), ["worse"]),
        (rates(10.0, 10.0), rates(1.0, 5.0), ["worse"]),
        (rates(10.0, 10.0), rates(1.0, 20.0), ["better", "worse"]),
    ):
        result = compare(was, now, ChangeThresholds())
        named_c = [item for item in result.findings if item.hosts == ("c",)]
        assert sorted(item.verdict for item in named_c) == verdicts
        assert result.compared.host_rates == 8
        assert result.ok == ("worse" not in verdicts)
