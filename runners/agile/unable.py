"""Hosts that cannot load a piece of the data that they are to: where another one can, it is the host's fault."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from runners.agile.member import Member
from solvers.elastic.placement.hosts import Tier
from solvers.elastic.placement.state import Cluster


@dataclass
class Unable:
    """The others go on without such a host. The job ends where nobody is left who could do its part, or a piece
    that nobody has in memory could not be loaded on another host either.

    :param lost: takes a host that is to be given up, and why. :param fail: takes why the job ends.
    """

    members: Mapping[int, Member]
    state: Callable[[], Cluster]
    lost: Callable[[int, str], None]
    fail: Callable[[str], None]
    _could_not: dict[int, str] = field(default_factory=dict)  # the first host that could not load a piece, by piece

    def load(self, host: int, pieces: tuple[int, ...], why: str) -> None:
        """A member could not load these, or one of them."""
        state, name = self.state(), self.members[host].name
        if host in state.leaving:
            return
        said = f"{name}: {why}"
        others = [other for other in state.hosts if other.number != host and other.number not in state.leaving]
        tried = [
            self._could_not[piece]
            for piece in pieces
            if piece in self._could_not and not state.pieces[piece].loaded - {host}
        ]
        if not others:
            self.fail(f"{said}, and there is no other host")
        elif self.members[host].tier == Tier.RELIABLE and not any(one.tier is Tier.RELIABLE for one in others):
            self.fail(f"{said}, and there is no other reliable host")
        elif tried:
            self.fail(f"{said} ({tried[0]} could not load it either)")
        else:
            self._could_not |= dict.fromkeys(pieces, name)
            self.lost(host, why)
