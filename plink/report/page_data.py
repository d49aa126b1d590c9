"""Embed the data of a page's script: names and matrices as JSON inside a script element that never runs."""

import base64
import json
from typing import Any

import numpy as np
import numpy.typing as npt

from plink.report.blocks import between
from plink.report.figures import ratio_of
from plink.report.host_map import shares
from plink.report.report_data import ReportData


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


def _packed(values: npt.NDArray[np.float64]) -> str:
    return base64.b64encode(np.ascontiguousarray(values, dtype="<f4").tobytes()).decode()
