"""Choose the figures of a report, give them titles, and write them: PNG for slides and chats, SVG for print."""

import io
from pathlib import Path

import numpy as np

from plink.errors import UsageError
from plink.features.report.blocks import between
from plink.features.report.charts import achieved, histogram, host_map, host_rates
from plink.features.report.colours import scale_of
from plink.features.report.data import HostMap, ReportData
from plink.features.report.heat_map import MIXED, HeatMapRows, Shades, heat_map
from plink.features.report.link_tree import link_tree
from plink.features.report.words import collective
from plink.model.network import Matrix
from plink.model.storage import check_writable, write_bytes
from plink.pictures import PAPER, Palette, Picture, as_png, as_svg

_GAP_PIXELS = 40  # between pictures of one file
_NEGLIGIBLE_US = 1e-2  # what a fit says of hosts that are nothing apart


def figures(data: ReportData, palette: Palette) -> dict[str, Picture]:
    """Draw every figure that the data have, by name: ``given``, ``order``, ``links``, ``bandwidth``, ``rates``,
    ``map``, ``departures``, ``histogram``, ``achieved``."""
    scale = scale_of(data.values_us())
    shades = Shades.of_round_trips(scale)
    baseline, ordered = heat_map_rows(data, "given"), heat_map_rows(data, "order")
    measured = {
        name: data.blocks[name][1].median if data.in_blocks else data.measured_us for name in ("given", "order")
    }
    caption = ("Round trips, hosts as given", _groups_caption(data))
    pictures = [heat_map("given", _of_blocks(data, caption), measured["given"], baseline, shades, palette)]
    if data.rearranged:
        caption = _of_blocks(data, order_caption(data))
        pictures.append(heat_map("order", caption, measured["order"], ordered, shades, palette))
    pictures += _bandwidth_pictures(data, ordered, palette)
    if data.map is not None:
        pictures.append(host_map(data, data.map, palette))
        error_text = f"{data.map.held_out_error:.0%} is usual on pairs it has not seen"
        signs = "orange: slower than fitted, purple: faster"
        caption = ("What the embedding does not explain", signs if data.in_blocks else f"{signs}; {error_text}")
        ratio = ratio_of(data.measured_us, data.map)
        if data.in_blocks:
            ratio = between(ratio, data.blocks["order"][0]).median
        pictures.append(
            heat_map("departures", _of_blocks(data, caption), ratio, ordered, Shades.of_departures(ratio), palette)
        )
    pictures.append(histogram(data, scale, palette))
    if any(run.predicted_us is not None for run in data.runs):
        pictures.append(achieved(data.runs, palette))
    return {picture.name: picture for picture in pictures}


def _bandwidth_pictures(data: ReportData, ordered: HeatMapRows, palette: Palette) -> list[Picture]:
    pictures, measured = [], data.bandwidths
    if measured.tiers:
        pictures.append(link_tree(data, palette))
    if measured.pair_gbps is not None:
        gbps = measured.pair_gbps
        scale = scale_of(gbps[np.isfinite(gbps) & ~np.eye(len(gbps), dtype=bool)])
        if data.in_blocks:
            gbps = between(gbps, data.blocks["order"][0]).median
        caption = ("What each host sends to each other", "one pair at a time; bright: slow")
        pictures.append(
            heat_map("bandwidth", _of_blocks(data, caption), gbps, ordered, Shades.of_bandwidths(scale), palette)
        )
    if measured.out_gbps is not None:
        pictures.append(host_rates(data, palette))
    return pictures


def heat_map_rows(data: ReportData, name: str) -> HeatMapRows:
    """Return the rows of the heat map ``given``, as hosts stand in the file; or of ``order``: by place in the order,
    group by group where there is none."""
    if name == "given":
        order, counted = np.arange(len(data.names)), "position in the file"
    else:
        order = data.shown_order()
        counted = "place in the order" if data.route is not None else "position when sorted by group"
    if not data.in_blocks:
        return HeatMapRows(order, data.names, data.groups.of, counted)
    members = data.blocks[name][0].members
    groups = [set(data.groups.of[hosts].tolist()) for hosts in members]
    return HeatMapRows(
        np.arange(len(members)),
        tuple(data.names[hosts[0]] for hosts in members),
        np.array([group.pop() if len(group) == 1 else MIXED for group in groups], dtype=np.intp),
        f"block of hosts, by {counted}",
        whole=False,
    )


