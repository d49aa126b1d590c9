"""Losses compared: of both ways and both directions, by how many were sent, beyond what chance does."""

import math
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest

from plink.model.comparison import NetworkChange
from plink.model.network import Network
from solvers.changes.differences import ChangeThresholds, losses
from solvers.changes.noise import Mask, align
from solvers.diagnosis.findings import diagnose
from tests.solvers.changes.files import even, flat, named

ANY = ChangeThresholds(loss=0.0)


def lossy(n: int = 6, share: float = 0.0, samples: Any = 10000, **more: Any) -> Network:
    """Loss between a and b, both directions, of so many that came back; ``more``: other matrices instead."""
    message = even(n, samples) if isinstance(samples, int | float) else samples
    return named("abcdef"[:n], **{"loss_forward": even(n, 0.0, x01=share, x10=share), "samples": message, **more})


def changed_losses(
    old: Network, new: Network, limits: ChangeThresholds = ANY, differ: Mask | None = None
) -> list[NetworkChange]:
    n = len(old.hosts)
    return losses(align(old, new), [], np.zeros((n, n), dtype=bool) if differ is None else differ, limits)


def test_a_pair_s_loss_is_that_of_its_worst_way() -> None:
    """A tenth is lost one way, a half the other way."""
    loss: dict[str, Any] = {"loss_forward": even(4, 0.0, x01=0.1, x10=0.5), "samples": even(4, 500, x01=900, x10=150)}
    (item,) = changed_losses(lossy(4), lossy(4, **loss))
    assert (item.what, item.verdict, item.where, item.hosts, item.others) == ("loss", "worse", "pair", ("a",), ("b",))
    assert (item.old, item.new, item.pairs) == (0, 0.5, 1)
    (back,) = changed_losses(lossy(4, **loss), lossy(4))
    assert back.verdict == "better"
    assert (back.old, back.new) == (0.5, 0)


def test_a_probe_is_lost_on_either_way() -> None:
    """A tenth going, a fifth of what arrived coming back. Where nothing is said of the way back none is lost there."""
    there, back = even(4, 0.0, x01=0.1, x10=0.1), even(4, 0.0, x01=0.2, x10=0.2)
    (item,) = changed_losses(lossy(4), lossy(4, loss_forward=there, loss_back=back))
    assert item.new == 0.2
    unsaid = even(4, 0.0, x01=math.nan, x10=math.nan)
    (item,) = changed_losses(lossy(4), lossy(4, loss_forward=there, loss_back=unsaid))
    assert item.new == pytest.approx(0.1)


def test_missing_pairs_and_other_methods_are_not_compared() -> None:
    """Of a round trip that was not measured losses say nothing; nor do they where only one direction counts."""
    rows = flat(4)
    rows[0, 1] = rows[1, 0] = np.nan
    bad: dict[str, Any] = {"loss_forward": even(4, 0.0, x01=0.5, x10=0.1), "samples": even(4, 10000)}
    assert changed_losses(lossy(4), named("abcd", rows, **bad)) == []
    rows[1, 0] = 50.0
    (item,) = changed_losses(lossy(4), named("abcd", rows, **bad))
    assert item.new == pytest.approx(0.1)
    differ = np.zeros((4, 4), dtype=bool)
    differ[0, 1] = True
    (item,) = changed_losses(lossy(4), lossy(4, **bad), differ=differ)
    assert item.new == pytest.approx(0.1)
    differ[1, 0] = True
    assert changed_losses(lossy(4), lossy(4, **bad), differ=differ) == []


def test_losses_in_one_file_only_are_not_compared() -> None:
    silent = named("abcdef")
    for old, new in ((silent, lossy(share=0.5)), (lossy(share=0.5), silent), (silent, silent)):
        assert changed_losses(old, new) == []


@pytest.mark.parametrize(("limit", "named"), [(0.0199, True), (0.0201, False)])
def test_a_rise_is_worth_naming_beyond_the_limit(limit: float, named: bool) -> None:
    result = changed_losses(lossy(samples=1e6), lossy(share=0.02, samples=1e6 * 0.98), ChangeThresholds(loss=limit))
    assert bool(result) is named
    result = changed_losses(lossy(share=0.02, samples=1e6 * 0.98), lossy(samples=1e6), ChangeThresholds(loss=limit))
    assert bool(result) is named


def least(sent_then: float, sent_now: float, pairs: int, was: float = 0.0) -> float:
    """The smallest share that is beyond chance, found by halving: losses come in bursts, which doubles the standard
    error of a difference of two shares; of all pairs one in a hundred comparisons may be wrong."""
    times, low, high = NormalDist().inv_cdf(1 - 0.005 / pairs), was, 1.0
    for _ in range(60):
        now = (low + high) / 2
        both = max((was * sent_then + now * sent_now) / (sent_then + sent_now), 1 / (sent_then + sent_now))
        sigma = 2 * math.sqrt(both * (1 - both) * (1 / sent_then + 1 / sent_now))
        low, high = (low, now) if now - was > times * sigma else (now, high)
    return high


@pytest.mark.parametrize(
    ("n", "then", "now", "was"), [(4, 100.0, 100.0, 0.0), (4, 5000.0, 300.0, 0.01), (6, 300.0, 5000.0, 0.0)]
)
def test_a_rise_of_loss_is_reported_beyond_chance(n: int, then: float, now: float, was: float) -> None:
    """``then`` and ``now``: sent each way, so that a pair has twice as many."""
    edge = least(2 * then, 2 * now, n * (n - 1) // 2, was)
    for share, is_named in ((edge * 0.995, False), (edge * 1.005, True)):
        old = lossy(n, loss_forward=even(n, was), samples=then * (1 - was))
        received = even(n, now * (1 - was), x01=now * (1 - share), x10=now * (1 - share))
        new = lossy(n, loss_forward=even(n, was, x01=share, x10=share), samples=received)
        result = changed_losses(old, new)
        assert bool(result) is is_named, share


def test_what_all_pairs_of_a_host_lose_counts_together() -> None:
    """2 % of 500 probes of a pair is noise by itself; of all seven pairs of a host it is a host that loses packets."""
    n = 8
    share = even(n, 0.0)
    for k in range(1, n):
        share[0][k] = share[k][0] = 0.02
    old, new = (named("abcdefgh", loss_forward=loss, samples=even(n, 250)) for loss in (even(n, 0.0), share))
    (item,) = losses(align(old, new), [], np.zeros((n, n), dtype=bool), ChangeThresholds())
    assert (item.where, item.hosts, item.pairs) == ("host", ("a",), n - 1)


def test_one_loss_has_the_number_and_severity_of_a_diagnosis() -> None:
    """0.6 % each way is 1.2 % of round trips, and a warning; the worst pair's 0.8 % is what both say."""
    n = 6
    share = even(n, 0.0)
    for k in range(1, n):
        share[0][k] = share[k][0] = 0.006
    share[3][0] = 0.008
    lossless, now = (
        named("abcdef", loss_forward=loss, loss_back=loss, samples=even(n, 5000)) for loss in (even(n, 0.0), share)
    )
    (change,) = losses(align(lossless, now), [], np.zeros((n, n), dtype=bool), ChangeThresholds())
    (finding,) = diagnose(now, np.zeros(n, dtype=np.intp), {})
    assert (change.new, change.severity, change.hosts) == (0.008, "warning", ("a",))
    assert (finding.severity, finding.hosts) == ("warning", ["a"])
    assert "up to 0.80 %" in finding.evidence
