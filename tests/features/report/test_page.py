"""The page as text: whole, escaped, and asking for nothing."""

import base64
import hashlib
import html
import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest

from plink.features.diagnose.run import diagnose
from plink.features.report.data import TimedOrder
from plink.features.report.page import page
from plink.features.report.request import ReportRequest
from plink.features.report.run import report_data_of
from plink.model.hosts import Host, Hosts
from plink.model.network import Network
from tests.features.report.subjects import facts, plain, troubled
from tests.solvers.synthetic import racks

VOID = {"meta", "br", "img", "input", "link", "hr"}


class Outline(HTMLParser):
    """Elements in order, and whether each that was opened was closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def text() -> str:
    return page(troubled())


def data_of(text: str) -> dict[str, object]:
    match = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert match is not None
    document: dict[str, object] = json.loads(match[1])
    return document


def test_every_element_is_closed(text: str) -> None:
    outline = Outline(text)
    assert outline.open == []
    assert {"h1", "h2", "figure", "svg", "table", "caption", "details", "form"} <= {tag for tag, _ in outline.seen}


def test_what_files_say_is_text_and_nothing_else(text: str) -> None:
    assert "<b>" not in text
    assert text.count("<script") == text.count("</script>") == 2
    assert html.escape("</script><b>") in text
    assert "$a^2$" in text  # no formula was made of it


def test_nothing_is_fetched(text: str) -> None:
    assert re.search(r"https?:", text) is None
    links = [value for _, attributes in Outline(text).seen for key, value in attributes.items() if "href" in key]
    links += re.findall(r"url\(([^)]*)\)", text)
    assert links
    assert all(str(link).strip("\"'").startswith(("#", "data:image/png;base64,")) for link in links)


def test_only_the_script_and_the_style_it_came_with_may_run(text: str) -> None:
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text)
    assert policy is not None
    rules = dict(rule.split(" ", 1) for rule in policy[1].split("; "))
    assert rules["default-src"] == "'none'"
    for rule, element in (("script-src", "script"), ("style-src-elem", "style")):
        inside = re.findall(rf"<{element}>(.*?)</{element}>", text, re.DOTALL)
        assert len(inside) == 1
        assert rules[rule] == f"'sha256-{base64.b64encode(hashlib.sha256(inside[0].encode()).digest()).decode()}'"
    assert "on" not in {key[:2] for _, attributes in Outline(text).seen for key in attributes}


def test_identifiers_are_unique_and_colours_are_the_page_s(text: str) -> None:
    names = [attributes["id"] for _, attributes in Outline(text).seen if "id" in attributes]
    assert len(set(names)) == len(names)
    assert "var(--ink)" in text
    assert "#0101" not in text
    for used in set(re.findall(r"url\(#([^)]*)\)", text)):
        assert used in names


def test_the_summary_says_it_all(text: str) -> None:
    words = html.unescape(re.sub(r"<[^>]*>", "", text[text.index("<header>") : text.index("</header>")]))
    for part in (
        "16 hosts",
        "209 of 240",
        "host5",
        "four groups",
        "40 us inside groups",
        "48.0% (45.0% to 51.0%",
        "50%",
    ):
        assert part in words
    assert "The bottleneck, for 60% of the time, is host0, in." in words
    assert "longest hop" not in words
    assert "One thing looks wrong: slow host" in words


def test_the_script_s_data_are_the_measurements() -> None:
    subject = facts(9, 3)
    data = data_of(page(subject))
    assert data["names"] == list(subject.names)
    packed = base64.b64decode(str(data["measured"]))
    assert np.array_equal(np.frombuffer(packed, "<f4").reshape(9, 9), subject.measured_us.astype("<f4"))
    assert subject.map is not None
    fitted = np.frombuffer(base64.b64decode(str(data["fitted"])), "<f4")
    assert np.array_equal(fitted, subject.map.fitted_us[np.triu_indices(9, 1)].astype("<f4"))
    assert data["orders"] == {"given": list(range(9)), "order": [0, 3, 6, 1, 4, 7, 2, 5, 8]}


def test_few_hosts_make_a_page_without_a_map() -> None:
    text = page(plain(2))
    assert Outline(text).open == []
    assert "No map." in text
    assert "No order." in text
    assert 'data-rows="given"' in text
    assert "data-map" not in re.sub(r"<style>.*?</style>|<script>.*?</script>", "", text, flags=re.DOTALL)


def test_report_finds_what_the_doctor_finds() -> None:
    """Whatever groups it draws."""
    latency, _ = racks([8] * 6, 1)
    latency[5] *= 4
    latency[:, 5] *= 4
    latency[7, 9] = np.nan
    subject = Network(Hosts(tuple(Host(f"h{k}", f"10.0.0.{k}") for k in range(48))), latency, None)
    findings = diagnose(subject)
    assert [item.kind for item in findings] == ["slow host", "unmeasured"]
    for groups in (None, [[f"h{k}" for k in range(48)]]):
        assert list(report_data_of(subject, ReportRequest(groups=groups)).remarks) == findings


def test_a_host_that_nobody_reached_is_a_finding_and_no_group() -> None:
    latency, _ = racks([4, 4], 1)
    latency[5], latency[:, 5] = np.nan, np.nan
    latency[5, 5] = 0.0
    subject = Network(Hosts(tuple(Host(f"h{k}", f"10.0.0.{k}") for k in range(8))), latency, None)
    data = report_data_of(subject, ReportRequest())
    assert [len(group) for group in data.measured_groups] in ([4, 3], [3, 4])
    text = page(data)
    assert "<dt>groups</dt><dd>2</dd>" in text
    assert "<dt>finding</dt><dd>1</dd>" in text
    assert "The hosts form two groups." in text
    assert "One thing looks wrong: unmeasured." in text


def test_only_runs_of_the_latency_model_have_costs_that_are_no_times() -> None:
    for model, count in ((None, 1), ("latency", 1), ("contention", 0)):
        data = replace(facts(), runs=(TimedOrder("given", 1000.0, (0.5,), model=model),))
        assert page(data).count("Under the latency model") == count
