"""What the cost models know of a network: round trips, rates of hosts, and what groups of hosts share."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from plink.errors import NoAnswer
from plink.network import Matrix, Network
from solvers.costs.latency import completed
from solvers.grouping.tiers import nearest_tier

ASSUMED_GBPS = 10.0  # where nobody measured a rate: most clouds' smallest "up to" figure
BYTES_PER_US = 125.0  # of one Gbit/s

Vector = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Fabric:
    """N hosts in G groups.

    ``rtt_us``, shape (N, N): symmetrised round trips, NaN where unknown. ``pair_gbps``, same shape or None: what a
    pair gets alone, from row to column. ``host_out_gbps``, ``host_in_gbps``, shape (N,): a host's own rates.
    ``group_of``, shape (N,); ``group_out_gbps``, ``group_in_gbps``, shape (G,): what a group shares, infinite where its
    hosts are the limit. ``capacities``: where these come from, for people.
    """

    names: tuple[str, ...]
    rtt_us: Matrix
    pair_gbps: Matrix | None
    host_out_gbps: Vector
    host_in_gbps: Vector
    group_of: npt.NDArray[np.intp]
    group_out_gbps: Vector
    group_in_gbps: Vector
    capacities: str

    @property
    def measured(self) -> bool:
        """Whether somebody measured what groups share."""
        return self.capacities == MEASURED

    def require(self, values: Vector, source: npt.NDArray[np.intp], target: npt.NDArray[np.intp], option: str) -> None:
        """Refuse a price in which an unmeasured pair plays a part.

        :raises NoAnswer: naming the first such pair and the command that would measure it.
        """
        missing = np.flatnonzero(np.isnan(values))
        if len(missing):
            a, b = (self.names[int(ends[missing[0]])] for ends in (source, target))
            what = "bandwidth" if option else "round trip"
            raise NoAnswer(
                f"the {what} {a} - {b} is needed and was not measured; `plink probe HOSTS --resume{option}` measures it"
            )


MEASURED = "measured"


def fabric_of(network: Network, predicted_us: Matrix | None = None) -> Fabric:
    """What a network file says, and what it lets us infer.

    Groups and what they share are taken from ``shared_links``. Without them groups are the nearest tier of the
    latencies, and a group's way out is taken to be as much slower than its hosts together as its hosts are nearer to
    each other than to the others: a TCP stream's rate goes with one over its round trip (PLink thesis, 5.2.2).
    """
    rtt = completed(network.latency_us, predicted_us)
    n = len(network.hosts)
    rows = _rows(network.details.get("shared_links"), network.hosts.names)
    pair = network.bandwidth_gbps
    if not rows:
        return _inferred(network, rtt, pair)
    group_of = np.full(n, -1, dtype=np.intp)
    out, into, alone = [], [], np.full(n, np.nan)
    for number, (members, row) in enumerate(rows):
        group_of[members] = number
        out.append(_capacity(row, "out"))
        into.append(_capacity(row, "in"))
        alone[members] = _one_flow(row)
    single = np.flatnonzero(group_of == -1)  # nothing was heard of them in time: a group each, nothing shared
    group_of[single] = len(rows) + np.arange(len(single))
    shared = np.concatenate([np.array(out), np.full(len(single), np.inf)])
    shared_in = np.concatenate([np.array(into), np.full(len(single), np.inf)])
    host_out, host_in = _host_rates(pair, alone)
    return Fabric(
        tuple(network.hosts.names), rtt, pair, host_out, host_in, group_of, shared, shared_in, MEASURED
    )  # fmt: skip


def _rows(value: Any, names: list[str]) -> list[tuple[list[int], dict[str, Any]]]:
    """Groups whose capacities are known, as (indices, row); anything else in their place is passed over."""
    index = {name: i for i, name in enumerate(names)}
    found = []
    for row in value if isinstance(value, list) else []:
        members = row.get("members") if isinstance(row, dict) else None
        if not isinstance(members, list) or not all(name in index for name in members):
            continue
        if all(isinstance(row.get(f"{way}_gbps"), int | float) and row[f"{way}_gbps"] > 0 for way in ("out", "in")):
            found.append(([index[name] for name in members], row))
    return found


def _capacity(row: dict[str, Any], way: str) -> float:
    """A group's capacity, Gbit/s; infinite where its hosts, not a link, were what ended the growth."""
    return float("inf") if row.get(f"{way}_limited_by") == "hosts" else float(row[f"{way}_gbps"])


def _one_flow(row: dict[str, Any]) -> float:
    """What one flow got alone: the rate of a host."""
    alone = [row[key] for key in ("out_one_flow_gbps", "in_one_flow_gbps") if isinstance(row.get(key), int | float)]
    if alone:
        return float(max(alone))
    each = [row[f"{way}_gbps"] / max(1, row.get(f"{way}_flows", 1)) for way in ("out", "in")]
    return float(max(each))


def _host_rates(pair: Matrix | None, alone: Vector) -> tuple[Vector, Vector]:
    """(out, in) of every host: its best pair if pairs were measured, or one flow, or the usual, or an assumption."""
    usual = float(np.nanmedian(alone)) if np.isfinite(alone).any() else ASSUMED_GBPS
    fallback = np.where(np.isfinite(alone), alone, usual)
    if pair is None or not np.isfinite(pair).any():
        return fallback, fallback
    best_out, best_in = (np.where(np.isfinite(pair), pair, 0).max(axis=axis) for axis in (1, 0))
    return np.where(best_out > 0, best_out, fallback), np.where(best_in > 0, best_in, fallback)


def _inferred(network: Network, rtt: Matrix, pair: Matrix | None) -> Fabric:
    n = len(network.hosts)
    off = ~np.eye(n, dtype=bool)
    known = rtt[off & np.isfinite(rtt)]
    complete = np.where(np.isfinite(rtt), rtt, known.max() if len(known) else 1.0)
    group_of = nearest_tier(complete)
    groups = int(group_of.max()) + 1
    host_out, host_in = _host_rates(pair, np.full(n, np.nan))
    shared, shared_in = np.full(groups, np.inf), np.full(groups, np.inf)
    together = group_of[:, None] == group_of[None, :]
    if groups > 1:
        for group in range(groups):
            inside = (group_of == group)[:, None] & together & off
            across = (group_of == group)[:, None] & ~together
            if inside.any():
                slower = min(1.0, float(np.median(complete[inside]) / np.median(complete[across])))
                shared[group] = slower * host_out[group_of == group].sum()
                shared_in[group] = slower * host_in[group_of == group].sum()
    rates = "measured pairs" if pair is not None and np.isfinite(pair).any() else f"{ASSUMED_GBPS:g} Gbit/s a host"
    source = f"inferred from the latency tiers and {rates} (`plink probe` without --no-shared-links measures them)"
    return Fabric(tuple(network.hosts.names), rtt, pair, host_out, host_in, group_of, shared, shared_in, source)
