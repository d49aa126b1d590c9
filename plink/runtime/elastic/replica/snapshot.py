"""What other threads see of a partition at one server: its role and its progress."""

from dataclasses import dataclass
from enum import Enum

from plink.model.elastic.fields import DivergenceReport


class Role(Enum):
    """Role of a server for a partition."""

    ABSENT = "absent"
    SERVING = "serving"
    REPLICA = "replica"
    ARRIVING = "arriving"
    MOVED = "moved"
    IN_DOUBT = "in_doubt"  # given away, but whether the other one has begun is not known: the state is kept


@dataclass(frozen=True)
class ReplicaSnapshot:
    """Snapshot of a partition after its last change, for any thread."""

    role: Role
    generation: int
    term: int
    clocks: tuple[int, ...] = ()
    replicated: int = -1
    stragglers: tuple[int, ...] = ()
    replicas: tuple[str, ...] = ()
    ended: bool = False
    address: str = ""
    divergence: DivergenceReport | None = None
