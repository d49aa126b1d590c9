"""Observed traffic of a two-level aggregation, and the traffic that an assignment of masters causes."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from plink.errors import UsageError
from plink.model.network import Matrix
from solvers.schedules.masters import Groups, Indices, check_groups

Vector = npt.NDArray[np.float64]


@dataclass(frozen=True)
class MasterAssignment:
    """Masters of a two-level aggregation.

    ``local_masters``, shape (C, G): the rank that aggregates a chunk in each group. ``global_group``, shape (C,): the
    group whose local master of that chunk aggregates for all (as in :mod:`solvers.schedules.masters`).
    """

    groups: Groups
    local_masters: Indices
    global_group: Indices

    def __post_init__(self) -> None:
        check_groups(self.groups)
        chunks, number = self.local_masters.shape
        if number != len(self.groups) or self.global_group.shape != (chunks,):
            raise UsageError(
                f"masters: {len(self.groups)} groups need as many columns, and each chunk one global group"
            )
        for g, line in enumerate(self.groups):
            if not np.isin(self.local_masters[:, g], line).all():
                raise UsageError(f"masters: a local master of group {g} is not in it")
        if chunks and not (self.global_group.min() >= 0 and self.global_group.max() < len(self.groups)):
            raise UsageError("masters: a global group that does not exist")

    @property
    def ranks(self) -> int:
        """Number of ranks."""
        return sum(len(line) for line in self.groups)

    @property
    def global_masters(self) -> Indices:
        """The rank that aggregates each chunk for all, shape (C,)."""
        return self.local_masters[np.arange(len(self.global_group)), self.global_group]


@dataclass(frozen=True)
class ObservedTraffic:
    """Traffic of some iterations between ranks, each of shape (N, N), row to column.

    ``sent_bytes``; ``bytes_per_s``, the bandwidth while any were in flight, and ``rtt_s``, both NaN where nothing was
    sent.

    :raises UsageError: for shapes that differ, and for invalid values.
    """

    sent_bytes: Matrix
    bytes_per_s: Matrix
    rtt_s: Matrix

    def __post_init__(self) -> None:
        n = len(self.sent_bytes)
        for name in ("sent_bytes", "bytes_per_s", "rtt_s"):
            values = getattr(self, name)
            if values.shape != (n, n) or np.isinf(values).any() or (np.nan_to_num(values) < 0).any():
                raise UsageError(f"observed {name}: {n} x {n} numbers of 0 and more were expected")
        if not np.isfinite(self.sent_bytes).all():
            raise UsageError("observed sent_bytes: a number of each pair was expected")

    def rates(self) -> Vector:
        """Return the rate of each rank in its slower direction, shape (N,), bytes a second.

        It is the sum over its peers, since their connections share it; without traffic, the mean of the other ranks.

        :raises UsageError: where no rank has sent anything.
        """
        measured = np.where(self.bytes_per_s > 0, self.bytes_per_s, 0.0)
        sent, got = measured.sum(axis=1), measured.sum(axis=0)
        slower = np.where((sent > 0) & (got > 0), np.minimum(sent, got), np.maximum(sent, got))
        if not slower.any():
            raise UsageError("nothing was observed: no rank has sent anything")
        rates: Vector = np.where(slower > 0, slower, slower[slower > 0].mean())
        return rates


def sent_bytes(assignment: MasterAssignment, chunk_bytes: Vector) -> Matrix:
    """Return the bytes from each rank to each other in one all-reduce, shape (N, N).

    Members to their local master and back, local masters to the global one and back (PLink thesis, 4.1.2).

    :param chunk_bytes: shape (C,).
    """
    sent = np.zeros((assignment.ranks, assignment.ranks))
    for g, line in enumerate(assignment.groups):
        masters = assignment.local_masters[:, g]
        load = np.bincount(masters, chunk_bytes, assignment.ranks)
        members = np.asarray(line)
        sent[np.ix_(members, members)] += load[members][None, :]
        sent[np.ix_(members, members)] += load[members][:, None]
        away = assignment.global_group != g
        np.add.at(sent, (masters[away], assignment.global_masters[away]), chunk_bytes[away])
        np.add.at(sent, (assignment.global_masters[away], masters[away]), chunk_bytes[away])
    np.fill_diagonal(sent, 0.0)
    return sent
