"""Whether hosts have the memory that a job takes: what is certain is refused, what may be is warned of."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from plink.errors import PlinkError
from plink.model.units import format_bytes
from runners.agile.memory_estimate import MemoryNeed, memory_needs
from solvers.elastic.member import Member
from solvers.elastic.placement.hosts import Tier
from solvers.elastic.settings import Settings


@dataclass(frozen=True)
class _Pool:
    """Hosts that share one memory: as a rule one, on a machine of its own. ``needs``: of each."""

    members: tuple[Member, ...]
    needs: tuple[MemoryNeed, ...]

    @property
    def need(self) -> MemoryNeed:
        return sum(self.needs, MemoryNeed())

    @property
    def room(self) -> float:
        """Return the memory that is available: each host found what the others had not taken yet."""
        return min(float(member.program.memory or 0) for member in self.members)

    def have(self, members: Sequence[Member]) -> str:
        """Return the end of a sentence about the memory of some of them."""
        room = f"{format_bytes(self.room)} of memory"
        if len(self.members) == 1:
            return f"has {room}"
        return f"{'they' if len(members) == len(self.members) else _names(self.members)} have {room} together"

    @property
    def stateful(self) -> list[Member]:
        """Return those that have some of the state."""
        return [member for member, need in zip(self.members, self.needs, strict=True) if need.state]


def warning(subjects: Sequence[Member], members: Sequence[Member], settings: Settings) -> str | None:
    """Return a warning where some of these hosts may have too little memory in a job of ``members``, the worst case, or
    where others of these would certainly have; None where none may.

    :raises PlinkError: some of those that are judged cannot do without more than they have.
    """
    need = memory_needs(members, settings)
    pools = _pools(subjects, need)
    for pool in pools:
        if pool.need.state > pool.room:
            raise PlinkError(_refusal(pool))
    others = _pools([member for member in members if member not in subjects], need)
    short = [pool for pool in others if pool.need.state > pool.room]
    tight = [pool for pool in pools if pool.need.most > pool.room]
    texts = [f"memory will run short once they have come: {_refusal(pool)}" for pool in short[:1]]
    return "; ".join(texts + ([_warned(tight)] if tight else [])) or None


def _refusal(pool: _Pool) -> str:
    """Return the message about memory that is certainly too small."""
    stateful = pool.stateful
    reliable = stateful[0].tier == Tier.RELIABLE.value
    instead = "more reliable hosts" if reliable else "hosts with more memory"
    return (
        f"{_names(stateful)} would keep {format_bytes(pool.need.state)} of parameters, and "
        f"{pool.have(stateful)}: use smaller tables, or {instead if len(pool.members) == 1 else 'more machines'}"
    )


def _warned(tight: Sequence[_Pool]) -> str:
    worst = max(tight, key=lambda pool: pool.need.most / max(1.0, pool.room))
    need, others = worst.need, sum(len(pool.members) for pool in tight) - len(worst.members)
    also = f" (and so {others} more host{'s' * (others > 1)})" if others else ""
    sizes = {"parameters": need.state + need.more, "workers": need.workers}
    parts = ", ".join(f"{what} {format_bytes(size)}" for what, size in sizes.items() if size)
    return (
        f"memory may run short: {_names(worst.members)} may need up to {format_bytes(need.most)}{also} where the "
        f"program reads and adds to whole tables ({parts}), and {worst.have(worst.members)}; fewer slots=, "
        "smaller tables, or a program that touches fewer rows need less"
    )


def _pools(subjects: Sequence[Member], need: Mapping[int, MemoryNeed]) -> list[_Pool]:
    """Return the pools of hosts that know what they have."""
    together: dict[str | int, list[Member]] = {}
    for member in subjects:
        if member.program.memory is not None:
            together.setdefault(member.program.pool or member.number, []).append(member)
    return [_Pool(tuple(members), tuple(need[member.number] for member in members)) for members in together.values()]


def _names(members: Sequence[Member]) -> str:
    """Return the first names, and how many more."""
    names = [member.name for member in members]
    if len(names) > 3:
        return f"{', '.join(names[:3])} and {len(names) - 3} more"
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))
