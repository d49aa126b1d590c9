"""The page in a real browser: nothing complains, nothing is fetched, and the pair under the pointer is told."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from plink.features.report.page import page
from tests.features.report.chromium import PROGRAM, Chromium, chromium
from tests.features.report.subjects import facts, plain, troubled

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="needs chromium")

FRAME = "document.querySelector('figure[{0}] [id^=\"frame-\"]').getBoundingClientRect()"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    with chromium(tmp_path_factory.mktemp("browser")) as running:
        yield running


@pytest.fixture
def written(tmp_path: Path) -> Path:
    (tmp_path / "report.html").write_text(page(troubled()))
    return tmp_path / "report.html"


def frame(browser: Chromium, figure: str) -> dict[str, float]:
    """Where the axes of a figure are, after it was scrolled into the window."""
    browser.value(f"document.querySelector('figure[{figure}]').scrollIntoView()")
    box: dict[str, float] = browser.value(
        f"(b => ({{x: b.left, y: b.top, w: b.width, h: b.height}}))({FRAME.format(figure)})"
    )
    return box


def hovered(browser: Chromium) -> list[str]:
    """The lines beside the pointer."""
    lines: list[str] = browser.value("[...document.querySelectorAll('#hover:not([hidden]) p')].map(p => p.textContent)")
    return lines


@pytest.mark.parametrize(("hosts", "dark"), [(2, False), (16, True)])
def test_no_complaint_and_no_request(browser: Chromium, tmp_path: Path, hosts: int, dark: bool) -> None:
    browser.console_messages.clear()
    browser.requested_urls.clear()
    (tmp_path / "report.html").write_text(page(plain(2) if hosts == 2 else facts(hosts, 4)))
    browser.open(tmp_path / "report.html", dark=dark)
    browser.picture(tmp_path / "whole.png")
    assert browser.console_messages == []
    assert [url for url in browser.requested_urls if not url.startswith("data:")] == [
        (tmp_path / "report.html").as_uri()
    ]
    assert browser.value("document.getElementById('pair').hidden") is False  # the script ran
    background = browser.value("getComputedStyle(document.body).backgroundColor")
    assert background == ("rgb(20, 23, 27)" if dark else "rgb(255, 255, 255)")
    text = browser.value("getComputedStyle(document.querySelector('svg text')).fill")
    assert text == ("rgb(163, 173, 185)" if dark else "rgb(89, 98, 109)")


def test_pair_under_the_pointer_is_shown(browser: Chromium, written: Path) -> None:
    subject = troubled()
    browser.open(written)
    box = frame(browser, 'data-rows="given"')
    browser.point(box["x"] + 4.5 / 16 * box["w"], box["y"] + 1.5 / 16 * box["h"])
    lines = hovered(browser)
    assert lines[0] == "host1 → host4"
    assert lines[1].startswith(f"measured {subject.measured_us[1, 4]:.1f} us; back {subject.measured_us[4, 1]:.1f} us")
    assert lines[2].startswith("fitted 95.0 us; ")
    browser.point(box["x"] + 3.5 / 16 * box["w"], box["y"] + 2.5 / 16 * box["h"])
    assert hovered(browser)[1].startswith("measured not measured; back ")
    browser.point(box["x"] - 60, box["y"] + 5)
    assert hovered(browser) == []
    box = frame(browser, 'data-rows="order"')
    browser.point(box["x"] + 0.5 / 16 * box["w"], box["y"] + 5.5 / 16 * box["h"])
    assert hovered(browser)[0] == "host5 → host0"


def test_host_under_the_pointer_is_shown(browser: Chromium, written: Path) -> None:
    browser.open(written)
    box = frame(browser, "data-map")
    x, y = browser.value("JSON.parse(document.getElementById('data').textContent).points[7]")
    browser.point(box["x"] + x * box["w"], box["y"] + (1 - y) * box["h"])
    lines = hovered(browser)
    assert lines[0].startswith("host")
    assert lines[1].startswith("group 4, place ")


def test_all_of_it_is_reached_by_keyboard(browser: Chromium, written: Path) -> None:
    browser.open(written)
    browser.value("document.querySelector('figure[data-rows=\"given\"]').focus()")
    browser.press("ArrowRight")
    browser.press("ArrowDown")
    browser.press("ArrowRight")
    announced = browser.value("document.getElementById('said').textContent")
    assert announced.startswith("host1 → host2, measured ")
    browser.press("Escape")
    assert hovered(browser) == []
    browser.value("document.querySelector('figure[data-map]').focus()")
    browser.press("ArrowRight")
    assert browser.value("document.getElementById('said').textContent").startswith("host0, group 1")
    browser.value("document.querySelector('#pair select').focus()")
    browser.press("End")
    assert browser.value("document.querySelector('#pair output').textContent").startswith("host15 → host1; ")


def test_it_prints(browser: Chromium, written: Path) -> None:
    browser.open(written, dark=True)
    paper = browser.printed()
    assert paper.startswith(b"%PDF")
    assert len(paper) > 20_000
    browser.call("Emulation.setEmulatedMedia", media="print")
    assert browser.value("getComputedStyle(document.querySelector('#pair')).display") == "none"
    assert browser.value("getComputedStyle(document.querySelector('svg text')).fill") == "rgb(68, 75, 84)"
    browser.call("Emulation.setEmulatedMedia", media="")


def test_nothing_sticks_out_of_the_window(browser: Chromium, written: Path) -> None:
    for width in (360, 1280):
        browser.open(written, width=width)
        assert browser.value("document.documentElement.scrollWidth") <= width


@pytest.mark.extended
def test_many_hosts_are_reported_by_block(browser: Chromium, tmp_path: Path) -> None:
    browser.console_messages.clear()
    subject = facts(700, 20)
    (tmp_path / "report.html").write_text(page(subject))
    browser.open(tmp_path / "report.html")
    box = frame(browser, 'data-rows="order"')
    rows, trips = subject.blocks["order"]
    number = len(rows.members)
    browser.point(box["x"] + 4.5 / number * box["w"], box["y"] + 1.5 / number * box["h"])
    lines = hovered(browser)
    names = [f"{len(m)} hosts, host{m[0]} to host{m[-1]}" for m in (rows.members[1], rows.members[4])]
    assert lines[0] == " → ".join(names)
    assert lines[1].startswith(f"median {trips.median[1, 4]:.1f} us (")
    assert browser.value("document.querySelectorAll('#pair option').length") == 2 * number
    assert f" → {names[0]}; median " in browser.value("document.querySelector('#pair output').textContent")
    browser.value("document.querySelector('figure[data-map]').focus()")
    browser.press("ArrowRight")
    assert browser.value("document.getElementById('said').textContent").startswith("host0, group 1")
    assert browser.console_messages == []
