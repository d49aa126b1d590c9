"""The drawings: colours mean what the scale says, rows are whose names stand beside them, labels do not overlap."""

import base64
import io
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from plink.errors import UsageError
from plink.features.report.colours import MARKS, group_colour, group_mark, scale_of
from plink.features.report.figures import check_target, figures, write_pictures
from plink.pictures import PAGE, PAPER, inline, place, short_names
from tests.features.report.subjects import facts, plain, troubled


def cells(svg: str) -> np.ndarray:
    """The pixels of a heat map, shape (N, N, 4)."""
    match = re.search(r'<image xlink:href="data:image/png;base64,([^"]*)"[^>]*id="\w+-(?:cells|smooth)"', svg)
    assert match is not None
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(match[1]))).convert("RGBA"))


def brightness(pixels: np.ndarray) -> np.ndarray:
    """Viridis grows brighter; shape (N, N)."""
    return pixels[:, :, :3].astype(float) @ [0.3, 0.6, 0.1]


def test_near_is_dark_and_far_is_bright_in_the_rows_they_belong_to() -> None:
    subject = facts(12, 3)
    terminal_lines = figures(subject, PAGE)
    for name, order in (("given", np.arange(12)), ("order", subject.shown_order())):
        pixels = cells(inline(terminal_lines[name]))
        near = subject.measured_us[np.ix_(order, order)] < 60
        off = ~np.eye(12, dtype=bool)
        assert brightness(pixels)[near & off].max() < brightness(pixels)[~near].min()
        assert (pixels[np.eye(12, dtype=bool), 3] == 0).all()
        assert (pixels[off, 3] == 255).all()


def test_what_was_not_measured_is_seen_through() -> None:
    subject = troubled()
    terminal_lines = inline(figures(subject, PAGE)["given"])
    pixels = cells(terminal_lines)
    assert ((pixels[:, :, 3] == 0) == (np.isnan(subject.measured_us) | np.eye(16, dtype=bool))).all()
    assert "<pattern" in terminal_lines
    assert "<pattern" not in inline(figures(facts(16, 4), PAGE)["given"])


def test_a_large_picture_is_no_larger_than_its_colours_need() -> None:
    terminal_lines = inline(figures(facts(128, 8), PAGE)["given"])
    assert len(terminal_lines) < 60_000


def test_a_scale_spans_all_but_the_farthest_and_no_noise() -> None:
    values = np.append(np.linspace(40, 100, 999), 5000.0)
    scale = scale_of(values)
    assert scale.beyond_high
    assert scale.high < 110
    assert scale_of(np.full(10, 60.0)).high / scale_of(np.full(10, 60.0)).low == pytest.approx(1.5)
    assert scale_of(np.array([0.0, 0.0])).low == 1.0
    assert scale.share(np.array([0.0, scale.low, scale.high, 1e9])).tolist() == [0.0, 0.0, 1.0, 1.0]


def test_groups_differ_by_colour_or_mark() -> None:
    looks = {(group_colour(group), group_mark(group)) for group in range(70)}
    assert len(looks) == 70
    assert len({mark for _, mark in MARKS}) == len(MARKS)


def test_labels_do_not_overlap_and_stay_inside() -> None:
    rng = np.random.default_rng(1)
    at = rng.uniform(0, 300, (40, 2))
    texts = [f"node-{k}" for k in range(40)]
    boxes = []
    for spot, text in zip(place(at, texts, (300, 300), at), texts, strict=True):
        if spot is not None:
            width = len(text) * 8 * 0.64
            left = {"left": spot[0], "right": spot[0] - width, "center": spot[0] - width / 2}[spot[2]]
            boxes.append((left, spot[1] - 4.8, left + width, spot[1] + 4.8))
    assert len(boxes) > 15
    for k, a in enumerate(boxes):
        assert min(a[:2]) >= -1e-9
        assert max(a[2:]) <= 300 + 1e-9
        assert not any(a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3] for b in boxes[:k])


def test_few_hosts_have_fewer_pictures() -> None:
    assert list(figures(plain(2), PAPER)) == ["given", "histogram"]


@pytest.mark.parametrize(("hosts", "named"), [(16, True), (64, True), (65, False)])
def test_names_on_both_axes_up_to_64_hosts(hosts: int, named: bool) -> None:
    ax = figures(facts(hosts, 4), PAPER)["order"].figure.axes[0]
    order = [f"host{k}" for k in facts(hosts, 4).shown_order().tolist()]
    for axis in (ax.xaxis, ax.yaxis):
        labels = [label.get_text() for label in axis.get_ticklabels()]
        assert (labels == order) == named
    assert all(label.get_fontsize() >= 6 for label in ax.xaxis.get_ticklabels())


@pytest.mark.parametrize(
    ("names", "shown"),
    [
        (["a", "b"], ["a", "b"]),
        (["rack1-node01.dc.example.org", "rack2-node01.dc.example.org"], ["rack1-node01", "rack2-node01"]),
        (["a-very-long-cluster-name-01", "a-very-long-cluster-name-12"], ["…01", "…12"]),
        (["x" * 40, "y"], ["xxxxx…xxxxxxxxxx", "y"]),
        (["same-name-of-all-hosts", "same-name-of-all-hosts"], ["…hosts", "…hosts"]),
        ([".example-domain.org.", "b.example-domain.org."], [".exam…omain.org.", "b.exa…omain.org."]),
    ],
)
def test_shortened_names_stay_distinct(names: list[str], shown: list[str]) -> None:
    assert short_names(names, 16) == shown


def test_pictures_as_files(tmp_path: Path) -> None:
    names = ["given", "order", "map", "departures", "histogram", "achieved"]
    written = write_pictures(troubled(), tmp_path)
    assert [path.name for path in written] == [f"{name}.{kind}" for name in names for kind in ("png", "svg")]
    for path in written[::2]:
        image = Image.open(path).convert("RGB")
        assert image.width > 900
        assert image.getpixel((image.width - 1, image.height - 1)) == (255, 255, 255)
    for path in written[1::2]:
        assert "var(--" not in path.read_text()
        assert "<text" in path.read_text()
    assert write_pictures(troubled(), tmp_path / "all.png") == [tmp_path / "all.png"]
    every = Image.open(tmp_path / "all.png").convert("RGB")
    images = [Image.open(path).convert("RGB") for path in written[::2]]
    assert every.width >= 2 * max(image.width for image in images)
    assert every.height >= sum(image.height for image in images) / 2
    (width, height), edge = images[0].size, 40
    assert every.crop((edge, edge, edge + width, edge + height)).tobytes() == images[0].tobytes()


@pytest.mark.parametrize("name", ["nowhere/x.png", "x.pdf", "x.svg"])
def test_a_target_that_cannot_be_written_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--png"):
        check_target(tmp_path / name)
