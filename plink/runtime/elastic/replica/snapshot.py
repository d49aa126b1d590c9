"""Status of a partition at one server, as other threads see it: its role and its progress."""

from dataclasses import dataclass
from enum import StrEnum

from plink.model.elastic.fields import DivergenceReport


class Role(StrEnum):
    """Role of a server for a partition."""

    ABSENT = "absent"
    SERVING = "serving"
    REPLICA = "replica"
    ARRIVING = "arriving"
    MOVED = "moved"
    IN_DOUBT = "in_doubt"  # given away, but whether the other one has begun is not known: the state is kept


@dataclass(frozen=True)
class PartitionStatus:
    """Status of one partition at one server, as of its last change.

    :ivar clocks: those whose state it can go back to, rising; the last is the present.
    :ivar replicated: the clock that all replicas have; the present one if there is none.
    :ivar stragglers: the workers whose updates the next clock waits for.
    :ivar replicas: the addresses that it is pushed to.
    :ivar trouble: why pushes do not arrive.
    :ivar ended: a replica that had its last push.
    :ivar address: of who has it, where it is gone.
    :ivar divergence: how far it is from its replicas; None where that is not bounded.
    """

    partition: int
    role: Role
    generation: int
    term: int
    clocks: tuple[int, ...] = ()
    replicated: int = -1
    stragglers: tuple[int, ...] = ()
    replicas: tuple[str, ...] = ()
    trouble: str = ""
    ended: bool = False
    address: str = ""
    divergence: DivergenceReport | None = None
