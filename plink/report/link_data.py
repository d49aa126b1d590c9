"""Data of the links that groups of hosts share: a tree, with capacities and what an order loads on each link."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from plink.model.network import Matrix

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class LinkDirection:
    """One direction of a shared link. ``gbps``: what was measured, None where nothing was; ``low``, ``high``: of the
    repeats, None where unknown. ``limited_by``: ``link``; ``hosts``, ``groups`` (of the tier below) or ``others``
    (links of the other groups): the link carries at least so much; empty where unknown. ``assumed_gbps``: what the
    cost model takes where nothing was measured, None where it takes no limit. ``load_bytes``: what one collective sends
    over it, None without an order; ``busy_us``: the time this takes by the cost model, None where the link is no
    limit."""

    gbps: float | None
    low: float | None = None
    high: float | None = None
    limited_by: str = ""
    assumed_gbps: float | None = None
    load_bytes: float | None = None
    busy_us: float | None = None

    @property
    def is_least(self) -> bool:
        """Return whether the link carries at least what was measured."""
        return self.limited_by not in ("", "link")


@dataclass(frozen=True)
class SharedLink:
    """The link of one group. ``members``: its hosts; ``parent``: the tier and the number of the nearest group above
    that holds it, None where there is none; ``reason``: why something was not measured; ``confidence``: how sure it is
    that these hosts are a group, 0 to 1, None where unknown."""

    members: tuple[int, ...]
    parent: tuple[int, int] | None
    out: LinkDirection
    into: LinkDirection
    reason: str = ""
    confidence: float | None = None


@dataclass(frozen=True)
class Bandwidths:
    """Measured rates, Gbit/s. ``tiers``: shared links, the innermost tier first; empty where none were measured, with
    ``no_tiers``, a sentence. ``size_bytes``: of the vector that loads are for. ``pair_gbps``, shape (N, N), or None;
    ``out_gbps``, ``in_gbps``, shape (N,): the best that each host sent and received, NaN where unknown; None where
    nothing was measured. ``confidences``: how sure each tier is, 0 to 1, None where unknown."""

    tiers: tuple[tuple[SharedLink, ...], ...] = ()
    no_tiers: str = ""
    size_bytes: float | None = None
    pair_gbps: Matrix | None = None
    out_gbps: Floats | None = None
    in_gbps: Floats | None = None
    confidences: tuple[float | None, ...] = ()

    @property
    def busiest_us(self) -> float:
        """Return the longest time that a shared link is busy with one collective; 0 where none is known."""
        directions = [way for tier in self.tiers for link in tier for way in (link.out, link.into)]
        return max((way.busy_us for way in directions if way.busy_us is not None), default=0.0)


@dataclass(frozen=True)
class ProbeSummary:
    """When and how round trips were measured. ``measured_at``: as the file has it, empty where unknown. ``methods``:
    with the number of round trips each. ``probes``: answers a pair, the fewest, the median and the most, None where
    unknown; ``answers``: of all pairs. ``plan``: which pairs were measured (``all``, ``adaptive``). ``assumed_from``:
    the topology file's format where nothing was measured."""

    measured_at: str = ""
    methods: tuple[tuple[str, int], ...] = ()
    probes: tuple[int, int, int] | None = None
    answers: int = 0
    plan: str = ""
    assumed_from: str = ""
