"""Bandwidths and shared links: what the tree, its table and the summary say of them."""

import html
import re
from dataclasses import replace

import numpy as np
import pytest

from plink.features.report import tables
from plink.features.report.data import Bandwidths, LinkDirection, ProbeSummary
from plink.features.report.figures import figures
from plink.features.report.link_tree import MAX_DRAWN_GROUPS, capacity
from plink.features.report.page import page
from plink.features.report.words import blame, date, summary
from plink.pictures import PAGE, PAPER, inline
from tests.features.report.subjects import NASTY, facts, linked, plain


def texts(svg: str) -> list[str]:
    """The texts of a drawing, without markup."""
    return [html.unescape(text) for text in re.findall(r"<text[^>]*>([^<]*)</text>", svg)]


@pytest.mark.parametrize(
    ("way", "text"),
    [
        (LinkDirection(1.034, 0.98, 1.05, "link"), "1.03 Gbit/s (0.98 to 1.05)"),
        (LinkDirection(0.186, 0.18, 0.19, "link"), "186 Mbit/s (180 to 190)"),
        (LinkDirection(1.0, 1.0, 1.0, "link"), "1 Gbit/s"),
        (LinkDirection(1.0), "1 Gbit/s (interval unknown)"),
        (LinkDirection(2.0, 1.9, 2.0, "hosts"), "≥ 2 Gbit/s (limit: its hosts)"),
        (LinkDirection(2.0, None, None, "groups"), "≥ 2 Gbit/s (limit: links below)"),
        (LinkDirection(2.0, 1.9, 2.0, "others"), "≥ 2 Gbit/s (limit: it or other groups' links)"),
        (LinkDirection(None), "not measured"),
        (LinkDirection(None, assumed_gbps=0.8), "not measured, assumed 800 Mbit/s"),
    ],
)
def test_capacity_of_a_link(way: LinkDirection, text: str) -> None:
    assert capacity(way) == text


def test_tree_shows_every_link_and_its_load() -> None:
    shown = texts(inline(figures(linked(), PAGE)["links"]))
    for text in (
        "out 500 Mbit/s (450 to 520) · 200 MB, 3.2 s",
        "in 1 Gbit/s (0.95 to 1.1) · 200 MB, 1.6 s",
        "out ≥ 2 Gbit/s (limit: its hosts) · 200 MB",
        "in ≥ 2 Gbit/s (limit: links below) · nothing",
        "out not measured, assumed 800 Mbit/s · 200 MB, 2 s",
        "in not measured · 200 MB",
        "four hosts: host[0,4,8,12]",
    ):
        assert text in shown, text
    assert sum(text.startswith("</script>") for text in shown) == 1


def test_texts_of_links_take_the_room_that_names_leave() -> None:
    subject = linked()
    (tier,) = subject.bandwidths.tiers
    way = LinkDirection(0.1976, 0.197, 0.198, "others", None, 7e6, 283e3)
    tier = tuple(replace(link, out=way) for link in tier)
    shown = texts(inline(figures(replace(subject, bandwidths=Bandwidths((tier,))), PAGE)["links"]))
    assert "out ≥ 198 Mbit/s (limit: it or other groups' links) · 7 MB, 283 ms" in shown


def test_accent_is_for_what_the_cost_model_blames() -> None:
    subject = linked()
    assert subject.route is not None
    assert inline(figures(subject, PAGE)["links"]).count("var(--accent)") >= 2  # the line and its text
    subject = replace(subject, route=replace(subject.route, bottleneck=None))
    for name in ("links", "map"):
        assert "var(--accent)" not in inline(figures(subject, PAGE)[name])


def test_pods_hold_their_racks() -> None:
    picture = figures(linked(32, 8, pods=2), PAPER)["links"]
    lines = picture.figure.axes[0].get_lines()
    links = [
        line.get_xdata() for line in lines if len(line.get_xdata()) == 2 and line.get_xdata()[0] < line.get_xdata()[1]
    ]
    starts = sorted({float(x[0]) for x in links})
    assert [sum(float(x[0]) == start for x in links) for start in starts] == [2 * 2, 2 * 8]  # both ways


