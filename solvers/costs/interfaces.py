"""What hosts send and receive by themselves: a resource each way of every host, or of every interface of it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from plink.model.network_file import InterfacesEntry

Vector = npt.NDArray[np.float64]
Hosts = npt.NDArray[np.intp]
Hops = npt.NDArray[np.int32]


@dataclass(frozen=True)
class InterfacePaths:
    """Which of B interfaces each pair's path crosses, where hosts have several.

    ``names``, ``host_of``, ``out_gbps``, ``in_gbps``, shape (B,): of each interface. ``out``, ``into``, shape
    (P, N, N): by which interface hop p of the path from row to column leaves a host, and arrives at one; -1 where the
    path has fewer hops. A path of several hops goes through hosts, which pass on what they receive.
    """

    names: tuple[str, ...]
    host_of: Hosts
    out_gbps: Vector
    in_gbps: Vector
    out: Hops
    into: Hops

    @property
    def has_relays(self) -> bool:
        """Return whether hosts pass on what others send."""
        return len(self.out) > 1

    def with_host_gbps(self, host_gbps: Vector) -> "InterfacePaths":
        """Return them with so much for all interfaces of a host together, shared as what each carries here.

        One of which that is unknown (NaN) has the mean share of the host's others.

        :param host_gbps: shape (N,), each way, Gbit/s; NaN: what they carry here.
        """
        rates = []
        for gbps in (self.out_gbps, self.in_gbps):
            has_rate = np.isfinite(gbps)
            count, total = (np.bincount(self.host_of, weights) for weights in (has_rate, np.where(has_rate, gbps, 0.0)))
            mean = np.where(count > 0, total / np.maximum(count, 1), 1.0)
            gbps = np.where(has_rate | np.isnan(host_gbps)[self.host_of], gbps, mean[self.host_of])
            share = host_gbps / np.bincount(self.host_of, gbps)
            rates.append(gbps * np.where(np.isnan(host_gbps), 1.0, share)[self.host_of])
        return replace(self, out_gbps=rates[0], in_gbps=rates[1])

    def pair_gbps(self) -> Vector:
        """Return the rate of each pair alone, Gbit/s, shape (N, N): that of the slowest interface of its path."""
        slowest = np.full(self.out.shape[1:], np.inf)
        for hops, gbps in ((self.out, self.out_gbps), (self.into, self.in_gbps)):
            for hop in hops:
                np.minimum(slowest, np.where(hop >= 0, gbps[hop], np.inf), out=slowest)
        return slowest


@dataclass(frozen=True)
class HostResources:
    """One direction of what hosts have for themselves: B resources.

    ``names``, ``host_of``, ``gbps``, shape (B,). ``paths``, shape (P, N, N): the resources that a pair's bytes load, -1
    for none; None where hosts have one each, which is number ``host``. ``is_out``: whether they send.
    """

    names: tuple[str, ...]
    host_of: Hosts
    gbps: Vector
    paths: Hops | None
    is_out: bool

    def __len__(self) -> int:
        return len(self.gbps)

    def of(self, source: Hosts, target: Hosts) -> npt.NDArray[np.int64]:
        """Return the resources that transfers between hosts load, shape (P, E), -1 for none."""
        if self.paths is None:
            return (source if self.is_out else target)[None].astype(np.int64)
        return self.paths[:, source, target].astype(np.int64)

    def loads(self, rounds: int, offset: Hosts, source: Hosts, target: Hosts, weight: Vector) -> Vector:
        """Return the sums of the weights of transfers on each resource in each round, shape (rounds, B).

        :param offset: shape (E,), the round of each transfer times B. :param weight: 0 for transfers within a host.
        """
        shape = rounds, len(self.gbps)
        if self.paths is None:
            end = source if self.is_out else target
            return np.bincount(offset + end, weight, rounds * shape[1]).reshape(shape).astype(np.float64, copy=False)
        resource = self.paths[:, source, target]
        used = resource >= 0
        keys = (offset + resource)[used]
        weights = np.broadcast_to(weight, resource.shape)[used]
        return np.bincount(keys, weights, rounds * shape[1]).reshape(shape).astype(np.float64, copy=False)

    def host_gbps(self) -> Vector:
        """Return what all interfaces of each host carry together, Gbit/s, shape (N,)."""
        if self.paths is None:
            return self.gbps
        return np.bincount(self.host_of, self.gbps, self.paths.shape[1]).astype(np.float64)


def host_resources(
    names: Sequence[str], out_gbps: Vector, in_gbps: Vector, paths: InterfacePaths | None
) -> tuple[HostResources, HostResources]:
    """Return what hosts have for sending, and for receiving.

    :param names: of the N hosts. :param out_gbps: shape (N,), as ``in_gbps``: of hosts without interfaces of their own.
    """
    hosts = np.arange(len(names))
    if paths is None:
        sending, receiving = (
            HostResources(tuple(names), hosts, gbps, None, is_out)
            for gbps, is_out in ((out_gbps, True), (in_gbps, False))
        )
        return sending, receiving
    return (
        HostResources(paths.names, paths.host_of, paths.out_gbps, paths.out, True),
        HostResources(paths.names, paths.host_of, paths.in_gbps, paths.into, False),
    )


def interface_paths(
    entry: InterfacesEntry, hosts: Sequence[str], host_gbps: tuple[Vector, Vector], pair_gbps: Vector | None = None
) -> InterfacePaths | None:
    """Return the paths of all pairs by the interfaces of a network file; None where hosts have one each.

    An interface carries what was measured of it, else what the best pair that it connects without a relay, else as much
    as its host by one flow. It receives what comes over its switch; from behind a router, what its own host sends
    there. Where the interface of a pair is unknown it is the host's first.

    :param host_gbps: two of shape (N,): what hosts send, and receive, by one flow; NaN: unknown, and so are interfaces
        of which nothing else tells. :param pair_gbps: shape (N, N).
    """
    counts = np.array([max(1, len(names)) for names in entry.names])
    if counts.max(initial=1) < 2:
        return None
    n, first = len(hosts), np.cumsum(counts) - counts
    host_of = np.repeat(np.arange(n), counts)
    names = [
        f"{host}/{interface}" if interface else host
        for host, interfaces in zip(hosts, entry.names, strict=True)
        for interface in (interfaces or [""])
    ]
    used, relays = (_indices(rows, n) for rows in (entry.used, entry.relays))
    out, into = _walk(np.maximum(used, 0), relays, first, _ports(entry, n, first))
    rates = []
    direct = np.ones((n, n), dtype=bool) if len(out) == 1 else out[1] < 0
    for key, path, of_host in zip(("out_gbps", "in_gbps"), (out, into), host_gbps, strict=True):
        rate = _measured(getattr(entry, key) or None, counts)
        best = np.full(len(rate), np.nan)
        if pair_gbps is not None:
            measured = direct & (pair_gbps > 0) & (path[0] >= 0)
            np.fmax.at(best, path[0][measured], pair_gbps[measured])
        rate = np.where(rate > 0, rate, best)
        rates.append(np.where(rate > 0, rate, of_host[host_of]))
    return InterfacePaths(tuple(names), host_of, rates[0], rates[1], out, into)


def _measured(table: Sequence[Sequence[float | None]] | None, counts: npt.NDArray[np.int64]) -> Vector:
    """Return what was measured of each interface, NaN where nothing was."""
    if table is None:
        return np.full(int(counts.sum()), np.nan)
    rows = [list(row) or [None] * count for row, count in zip(table, counts.tolist(), strict=True)]
    return np.array([np.nan if value is None else value for row in rows for value in row])


def _indices(rows: Sequence[Sequence[float | None]], n: int) -> npt.NDArray[np.int64]:
    """Return a matrix of indices, -1 for null."""
    values = np.array([[np.nan if value is None else value for value in row] for row in rows], dtype=np.float64)
    return np.nan_to_num(values.reshape(n, n), nan=-1.0).astype(np.int64)


def _ports(entry: InterfacesEntry, n: int, first: npt.NDArray[np.int64]) -> tuple[Hosts, npt.NDArray[np.int64]]:
    """Return the switch of each interface, shape (B,), -1 for none, and the interface of each host on each switch,
    shape (S + 1, N), -1 for none; its last row is of no switch."""
    switches = entry.switches
    switch_of = np.full(int(first[-1]) + max(1, len(entry.names[-1])), -1, dtype=np.intp)
    port_of = np.full((len(switches) + 1, n), -1, dtype=np.int64)
    for number, ports in enumerate(switches):
        for host, interface in ports:
            switch_of[first[host] + interface] = number
            port_of[number, host] = first[host] + interface
    return switch_of, port_of


def _walk(
    used: npt.NDArray[np.int64],
    relays: npt.NDArray[np.int64],
    first: npt.NDArray[np.int64],
    ports: tuple[Hosts, npt.NDArray[np.int64]],
) -> tuple[Hops, Hops]:
    """Follow all pairs' paths from relay to relay; return the interfaces that their hops leave by and arrive at.

    A path that is longer than there are hosts goes in a circle; then it is as if its source reached its target.
    """
    switch_of, port_of = ports
    n = len(used)
    at = np.repeat(np.arange(n)[:, None], n, axis=1)
    to = np.repeat(np.arange(n)[None, :], n, axis=0)
    outs: list[Hops] = []
    ins: list[Hops] = []
    while (at != to).any() and len(outs) < n:
        relay = relays[at, to]
        following = np.where(relay < 0, to, relay)
        leaves = first[at] + used[at, to]
        arrives = port_of[switch_of[leaves], following]
        arrives = np.where(arrives < 0, first[following] + used[following, at], arrives)
        moving = at != to
        outs.append(np.where(moving, leaves, -1).astype(np.int32))
        ins.append(np.where(moving, arrives, -1).astype(np.int32))
        at = np.where(moving, following, at)
    out, into = np.array(outs), np.array(ins)
    circles = at != to
    if circles.any():
        out[1:, circles] = into[1:, circles] = -1
        into[0, circles] = (first[None, :] + used.T)[circles]
        longest = max(1, int((out >= 0).any(axis=(1, 2)).sum()))
        out, into = out[:longest], into[:longest]
    return out, into
