"""Render the page: one HTML file that needs nothing else, no network, and no permission.

Its Content-Security-Policy lets run exactly the script and the style sheet it was written with (by their hashes, CSP
level 2) and load nothing; attributes of drawings may set styles. Everything from files is escaped.
"""

import base64
import hashlib
import html
import json
from importlib.resources import files
from typing import Any

import numpy as np

from plink.features.report import tables
from plink.features.report.blocks import between
from plink.features.report.charts import shares
from plink.features.report.data import ReportData
from plink.features.report.figures import figures, ratio_of
from plink.features.report.heat_map import MAX_HALF_PAGE_NAMES, MAX_NAMED_ROWS
from plink.features.report.words import blame, heading, summary
from plink.pictures import PAGE, Floats, Picture, inline

_WALK = "arrow keys walk over it"
_PAIR = (
    '<form class="pair" id="pair" hidden><label>from <select></select></label> <label>to <select></select></label>'
    "<p><output></output></p></form>"
)


def page(data: ReportData) -> str:
    """Return the whole HTML document."""
    style, script = (_shipped(name) for name in ("page.css", "page.js"))
    policy = (
        f"default-src 'none'; img-src data:; style-src-elem {_hash(style)}; style-src-attr 'unsafe-inline'; "
        f"script-src {_hash(script)}; base-uri 'none'; form-action 'none'"
    )
    title = html.escape(heading(data))
    text = "\n".join(
        (
            '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{title}</title>\n<style>{style}</style>\n</head>\n<body>",
            _header(data),
            *_sections(data),
            f"<footer>Made by plink from {html.escape(', '.join(data.sources))}.</footer>",
            '<div id="hover" aria-hidden="true" hidden></div>\n<div id="said" class="hidden" aria-live="polite"></div>',
            data_element(data),
            f"<script>{script}</script>\n</body>\n</html>\n",
        )
    )
    return text.encode(errors="replace").decode()  # JSON may hold half a character, which UTF-8 has not


