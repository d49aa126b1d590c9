"""What a page's script looks up: names and matrices as JSON inside a script element that is never run."""

import base64
import json
from typing import Any

import numpy as np
import numpy.typing as npt

from plink.report.album import ratio_of
from plink.report.blocks import between
from plink.report.facts import Facts
from plink.report.host_map import shares


def embedded(facts: Facts) -> str:
    """``<script type="application/json">``: no name in it can end the element or begin another.

    ``measured``: N x N float32, little-endian, NaN where unmeasured, base64; ``fitted``: the part of an N x N matrix
    above its diagonal, row by row, as float32 too, or null. ``orders``: hosts in the rows of each heat map. ``points``:
    of each host its place on the map as shares of its width and height from the lower left corner, or null.

    Of many hosts there are ``blocks`` instead of ``measured`` and ``fitted``: for each heat map the ``hosts`` of its
    blocks (how many, the first, the last) and R x R matrices of their round trips; ``nearest``: of each host the
    nearest one and its round trip, or null; ``shared``: hosts of a block share a point.
    """
    there = facts.map
    document = {
        "names": list(facts.names),
        "groups": (facts.groups.of + 1).tolist(),
        "ranked": facts.route is not None,
        "orders": {"given": list(range(len(facts.names))), "order": facts.shown_order().tolist()},
        "points": None if there is None else [_point(x, y) for x, y in shares(there).tolist()],
        **(_by_block(facts) if facts.many else _by_host(facts)),
    }
    text = json.dumps(document, separators=(",", ":"), ensure_ascii=True)
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return f'<script type="application/json" id="data">{text}</script>'


def _by_host(facts: Facts) -> dict[str, Any]:
    there = facts.map
    return {
        "blocks": None,
        "measured": _packed(facts.measured_us),
        "fitted": None if there is None else _packed(there.fitted_us[np.triu_indices(len(facts.names), 1)]),
    }


def _by_block(facts: Facts) -> dict[str, Any]:
    there, blocks = facts.map, {}
    for name, (rows, trips) in facts.blocks.items():
        found: dict[str, Any] = {
            "hosts": [[len(hosts), int(hosts[0]), int(hosts[-1])] for hosts in rows.members],
            "groups": [sorted(set((facts.groups.of[hosts] + 1).tolist())) for hosts in rows.members],
            "known": _packed(trips.known.astype(np.float64)),
        }
        for key in ("median", "low", "high"):
            found[key] = _packed(getattr(trips, key))
        if name == "order":
            found["ratio"] = (
                None if there is None else _packed(between(ratio_of(facts.measured_us, there), rows).median)
            )
        blocks[name] = found
    slower = np.fmax(facts.measured_us, facts.measured_us.T)
    np.fill_diagonal(slower, np.nan)
    nearest = np.where(np.isnan(slower), np.inf, slower).argmin(axis=1)
    least = slower[np.arange(len(slower)), nearest]
    return {
        "blocks": blocks,
        "nearest": [
            None if us != us else [host, round(us, 1)]
            for host, us in zip(nearest.tolist(), least.tolist(), strict=True)
        ],
        "shared": there is not None and there.by_block,
    }


def _point(x: float, y: float) -> list[float] | None:
    return [round(x, 4), round(y, 4)] if x == x else None


def _packed(values: npt.NDArray[np.float64]) -> str:
    return base64.b64encode(np.ascontiguousarray(values, dtype="<f4").tobytes()).decode()
