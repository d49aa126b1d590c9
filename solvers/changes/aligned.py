"""Two network files side by side: the hosts that both name, and what can be compared of each pair."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from plink.errors import InputError
from plink.model.network import Matrix, Network

Mask = npt.NDArray[np.bool_]
Labels = npt.NDArray[np.intp]
UNKNOWN = ""


@dataclass(frozen=True)
class Side:
    """One file, its H hosts cut down and arranged to ``at``, shape (N,): where the shared hosts stand in it."""

    network: Network
    at: Labels

    def cut(self, matrix: Matrix) -> Matrix:
        """A matrix of the file, shape (H, H), for the shared hosts only, shape (N, N)."""
        return np.asarray(matrix[np.ix_(self.at, self.at)])

    def latency(self) -> Matrix:
        """Round trips, microseconds, shape (N, N); NaN where unmeasured, and on the diagonal."""
        result = self.cut(self.network.latency_us)
        np.fill_diagonal(result, np.nan)
        return np.where(result > 0, result, np.nan)

    def detail(self, key: str) -> Matrix | None:
        """Another matrix of the file, shape (N, N).

        :raises InputError: as :meth:`Network.detail`.
        """
        result = self.network.detail(key)
        return None if result is None else self.cut(result)

    def halves(self) -> tuple[Matrix, Matrix] | None:
        """What each half of the samples says, two of shape (N, N).

        :raises InputError: as :meth:`Network.halves`.
        """
        halves = self.network.halves()
        return None if halves is None else (self.cut(halves[0]), self.cut(halves[1]))

    def words(self, key: str, used: str) -> npt.NDArray[np.str_] | None:
        """How each pair was measured (``methods``, ``method_used``) or by which clock, shape (N, N); None where the
        file does not say.

        :raises InputError: when a number stands for no word.
        """
        words, numbers = self.network.details.get(key), self.detail(used)
        if not isinstance(words, list) or numbers is None:
            return None
        if np.nan_to_num(numbers).max(initial=0) >= len(words):
            raise InputError(f"{self.network.location}: {used}", f"there are only {len(words)} {key}")
        return np.array([str(word) for word in words])[np.nan_to_num(numbers).astype(np.intp)]


@dataclass(frozen=True)
class Aligned:
    """``names`` of the N hosts in both files, in the old file's order; ``gone``, ``come``: in one only; ``moved``:
    whose address is another one now."""

    names: tuple[str, ...]
    gone: tuple[str, ...]
    come: tuple[str, ...]
    moved: tuple[str, ...]
    old: Side
    new: Side


def align(old: Network, new: Network) -> Aligned:
    """Hosts are matched by name."""
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
    """Where each host was found: what it said itself, else what the hosts file said; a name is no address."""
    addresses = []
    for k in side.at.tolist():
        host, machine = side.network.hosts.members[k], side.network.machines[k] or {}
        addresses.append(machine.get("address", host.address if host.address != host.name else ""))
    return addresses


def otherwise(aligned: Aligned, key: str, used: str) -> tuple[Mask, str]:
    """Where both files say how a round trip was measured, and it was not alike, shape (N, N); and from what to what in
    most cases (``stamp -> icmp``)."""
    was, now = aligned.old.words(key, used), aligned.new.words(key, used)
    n = len(aligned.names)
    if was is None or now is None:
        return np.zeros((n, n), dtype=bool), ""
    differ = (was != UNKNOWN) & (now != UNKNOWN) & (was != now)
    ways: Sequence[str] = [f"{a} -> {b}" for a, b in zip(was[differ].tolist(), now[differ].tolist(), strict=True)]
    return np.asarray(differ), max(dict.fromkeys(ways), key=ways.count) if ways else ""
