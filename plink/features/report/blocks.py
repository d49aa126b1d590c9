"""Group many hosts in blocks, so that a picture has as many rows as can be seen and a page stays small."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from plink.model.network import Matrix

MAX_SEPARATE_HOSTS = 600  # hosts beyond which a row stands for a block of them
_MAX_ROWS = 256  # about
_MIN_UNCUT_GROUPS = 64  # groups: fewer are cut into pieces, of more one is mostly a block

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
        block_of = np.empty(len(self.order), dtype=np.intp)
        for number, hosts in enumerate(self.members):
            block_of[hosts] = number
        return block_of


@dataclass(frozen=True)
class Between:
    """Statistics of the values between any two blocks, all of shape (R, R), NaN without values. Diagonal pairs do not
    count. ``median``, ``low`` and ``high`` of the pairs, and ``pairs``, their number."""

    median: Matrix
    low: Matrix
    high: Matrix
    pairs: Indices


def blocks_of(order: Indices, groups: Indices) -> Blocks:
    """Blocks of hosts that follow each other in ``order``, shape (N,): hosts of one of the ``groups``, shape (N,), as
    long as that makes few enough blocks, else so many hosts each."""
    n, labels = len(order), groups[order]
    starts = np.flatnonzero(np.append(True, labels[1:] != labels[:-1]))
    if len(starts) > _MAX_ROWS:
        return Blocks(order, _cuts(0, n, _MAX_ROWS))
    lengths = np.diff(np.append(starts, n))
    block_hosts = -(-n // _MAX_ROWS) * (1 if len(starts) < _MIN_UNCUT_GROUPS else 4)
    cuts = [_cuts(*part, -(-part[1] // block_hosts)) for part in zip(starts.tolist(), lengths.tolist(), strict=True)]
    return Blocks(order, np.concatenate(cuts))


def _cuts(start: int, length: int, parts: int) -> Indices:
    """Return where even parts of a range begin."""
    return start + (np.arange(parts) * length) // parts


def between(values: Matrix, blocks: Blocks) -> Between:
    """Return statistics of ``values``, shape (N, N), NaN where unknown, between blocks."""
    n, members = len(values), blocks.members
    widest = max(len(hosts) for hosts in members)
    columns = np.full((len(members), widest), n, dtype=np.intp)  # filled up with a column where nothing is known
    for number, hosts in enumerate(members):
        columns[number, : len(hosts)] = hosts
    shape = (len(members), len(members))
    result = Between(np.full(shape, np.nan), np.full(shape, np.nan), np.full(shape, np.nan), np.zeros(shape, np.intp))
    for number, hosts in enumerate(members):
        rows = np.pad(values[hosts], ((0, 0), (0, 1)), constant_values=np.nan)
        rows[np.arange(len(hosts)), hosts] = np.nan
        values_between = np.sort(rows[:, columns].transpose(1, 0, 2).reshape(len(members), -1), axis=1)  # NaN come last
        counts = np.isfinite(values_between).sum(axis=1)
        measured, last = np.flatnonzero(counts), np.maximum(counts - 1, 0)
        last_values = (np.arange(len(values_between)), last)
        middle = (
            values_between[last_values[0], last // 2] + values_between[last_values[0], counts // 2 * (counts > 0)]
        ) / 2
        result.pairs[number] = counts
        for target, value in (
            (result.median, middle),
            (result.low, values_between[:, 0]),
            (result.high, values_between[last_values]),
        ):
            target[number, measured] = value[measured]
    return result
