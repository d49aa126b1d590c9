"""The picture of an elastic run: what is drawn where, by reading the SVG and the figure back."""

import io
import re
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.colors import to_hex
from matplotlib.text import Text
from PIL import Image

from plink.features.elastic.picture import iterations
from plink.pictures import PAPER, Picture, as_png, as_svg, drawing
from plink.records.elastic_history import History, history_of
from plink.records.elastic_log import (
    ControllerEvent,
    EndLogEntry,
    Entry,
    HostEvent,
    Iteration,
    RollBackLogEntry,
    StageChange,
)


def came(at: float, first: int, number: int, tier: Literal["reliable", "transient"], event: Any) -> list[HostEvent]:
    """Hosts h0, h1, ... a hundredth of a second apart."""
    return [HostEvent(at + k / 100, f"h{first + k}", first + k, tier, 1, event) for k in range(number)]


def figure_4_15() -> History:
    """Four reliable hosts; sixty transient ones join before iteration 11 and leave after iteration 34."""
    entries: list[Entry] = [ControllerEvent(0, "started"), *came(0, 0, 4, "reliable", "joined"), StageChange(0.1, 1)]
    at = 1.0
    for number in range(1, 46):
        many = 11 <= number <= 34
        if number == 11:
            entries += [*came(at, 4, 60, "transient", "joined"), StageChange(at + 0.7, 3)]
        if number == 35:
            entries += [*came(at, 4, 60, "transient", "warned"), *came(at + 1, 4, 60, "transient", "left")]
            entries += [StageChange(at + 1.7, 1)]
        seconds = 4.0 if many else 22.6 if number == 35 else 20.0
        at += seconds
        entries.append(Iteration(at, number, seconds, 3 if many else 1, 64 if many else 4, number))
    return history_of([*entries, EndLogEntry(at, at, 0)])


def rolled_back() -> History:
    """Iterations 3 and 4 are lost when a host fails during the fifth."""
    done = [Iteration(float(k), k, 1.0, 2, 3, k) for k in range(1, 5)]
    again = [Iteration(k + 4.0, k, 1.5, 2, 2, k) for k in range(3, 7)]
    events: list[Entry] = [HostEvent(4.5, "spot-1", 1, "transient", 1, "failed"), RollBackLogEntry(4.6, 2, 1, 2)]
    restarted = ControllerEvent(9.2, "restarted")
    warned = HostEvent(9.4, "spot-2", 2, "transient", 1, "warned", seconds=30.0)
    return history_of([*done, *events, *again[:2], restarted, warned, *again[2:]])


def texts(picture: Picture) -> list[str]:
    return re.findall(r"<text[^>]*>([^<]*)</text>", as_svg(picture))


def points(picture: Picture, gid: str) -> list[tuple[float, float]]:
    """The data of the points that go by that name."""
    (line,) = [line for ax in picture.figure.axes for line in ax.lines if line.get_gid() == gid]
    return [(float(x), float(y)) for x, y in zip(line.get_xdata(), line.get_ydata(), strict=True)]


def bands(picture: Picture) -> list[tuple[float, float, str]]:
    """Where the plot of the times is shaded, and how."""
    ax = picture.figure.axes[1]
    return [
        (round(p.get_x(), 3), round(p.get_x() + p.get_width(), 3), to_hex(p.get_facecolor()))
        for p in ax.patches
        if p is not ax.patch and p.get_x() > -1
    ]


def test_the_thesis_s_figure() -> None:
    picture = iterations(figure_4_15(), PAPER)
    drawn = points(picture, "counts")
    assert [x for x, _ in drawn] == list(range(1, 46))
    assert {y for x, y in drawn if 11 <= x <= 34} == {4.0}
    assert dict(drawn)[35] == 22.6
    assert [(begin, end) for begin, end, _ in bands(picture)] == [(0.5, 10.5), (10.5, 34.5), (34.5, 45.5)]
    labels = texts(picture)
    for text in ("joined", "warned", "left", "controller", "4 reliable", "started", "iteration", "workers",
                 "time per iteration (s)", "45 iterations on 64 hosts in 520 s",
                 "median 20 s in stage 1, 4 s in stage 3."):  # fmt: skip
        assert text in labels, text
    assert labels.count("60 transient") == 3
    assert [text for text in labels if text.startswith("stage")] == ["stage 1", "stage 3", "stage 1"]
    assert not {"failed", "rolled back", "let go", "lost to a roll-back"} & set(labels)
    assert "joined: 60 transient." in picture.alt