def _shipped(name: str) -> str:
    return files("plink.features.report").joinpath(name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _header(data: ReportData) -> str:
    route, groups = data.route, len(data.measured_groups)
    key_figures = [
        ("hosts", f"{len(data.names):,}"),
        ("of the round trips measured", _percent(data.measured / data.possible)),
        *([("groups", f"{groups:,}")] if groups > 1 else []),
    ]
    if route is not None and route.gain is not None and not route.baseline_kept:
        low, high = route.gain.low, route.gain.high
        key_figures.append((f"saved by the order ({_percent(low)} to {_percent(high)})", _percent(route.gain.gain)))
    key_figures.append(("finding" if len(data.remarks) == 1 else "findings", f"{len(data.remarks):,}"))
    items = "".join(f"<div><dt>{html.escape(what)}</dt><dd>{value}</dd></div>" for what, value in key_figures)
    sentences = "".join(f"<p>{tables.prose(sentence)}</p>" for sentence in summary(data))
    return f'<header><h1>{html.escape(heading(data))}</h1>\n<dl class="figures">{items}</dl>\n{sentences}</header>'


def _percent(share: float) -> str:
    """Format a share in whole percents, and never as "100 %" what is not all."""
    return f"{share:.1%}" if 0.99 < share < 1 or 0 < share < 0.01 else f"{share:.0%}"


def _sections(data: ReportData) -> list[str]:
    pictures = figures(data, PAGE)
    heat = [_figure(pictures[name], f'data-rows="{name}"') if name in pictures else "" for name in ("given", "order")]
    more = "<details><summary>Every host, as a table</summary>" + tables.hosts(data) + "</details>"
    matrix = tables.matrix(data)
    if matrix:
        more += f"<details><summary>Every round trip, as a table</summary>{matrix}</details>"
    return [
        _section("Every pair of hosts", _cells(data), _side_by_side(data, *heat), _PAIR, more),
        _bandwidth_section(data, pictures),
        _hosts_section(data, pictures),
        _section("How far apart", "", _two_columns(_figure(pictures["histogram"]), tables.tiers(data), "map")),
        _section("What is missing", *_missing(data)),
        _section("What looks wrong", *_wrong(data)),
        *_runs_section(data, pictures),
    ]


def _cells(data: ReportData) -> str:
    """Explain the cells of the heat maps."""
    if not data.in_blocks:
        return "Each cell is one pair; hatched cells were not measured."
    sizes = [len(hosts) for hosts in data.blocks["order" if data.rearranged else "given"][0].members]
    each = f"{min(sizes)}" if min(sizes) == max(sizes) else f"{min(sizes)} to {max(sizes)}"
    return (
        f"{len(data.names):,} hosts are too many for a row each: they are put together in {len(sizes)} blocks of "
        f"{each} that follow each other, of one group where that can be. Each cell is the median round trip of two "
        "blocks; of hatched cells nothing was measured. The tables and all figures above are of every host."
    )


def _section(title: str, lead: str, *parts: str) -> str:
    lead_html = f'<p class="quiet">{tables.prose(lead)}</p>' if lead else ""
    return f"<section><h2>{html.escape(title)}</h2>{lead_html}{''.join(parts)}</section>"


def _two_columns(left: str, right: str, kind: str = "") -> str:
    return f'<div class="two {kind}"><div>{left}</div><div>{right}</div></div>'


def _side_by_side(data: ReportData, left: str, right: str) -> str:
    """Put what begins with a heat map beside it, or below where its names take the whole width."""
    wide = MAX_HALF_PAGE_NAMES < len(data.names) <= MAX_NAMED_ROWS
    return f"{left}{right}" if wide else _two_columns(left, right)


def _figure(picture: Picture, data: str = "") -> str:
    walk = f' tabindex="0" role="group" aria-label="{html.escape(picture.name)}: {_WALK}"' if data else ""
    return f"<figure {data}{walk}>{inline(picture)}</figure>"


def _bandwidth_section(data: ReportData, pictures: dict[str, Picture]) -> str:
    title, measured = "Bandwidths and shared links", data.bandwidths
    if not {"links", "bandwidth", "rates"} & pictures.keys():
        return _section(title, f"{measured.no_tiers} No bandwidths were measured.")
    route = data.route
    lead = measured.no_tiers or "What a group of hosts sends to all others goes over a link that its hosts share."
    if route is not None and route.bottleneck is not None:
        lead += f" {blame(data, route.bottleneck)}"
    elif measured.tiers and measured.size_bytes is None:
        lead += f" {data.no_route or 'The loads of this order are not known.'}"
    parts = []
    if "links" in pictures:
        parts += [_figure(pictures["links"]), _details("Every shared link, as a table", tables.links(data))]
    heat = _figure(pictures["bandwidth"], 'data-rows="order"') if "bandwidth" in pictures else ""
    rates = _figure(pictures["rates"]) if "rates" in pictures else ""
    if heat or rates:
        parts += [_side_by_side(data, *((heat, rates) if heat else (rates, tables.rates(data))))]
    if heat:
        parts.append(_details("Every host's bandwidth, as a table", tables.rates(data)))
    return _section(title, lead, *parts)


def _details(summary_text: str, content: str) -> str:
    return f"<details><summary>{html.escape(summary_text)}</summary>{content}</details>" if content else ""


def _hosts_section(data: ReportData, pictures: dict[str, Picture]) -> str:
    title, groups = "Where the hosts are", tables.groups(data)
    if data.map is None:
        return _section(title, data.no_map, groups)
    ratio = ratio_of(data.measured_us, data.map)
    residuals = _side_by_side(data, _figure(pictures["departures"], 'data-rows="order"'), tables.departing(data, ratio))
    lead = (
        "Hosts are placed so that their distances are the round trips, as nearly as can be; what remains between the "
        "two is noise, or a path that is not like the others."
    )
    return _section(title, lead, _two_columns(_figure(pictures["map"], "data-map"), groups, "map"), residuals)


def _missing(data: ReportData) -> tuple[str, str]:
    if not data.gaps:
        return "Nothing: every round trip was measured.", ""
    return "`plink probe --resume` measures them.", tables.gaps(data)


def _wrong(data: ReportData) -> tuple[str, str]:
    if not data.remarks:
        return "Nothing, going by the measurements.", ""
    return "From the measurements alone; `plink doctor` with the hosts file measures again what looks wrong.", (
        tables.remarks(data)
    )


def _runs_section(data: ReportData, pictures: dict[str, Picture]) -> list[str]:
    if not data.runs:
        return []
    lead = "Under the latency model a cost is a sum of round trips, not a time: only its ranking of orders counts."
    lead = lead if any(run.model in (None, "latency") for run in data.runs) else ""
    both = (
        _two_columns(_figure(pictures["achieved"]), tables.runs(data), "map")
        if "achieved" in pictures
        else tables.runs(data)
    )
    return [_section("What orders achieved", lead, both)]


def data_element(data: ReportData) -> str:
    """Return the ``<script type="application/json">``; no name in it can end the element or begin another.

    ``measured``: N x N float32, little-endian, NaN where unmeasured, base64; ``gbps``: bandwidths alike, or null;
    ``fitted``: the part of an N x N matrix above its diagonal, row by row, as float32 too, or null. ``orders``: hosts
    in the rows of each heat map. ``points``: of each host its place on the map as shares of its width and height from
    the lower left corner, or null.

    Of many hosts there are ``blocks`` instead of ``measured`` and ``fitted``: for each heat map the ``hosts`` of its
    blocks (how many, the first, the last) and R x R matrices of their round trips; ``nearest``: of each host the
    nearest one and its round trip, or null; ``shared``: hosts of a block share a point.
    """
    host_map = data.map
    document = {
        "names": list(data.names),
        "groups": (data.groups.of + 1).tolist(),
        "ranked": data.route is not None,
        "orders": {"given": list(range(len(data.names))), "order": data.shown_order().tolist()},
        "points": None if host_map is None else [_point(x, y) for x, y in shares(host_map).tolist()],
        **(_by_block(data) if data.in_blocks else _by_host(data)),
    }
    text = json.dumps(document, separators=(",", ":"), ensure_ascii=True)
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return f'<script type="application/json" id="data">{text}</script>'


def _by_host(data: ReportData) -> dict[str, Any]:
    host_map = data.map
    return {
        "blocks": None,
        "measured": _packed(data.measured_us),
        "gbps": None if data.bandwidths.pair_gbps is None else _packed(data.bandwidths.pair_gbps),
        "fitted": None if host_map is None else _packed(host_map.fitted_us[np.triu_indices(len(data.names), 1)]),
    }


def _by_block(data: ReportData) -> dict[str, Any]:
    host_map, blocks = data.map, {}
    for name, (rows, trips) in data.blocks.items():
        block: dict[str, Any] = {
            "hosts": [[len(hosts), int(hosts[0]), int(hosts[-1])] for hosts in rows.members],
            "groups": [sorted(set((data.groups.of[hosts] + 1).tolist())) for hosts in rows.members],
            "known": _packed(trips.pairs.astype(np.float64)),
        }
        for key in ("median", "low", "high"):
            block[key] = _packed(getattr(trips, key))
        if name == "order":
            block["ratio"] = (
                None if host_map is None else _packed(between(ratio_of(data.measured_us, host_map), rows).median)
            )
        blocks[name] = block
    slower = np.fmax(data.measured_us, data.measured_us.T)
    np.fill_diagonal(slower, np.nan)
    nearest = np.where(np.isnan(slower), np.inf, slower).argmin(axis=1)
    nearest_us = slower[np.arange(len(slower)), nearest]
    return {
        "blocks": blocks,
        "nearest": [
            None if us != us else [host, round(us, 1)]
            for host, us in zip(nearest.tolist(), nearest_us.tolist(), strict=True)
        ],
        "shared": host_map is not None and host_map.by_block,
    }


def _point(x: float, y: float) -> list[float] | None:
    return [round(x, 4), round(y, 4)] if x == x else None


def _packed(values: Floats) -> str:
    return base64.b64encode(np.ascontiguousarray(values, dtype="<f4").tobytes()).decode()