def _of_blocks(data: ReportData, caption: tuple[str, str]) -> tuple[str, str]:
    """Return a heat map's title and second line, which says so where a cell is no pair of hosts."""
    return (caption[0], f"{caption[1]}; cells are medians of blocks of hosts") if data.in_blocks else caption


def ratio_of(measured_us: Matrix, host_map: HostMap) -> Matrix:
    """Return measured over fitted round trips, shape (N, N), NaN where either is unknown or one of them is none."""
    comparable = (
        np.isfinite(host_map.fitted_us) & (np.nan_to_num(host_map.fitted_us) > 0) & (np.nan_to_num(measured_us) > 0)
    )
    ratio = np.full(measured_us.shape, np.nan)
    ratio[comparable] = measured_us[comparable] / host_map.fitted_us[comparable]
    ratio[(measured_us == 0) & (host_map.fitted_us < _NEGLIGIBLE_US)] = 1.0
    np.fill_diagonal(ratio, np.nan)
    return ratio


def order_caption(data: ReportData) -> tuple[str, str]:
    """Return the title and the second line of the heat map in plink's order."""
    if data.route is None:
        return "The same round trips, hosts sorted by group", _groups_caption(data)
    if (np.diff(data.route.order) > 0).all():  # as the hosts stand
        return "The same round trips in plink's order", "it is the given order: nothing better was found"
    return f"The same round trips in plink's order for {collective(data.route.algo)}", _blocks(data)


def _blocks(data: ReportData) -> str:
    """Describe whether the order keeps groups together."""
    number, labels = data.groups.number, data.groups.of[data.shown_order()]
    blocks = 1 + int((labels[1:] != labels[:-1]).sum())
    if number == 1:
        return "no groups stand out"
    return "each group is one block" if blocks == number else f"the {number} groups are in {blocks} blocks"


def _groups_caption(data: ReportData) -> str:
    number = data.groups.number
    if data.in_blocks and number > 1:
        return f"{number} groups"
    return f"edges coloured by the {number} groups" if number > 1 else "no groups stand out"


def check_target(target: Path) -> None:
    """Refuse before anything is drawn what could not be written after it.

    :raises UsageError: when it is no folder and its name does not end in .png, or its folder is missing.
    :raises PlinkError: when nothing can be written there.
    """
    if target.is_dir():
        check_writable(target / "given.png")
        return
    if target.suffix.lower() != ".png":
        raise UsageError(f"--png {target}: there is no such folder; make it, or name a file that ends in .png")
    if not target.parent.is_dir():
        raise UsageError(f"--png {target}: there is no folder {target.parent}")
    check_writable(target)


def write_pictures(data: ReportData, target: Path) -> list[Path]:
    """Write the pictures and return the files: in a folder each as PNG and SVG, else all in the one PNG file, two
    beside each other.

    :raises PlinkError: when one cannot be written.
    """
    pictures = figures(data, PAPER)
    if not target.is_dir():
        write_bytes(target, _side_by_side([as_png(picture) for picture in pictures.values()]))
        return [target]
    written = []
    for name, picture in pictures.items():
        for kind, content in ((".png", as_png(picture)), (".svg", as_svg(picture).encode())):
            write_bytes(target / (name + kind), content)
            written.append(target / (name + kind))
    return written


def _side_by_side(pictures: list[bytes]) -> bytes:
    """Return PNG pictures as one, in two columns, each next picture in the shorter one."""
    from matplotlib.image import imread, imsave

    images = [imread(io.BytesIO(picture))[:, :, :3] for picture in pictures]
    width = max(image.shape[1] for image in images) + _GAP_PIXELS
    heights, places = [0, 0], list[tuple[int, int]]()
    for image in images:
        column = int(heights[1] < heights[0])
        places.append((heights[column], column * width))
        heights[column] += image.shape[0] + _GAP_PIXELS
    page = np.ones((max(heights) + _GAP_PIXELS, width * min(2, len(images)) + _GAP_PIXELS, 3), dtype=np.float32)
    for image, place in zip(images, places, strict=True):
        top, left = place[0] + _GAP_PIXELS, place[1] + _GAP_PIXELS
        page[top : top + image.shape[0], left : left + image.shape[1]] = image
    content = io.BytesIO()
    imsave(content, page, format="png")
    return content.getvalue()