def test_of_many_groups_the_busiest_are_drawn() -> None:
    subject = linked(120, 60)
    picture = figures(subject, PAPER)["links"]
    shown = [text.get_text() for text in picture.figure.axes[0].texts]
    assert sum("hosts: " in text for text in shown) == MAX_DRAWN_GROUPS
    assert "20 groups less busy: see the table" in picture.alt
    assert tables.links(subject).count('<th scope="row">') == 60


def test_without_an_order_there_is_no_load() -> None:
    bandwidths = linked().bandwidths
    tiers = tuple(
        tuple(
            replace(link, **{k: replace(getattr(link, k), load_bytes=None, busy_us=None) for k in ("out", "into")})
            for link in tier
        )
        for tier in bandwidths.tiers
    )
    subject = linked(route=None, no_route="No order.", bandwidths=replace(bandwidths, tiers=tiers, size_bytes=None))
    assert "out 500 Mbit/s (450 to 520)" in texts(inline(figures(subject, PAGE)["links"]))
    assert "load" not in tables.links(subject)


def test_page_escapes_what_links_say() -> None:
    text = page(linked())
    assert "<b>" not in text
    assert html.escape("</script><b>") in text
    assert "STAMP (230), TCP (10)" in text


def test_names_of_all_kinds_are_drawn() -> None:
    names = ("", " ", "名前", NASTY, "a" * 300, *(f"h{k}" for k in range(11)))
    assert "What each host sends" in page(linked(names=names))


def test_page_without_any_bandwidth_says_so() -> None:
    text = page(replace(plain(3), bandwidths=Bandwidths(no_tiers="Nothing shared.")))
    assert "Nothing shared. No bandwidths were measured." in text
    assert not {"links", "bandwidth", "rates"} & figures(plain(3), PAPER).keys()


def test_host_without_a_known_rate_has_no_mark() -> None:
    subject = linked()
    assert '<th scope="row">host1</th><td class="number">–</td>' in tables.rates(subject)
    assert figures(subject, PAPER)["rates"].alt.endswith("900 Mbit/s to 1 Gbit/s.")
    assert figures(linked(700, 4), PAPER)["bandwidth"].alt  # blocks of hosts


def test_summary_of_links_and_probes() -> None:
    sentences = summary(linked(32, 8, pods=2))
    assert (
        "They were measured on 24 November 2026, 09:12 UTC, by STAMP (230), TCP (10), with 200 to 1,400 (median 260) "
        "probes a pair." in sentences
    )
    assert (
        "Shared links carry 500 Mbit/s to at least 2 Gbit/s each way for eight groups of tier 1 (2 not measured), "
        "1 Gbit/s each way for two groups of tier 2." in sentences
    )
    assert not any("measured on" in text for text in summary(facts()))
    assumed = replace(facts(), probes=ProbeSummary(assumed_from="topograph"))
    assert "The round trips are assumed, from a topology file (topograph)." in summary(assumed)


def test_bottleneck_of_an_assumed_capacity_is_called_so() -> None:
    subject = linked()
    assert subject.route is not None
    bottleneck = subject.route.bottleneck
    assert bottleneck is not None
    assert "inferred" not in blame(subject, bottleneck)
    for links in ((), ((0, 2, True),), ((5, 5, False),)):
        assert "inferred from round trips" in blame(subject, replace(bottleneck, links=links))
    many = replace(bottleneck, kind="hosts", resources=tuple(f"h{k}, out" for k in range(20)))
    assert "20 links that are equally busy." in blame(subject, many)
    assert blame(subject, replace(bottleneck, kind="latency")).startswith("Most of the time, 60%")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("2026-11-24T09:12:33Z", "24 November 2026, 09:12 UTC"),
        ("2026-11-24T01:12:33+02:00", "23 November 2026, 23:12 UTC"),
        ("2026-11-24T09:12:33", "2026-11-24T09:12:33"),
        ("yesterday", "yesterday"),
        ("0001-01-01T00:00:00+23:00", "0001-01-01T00:00:00+23:00"),
    ],
)
def test_dates(text: str, shown: str) -> None:
    assert date(text) == shown


def test_unknown_pairs_are_hatched() -> None:
    subject = linked()
    pair = np.array(subject.bandwidths.pair_gbps)
    assert "<pattern" not in inline(figures(subject, PAGE)["bandwidth"])
    pair[0, 5] = np.nan
    subject = replace(subject, bandwidths=replace(subject.bandwidths, pair_gbps=pair))
    assert "<pattern" in inline(figures(subject, PAGE)["bandwidth"])