def test_over_seconds() -> None:
    history = figure_4_15()
    picture = iterations(history, PAPER, over_seconds=True)
    assert [x for x, _ in points(picture, "counts")] == [each.at for each in history.completed]
    assert [(begin, end) for begin, end, _ in bands(picture)] == [
        (0.0, 201.7), (201.7, 298.7), (298.7, pytest.approx(history.seconds, abs=0.001)),
    ]  # fmt: skip
    assert "seconds since the run began" in texts(picture)


def test_lost_and_redone_iterations_are_marked() -> None:
    picture = iterations(rolled_back(), PAPER)
    up = 1.0
    assert points(picture, "lost") == [(3, 1.0 * up), (4, 1.0 * up)]
    assert points(picture, "done") == [(3, 1.5 * up), (4, 1.5 * up)]
    assert [x for x, _ in points(picture, "counts")] == [1, 2, 5, 6]
    shapes = {line.get_marker() for ax in picture.figure.axes for line in ax.lines if line.get_gid()}
    assert shapes == {"o", "s", "x"}  # colours may be gone
    labels = texts(picture)
    for text in ("counts", "lost to a roll-back", "done again after a roll-back", "to clock 2", "failed",
                 "spot-1 (transient)", "spot-2 (transient, 30 s)", "restarted"):  # fmt: skip
        assert text in labels, text
    assert "two iterations lost to roll-backs" in picture.alt


@pytest.mark.parametrize("apart", [2.0, 4.0])
def test_names_hide_neither_each_other_nor_marks(apart: float) -> None:
    hosts = [e for k in range(int(100 / apart)) for e in came(k * apart, k, 1, "transient", "joined")]
    history = history_of([*hosts, *[Iteration(k * 1.0, k, 1.0, 1, 3, k) for k in range(1, 101)]])
    picture = iterations(history, PAPER)
    with drawing():
        picture.figure.set_dpi(160)  # as it is written
        picture.figure.draw_without_rendering()
    drawn = picture.figure.axes[2]
    boxes = sorted((Text.get_window_extent(text) for text in drawn.texts), key=lambda box: box.x0)
    marks = [drawn.transData.transform((line.get_xdata()[0], 0))[0] for line in drawn.lines]
    assert boxes or apart < 3  # then there is no room for any
    assert all(a.x1 < b.x0 for a, b in pairwise(boxes))
    assert not any(box.x0 < mark + 5 and mark - 5 < box.x1 for box in boxes for mark in marks)
    assert all(box.x1 <= picture.figure.bbox.width for box in boxes)


def test_the_shades_differ_in_black_and_white_on_a_light_ground() -> None:
    entries: list[Entry] = [Iteration(float(k), k, 1.0, k, 1, k) for k in (1, 2, 3)]  # type: ignore[arg-type]
    picture = iterations(history_of(entries), PAPER)
    grey = np.asarray(Image.open(io.BytesIO(as_png(picture))).convert("L"), dtype=int)
    row = grey[grey.shape[0] // 2]
    shades = [int(np.median(part)) for part in np.array_split(row[170:-30], 3)]
    assert shades[0] == 255
    assert shades[0] - shades[1] > 12
    assert shades[1] - shades[2] > 12
    assert shades[2] > 180
    assert as_svg(picture).count("stage ") >= 3


@settings(max_examples=25)
@given(
    st.lists(
        st.tuples(st.sampled_from(["done", "joined", "left", "back", "stage", "again"]), st.integers(0, 20)),
        max_size=12,
    ),
    st.booleans(),
)
def test_any_run_can_be_drawn(happened: list[tuple[str, int]], over_seconds: bool) -> None:
    """Also one whose clock stands still."""
    entries: list[Entry] = [Iteration(0.0, 0, 0.0, 1, 0, 0)]
    at = 0.0
    for what, number in happened:
        at += number % 3
        made: dict[str, Entry] = {
            "done": Iteration(at, number, at / 3, (number % 3 + 1), number, number),  # type: ignore[arg-type]
            "joined": HostEvent(at, f"$h{number}$", number, "transient", 1, "joined"),
            "left": HostEvent(at, f"$h{number}$", number, "transient", 1, "left"),
            "back": RollBackLogEntry(at, number, 1, 0),
            "stage": StageChange(at, (number % 3 + 1)),  # type: ignore[arg-type]
            "again": ControllerEvent(at, "restarted"),
        }
        entries.append(made[what])
    assert as_svg(iterations(history_of(entries), PAPER, over_seconds)).startswith("<?xml")
