"""Many hosts put together in blocks, so that a picture has as many rows as can be seen and a page stays small."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from plink.model.network import Matrix

MANY = 600  # hosts beyond which a row stands for a block of them
_ROWS = 256  # about
_FEW = 64  # groups: fewer are cut into pieces, of more one is mostly a block

Indices = npt.NDArray[np.intp]


@dataclass(frozen=True)
class Blocks:
    """N hosts in R blocks. ``order``, shape (N,): the hosts, one block after the other; ``begins``, shape (R,): where
    in it each block begins."""

    order: Indices
    begins: Indices

    @property
    def members(self) -> list[Indices]:
        """The hosts of each block."""
        return np.split(self.order, self.begins[1:])

    @property
    def of(self) -> Indices:
        """The block of each host, shape (N,)."""
        found = np.empty(len(self.order), dtype=np.intp)
        for number, hosts in enumerate(self.members):
            found[hosts] = number
        return found


@dataclass(frozen=True)
class Between:
    """What lies between any two blocks, all of shape (R, R), NaN where nothing is known; a host and itself are no pair:
    the ``median``, the least and the greatest value of their pairs, and how many are ``known``."""

    median: Matrix
    low: Matrix
    high: Matrix
    known: Indices


def blocks_of(order: Indices, groups: Indices) -> Blocks:
    """Blocks of hosts that follow each other in ``order``, shape (N,): hosts of one of the ``groups``, shape (N,), as
    long as that makes few enough blocks, else so many hosts each."""
    n, labels = len(order), groups[order]
    starts = np.flatnonzero(np.append(True, labels[1:] != labels[:-1]))
    if len(starts) > _ROWS:
        return Blocks(order, _cuts(0, n, _ROWS))
    lengths = np.diff(np.append(starts, n))
    most = -(-n // _ROWS) * (1 if len(starts) < _FEW else 4)
    cuts = [_cuts(*part, -(-part[1] // most)) for part in zip(starts.tolist(), lengths.tolist(), strict=True)]
    return Blocks(order, np.concatenate(cuts))


def _cuts(start: int, length: int, pieces: int) -> Indices:
    """Where even pieces of a stretch begin."""
    return start + (np.arange(pieces) * length) // pieces


def between(values: Matrix, blocks: Blocks) -> Between:
    """What ``values``, shape (N, N), NaN where unknown, are between blocks."""
    n, members = len(values), blocks.members
    wide = max(len(hosts) for hosts in members)
    columns = np.full((len(members), wide), n, dtype=np.intp)  # filled up with a column where nothing is known
    for number, hosts in enumerate(members):
        columns[number, : len(hosts)] = hosts
    shape = (len(members), len(members))
    found = Between(np.full(shape, np.nan), np.full(shape, np.nan), np.full(shape, np.nan), np.zeros(shape, np.intp))
    for number, hosts in enumerate(members):
        rows = np.pad(values[hosts], ((0, 0), (0, 1)), constant_values=np.nan)
        rows[np.arange(len(hosts)), hosts] = np.nan
        each = np.sort(rows[:, columns].transpose(1, 0, 2).reshape(len(members), -1), axis=1)  # NaN come last
        known = np.isfinite(each).sum(axis=1)
        there, last = np.flatnonzero(known), np.maximum(known - 1, 0)
        at = (np.arange(len(each)), last)
        middle = (each[at[0], last // 2] + each[at[0], known // 2 * (known > 0)]) / 2
        found.known[number] = known
        for target, value in ((found.median, middle), (found.low, each[:, 0]), (found.high, each[at])):
            target[number, there] = value[there]
    return found
