"""Says when more workers do the work, or fewer, and that the steps stay the same (strong scaling)."""

from collections.abc import Callable, Mapping

from runners.agile.turns import Pieces, Share
from solvers.elastic.placement.data import worked_on
from solvers.elastic.placement.state import Cluster


class Resizing:
    """Of one job. What takes several turns is one change: it is said when the last of them is over.

    :param say: takes a line for the user.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._size: tuple[int, int] | None = None  # workers, and hosts that have some

    def known(self, shares: Mapping[int, Share]) -> None:
        """How things stand, which nobody needs to be told."""
        self._size = len(shares), len({share.host for share in shares.values()})

    def turned(self, clock: int, shares: Mapping[int, Share], cluster: Cluster) -> None:
        """From this clock on these do the work."""
        before = self._size
        if before is not None and not _settled(shares, cluster):
            return
        self.known(shares)
        if before is None or before == self._size:
            return
        assert self._size is not None
        workers, hosts = self._size
        who = f"{workers} worker{'s' * (workers != 1)} on {hosts} host{'s' * (hosts != 1)}"
        do, pieces = "does" if workers == 1 else "do", len(cluster.pieces)
        self._say(
            f"from clock {clock} on {who} {do} the work, before {before[0]} on {before[1]}; the global batch stays the "
            f"same: one mini-batch of each of the {pieces} pieces (strong scaling)"
        )


def _settled(shares: Mapping[int, Share], cluster: Cluster) -> bool:
    """Whether no other turn is due, but for those who still come."""
    have: dict[int, Pieces] = {}
    for share in shares.values():
        have[share.host] = tuple(sorted((*have.get(share.host, ()), *share.pieces)))
    due = any(piece.heir is not None and piece.heir not in cluster.joining for piece in cluster.pieces)
    return not due and have == worked_on(cluster.pieces)
