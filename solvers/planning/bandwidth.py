"""Weights of groups and ranks by what was measured of their bandwidth."""

import numpy as np
import numpy.typing as npt

from plink.errors import UsageError
from plink.model.network import Matrix
from solvers.costs.fabric import Fabric, Vector
from solvers.schedules.masters import Groups, Weights


def bandwidth_weights(fabric: Fabric, order: npt.NDArray[np.intp], groups: Groups) -> Weights:
    """Weights for Quicktune's proportions (PLink thesis, 4.2.3), in Gbit/s.

    A rank weighs ``b_i / slots_i``, b_i its host's rate: the mean of what was measured with every other host, sending
    or receiving, whichever is slower, for a master gets as much as it sends. A group weighs the sum over its members
    of their rates to hosts outside the group, and no more than its share of the links it goes out by, where those were
    measured: a link of which the group has half the hosts counts half.

    The thesis adds up ``BW(m, n)`` over all n outside instead of taking the mean: then a group of s hosts, all rates
    equal, would weigh s (N - s), and two groups always the same, whatever their sizes; the mean gives s.

    :param order: shape (N,), the host at each rank.
    :raises UsageError: when no bandwidth was measured.
    """
    if fabric.pair_gbps is None and not fabric.measured:
        raise UsageError(
            "--weights bandwidth: the network holds no bandwidths; `plink probe HOSTS --bandwidth` measures them"
        )
    slots = np.bincount(order, minlength=len(fabric.names)).astype(np.float64)
    everyone = np.unique(order)
    rank_weights = _rates(fabric, everyone, everyone)[order] / slots[order]
    group_weights = []
    for group in groups:
        members, number = np.unique(order[np.asarray(group)], return_counts=True)
        outside = np.setdiff1d(everyone, members)
        # Of a host whose ranks stand in two groups each has its part.
        part = number / slots[members]
        rates = _rates(fabric, members, outside if len(outside) else everyone)[members] * part
        group_weights.append(_through_shared_links(fabric, members, part, rates))
    return Weights(np.array(group_weights), rank_weights)


def _rates(fabric: Fabric, hosts: npt.NDArray[np.intp], peers: npt.NDArray[np.intp]) -> Vector:
    """The mean rate of these hosts with their peers, Gbit/s, shape (number of all hosts,), 0 for other hosts; a host's
    own rate where no pair was measured."""
    own = np.minimum(*(ends.host_gbps() for ends in fabric.resources))
    rates = np.zeros(len(fabric.names))
    rates[hosts] = own[hosts]
    if fabric.pair_gbps is not None:
        pairs = fabric.pair_gbps.copy()
        np.fill_diagonal(pairs, np.nan)
        sent, got = _means(pairs[np.ix_(hosts, peers)]), _means(pairs[np.ix_(peers, hosts)].T)
        slower = np.fmin(sent, got)  # of one that is not a number: the other
        rates[hosts] = np.where(np.isfinite(slower), slower, own[hosts])
    return rates


def _means(rows: Matrix) -> Vector:
    """The mean of each row's numbers, NaN where it has none."""
    finite = np.isfinite(rows)
    number = finite.sum(axis=1)
    total = np.where(finite, rows, 0.0).sum(axis=1)
    means: Vector = np.divide(total, number, out=np.full(len(rows), np.nan), where=number > 0)
    return means


def _through_shared_links(fabric: Fabric, members: npt.NDArray[np.intp], part: Vector, rates: Vector) -> float:
    """The sum of the members' rates, as far as the links they share let it through; Gbit/s."""
    if not fabric.measured:
        return float(rates.sum())
    for tier in fabric.tiers:
        hosts, rates = np.bincount(tier.group_of, minlength=len(tier.out_gbps)), rates.copy()
        for shared in np.unique(tier.group_of[members]).tolist():
            here = tier.group_of[members] == shared
            total = float(rates[here].sum())
            capacity = float(min(tier.out_gbps[shared], tier.in_gbps[shared]) * part[here].sum() / hosts[shared])
            if total > capacity:
                rates[here] *= capacity / total
    return float(rates.sum())
