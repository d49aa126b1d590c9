"""Align two network files by the hosts that both have."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from plink.errors import InputError
from plink.model.document import UNSET
from plink.model.network import Matrix, Network

Mask = npt.NDArray[np.bool_]
Labels = npt.NDArray[np.intp]
UNKNOWN = ""


@dataclass(frozen=True)
class Side:
    """One file with H hosts; ``at``: the indices of the N shared hosts in it, shape (N,)."""

    network: Network
    at: Labels

    def cut(self, matrix: Matrix) -> Matrix:
        """Return a matrix of the file, shape (H, H), for the shared hosts only, shape (N, N)."""
        return np.asarray(matrix[np.ix_(self.at, self.at)])

    def latency(self) -> Matrix:
        """Return round trips, microseconds, shape (N, N); NaN where unmeasured and on the diagonal."""
        result = self.cut(self.network.latency_us)
        np.fill_diagonal(result, np.nan)
        return np.where(result > 0, result, np.nan)

    def detail(self, key: str) -> Matrix | None:
        """Return another matrix of the file, shape (N, N).

        :raises InputError: as :meth:`Network.detail`.
        """
        result = self.network.detail(key)
        return None if result is None else self.cut(result)

    def halves(self) -> tuple[Matrix, Matrix] | None:
        """Return the round trips by each half of the samples, two matrices of shape (N, N).

        :raises InputError: as :meth:`Network.halves`.
        """
        halves = self.network.halves()
        return None if halves is None else (self.cut(halves[0]), self.cut(halves[1]))

    def words(self, key: str, used: str) -> npt.NDArray[np.str_] | None:
        """Return by which method or clock each pair was measured, shape (N, N); None where the file does not say.

        :raises InputError: when an index is beyond the list of methods or clocks.
        """
        words, numbers = getattr(self.network.details, key), self.detail(used)
        if not isinstance(words, list) or numbers is None:
            return None
        if np.nan_to_num(numbers).max(initial=0) >= len(words):
            raise InputError(f"{self.network.location}: {used}", f"there are only {len(words)} {key}")
        return np.array([str(word) for word in words])[np.nan_to_num(numbers).astype(np.intp)]


@dataclass(frozen=True)
class Aligned:
    """Two files and their shared hosts.

    ``names``: the N hosts in both files, in the old file's order. ``gone``, ``come``: in the old or the new file only.
    ``moved``: with another address now.
    """

    names: tuple[str, ...]
    gone: tuple[str, ...]
    come: tuple[str, ...]
    moved: tuple[str, ...]
    old: Side
    new: Side


def align(old: Network, new: Network) -> Aligned:
    """Match the hosts of two files by name."""
    before, after = ({name: k for k, name in enumerate(network.hosts.names)} for network in (old, new))
    names = tuple(name for name in before if name in after)
    sides = [
        Side(network, np.array([index[name] for name in names], dtype=np.intp))
        for network, index in ((old, before), (new, after))
    ]
    addresses = [_addresses(side) for side in sides]
    return Aligned(
        names,
        tuple(name for name in before if name not in after),
        tuple(name for name in after if name not in before),
        tuple(name for name, was, now in zip(names, *addresses, strict=True) if was and now and was != now),
        *sides,
    )


def _addresses(side: Side) -> list[str]:
    """Return each host's address, as the host or else the hosts file reports it; a name is not an address."""
    addresses = []
    for k in side.at.tolist():
        host, machine = side.network.hosts.members[k], side.network.machines[k]
        by_machine = machine.address if machine else UNSET
        addresses.append(by_machine or (host.address if host.address != host.name else ""))
    return addresses


def otherwise(aligned: Aligned, key: str, used: str) -> tuple[Mask, str]:
    """Return which round trips were measured by another method, shape (N, N), and the commonest case as text."""
    was, now = aligned.old.words(key, used), aligned.new.words(key, used)
    n = len(aligned.names)
    if was is None or now is None:
        return np.zeros((n, n), dtype=bool), ""
    differ = (was != UNKNOWN) & (now != UNKNOWN) & (was != now)
    ways: Sequence[str] = [f"{a} -> {b}" for a, b in zip(was[differ].tolist(), now[differ].tolist(), strict=True)]
    return np.asarray(differ), max(dict.fromkeys(ways), key=ways.count) if ways else ""
