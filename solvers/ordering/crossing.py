"""What crosses the boundary of any set of ranks at least, and what hosts send at most: the parts of lower bounds."""

import numpy as np
import numpy.typing as npt

from plink.model.network import Matrix
from solvers.costs.fabric import Fabric, Vector


def rates_of_hosts(fabric: Fabric, hosts: npt.NDArray[np.intp], model: str) -> tuple[Vector, Vector]:
    """Return the most that each host sends, and receives, by a model with bytes, Gbit/s, two of shape (H,)."""
    rate_out, rate_in = (ends.host_gbps()[hosts] for ends in fabric.resources)
    if model == "alpha-beta" and fabric.pair_gbps is not None:
        # A pair without a measured rate might be fast; a host sends nothing to itself, whatever its diagonal says.
        pair = np.nan_to_num(fabric.pair_gbps[np.ix_(hosts, hosts)], nan=np.inf)
        np.fill_diagonal(pair, 0.0)
        rate_out, rate_in = pair.max(axis=1), pair.max(axis=0)
        if fabric.paths is not None:  # interfaces send side by side, none faster than the best pair
            interfaces = np.bincount(fabric.paths.host_of)[hosts]
            rate_out, rate_in = rate_out * interfaces, rate_in * interfaces
    return rate_out, rate_in


def least_of_clusters(sent: Matrix) -> Vector:
    """Return the least bytes that leave k units, shape (N + 1,), by clusters; ``sent``, shape (N, N), between units.

    A cluster is two smaller ones. Of k units in it, i in the one and the others in the other, what stays in the cluster
    but leaves the k is at least what does in the two, and what these send each other at least. Clusters of units that
    exchange most are exact for exchanges of all with all, and for aligned blocks of a hypercube, which have the least
    edges to the outside (Harper, SIAM J. 1964); those of units that exchange with the same ones, for servers.
    """
    from scipy.cluster.hierarchy import linkage

    if np.allclose(sent.sum(axis=0), sent.sum(axis=1)):  # then as much enters any set as leaves it
        sent = (sent + sent.T) / 2
    both = sent + sent.T
    apart = both.max() - both[np.triu_indices(len(sent), 1)]
    best = np.zeros(len(sent) + 1)
    for joins in (linkage(apart, "average"), linkage(np.hstack([sent, sent.T]), "average")):
        clusters = [(np.array([k]), np.zeros(2)) for k in range(len(sent))]
        for a, b in joins[:, :2].astype(int).tolist():
            (left, of_left), (right, of_right) = sorted((clusters[a], clusters[b]), key=lambda pair: len(pair[0]))
            between = _least_between(sent[np.ix_(left, right)]) + _least_between(sent[np.ix_(right, left)]).T
            joined = np.full(len(left) + len(right) + 1, np.inf)
            for k in range(len(left) + 1):
                part = joined[k : k + len(right) + 1]
                np.minimum(part, of_left[k] + of_right + between[k], out=part)
            clusters.append((np.concatenate([left, right]), joined))
        np.maximum(best, clusters[-1][1], out=best)
    return best


def _least_between(sent: Matrix) -> Matrix:
    """Return no more than any i rows send to all but any j columns, shape (I + 1, J + 1).

    :param sent: shape (I, J).
    """
    most = np.zeros((sent.shape[0] + 1, sent.shape[1] + 1))  # that i rows send to j columns
    most[1:, 1:] = np.minimum(_most_of_rows(sent), _most_of_rows(sent.T).T)
    of_rows, of_columns = (np.concatenate([[0.0], np.cumsum(np.sort(sent.sum(axis=axis)))]) for axis in (1, 0))
    # All that they send, less what goes to these columns; all that the others get, less what other rows send them.
    least = np.maximum(of_rows[:, None] - most, of_columns[None, ::-1] - most[::-1, ::-1])
    return np.asarray(np.maximum(least, 0.0))


def _most_of_rows(sent: Matrix) -> Matrix:
    """Return the sum of the i rows that have most in j columns of their own, shape (I, J), i and j from 1."""
    of_row = np.cumsum(-np.sort(-sent, axis=1), axis=1)
    return np.asarray(np.cumsum(-np.sort(-of_row, axis=0), axis=0))
