"""Role and state of one partition at one server, and their changes by roll-backs, moves and replicas."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from dataclasses import replace

from msgspec import structs

from plink.runtime.elastic.partition.divergence import ReplicaDistances
from plink.runtime.elastic.partition.partition import Partition, RejectedRequest
from plink.runtime.elastic.partition.serialization import workers_part
from plink.runtime.elastic.replica.arbitration import Arbitration
from plink.runtime.elastic.replica.outgoing import Outgoing
from plink.runtime.elastic.replica.snapshot import PartitionStatus, Role
from plink.runtime.elastic.transport.connection import Connection, StoreConfig
from plink.runtime.elastic.transport.messages import Activate, ReplicationDelta


class ReplicaState(ABC):
    """Role and state of one partition, which belong to one thread.

    :param config: its rule says whether reads are served from all that arrived, and how old updates may be. Reads say
        themselves which state they need.
    :param advanced: is called with the replicas after the consistent state or the role has changed.
    :param least_generation: what arrives from an earlier one is refused: it missed a roll-back.
    :ivar snapshot: of its last change, for any thread.
    """

    def __init__(
        self, config: StoreConfig, number: int, advanced: Callable[[Collection[str]], None], least_generation: int = 0
    ) -> None:
        self._config, self.number, self._advanced = config, number, advanced
        self._arbiter: Arbitration | None = None  # made with the first announcement
        self.role, self.least_generation = Role.ABSENT, least_generation
        self.generation = self.generation_clock = self.term = 0
        self.address = ""  # of who has it now, when it is gone
        self.in_doubt: Activate | None = None  # the order to begin that the new primary did not answer
        self.stays = False  # as its replica, once it has answered
        self.restoring: tuple[str, Activate] | None = None  # whom a replica told to serve, and what
        self.ended = False  # a replica that had its last push
        self.outgoing: Outgoing | None = None  # the move that is under way
        self.copying: dict[str, Connection] = {}  # to those that are to be replicas
        self.completed_moves: set[int] = set()  # terms of moves that took place
        self.cancelled: set[int] = set()  # and of those that will not
        self._partition: Partition | None = None
        self._attempt: int | None = None  # to bring the partition here, while it is under way
        self._last_attempt, self._attempt_term, self._begun = -1, -1, -1
        self.snapshot = PartitionStatus(number, self.role, 0, 0)

    @abstractmethod
    def answer_waiting(self) -> None:
        """Answer the reads that can be answered now, and those that have waited for too long."""

    @property
    def partition(self) -> Partition:
        """Return the partition.

        :raises RejectedRequest: there is none here.
        """
        if self._partition is None:
            raise RejectedRequest(f"partition {self.number} is not here")
        return self._partition

    def place(self, partition: Partition | None, role: Role, term: int) -> None:
        """Set the partition, role and term, and notify waiting readers."""
        self._arbiter = None
        self._partition, self.role, self.term = partition, role, term
        self.call_off("the partition moved meanwhile")
        if role is not Role.IN_DOUBT:
            self.in_doubt = None
        if role is Role.SERVING:
            self.address = ""
            self._bound_divergence()
        self.changed()

    def demote(self) -> None:
        """Become a replica with the same state, from serving, or not knowing who does."""
        self.partition.demote()
        self.address = ""  # of one that may never have begun
        self.place(self.partition, Role.REPLICA, self.term)

    def _bound_divergence(self) -> None:
        bound, copying = self._config.divergence, self.copying.keys()
        if bound is not None and self.partition.distances is None:
            self.partition.distances = ReplicaDistances(bound, self._config.layout, self.number, copying)

    def release(self) -> None:
        """Add the clock that waited for a replica, if it need not any more."""
        if self.role is Role.SERVING:
            self.partition.advance()
        self.changed()

    def changed(self) -> None:
        """Notify waiting readers, and replicate."""
        self.answer_waiting()
        self.publish()
        self._advanced(self.snapshot.replicas)

    def call_off(self, reason: str) -> None:
        """Cancel everything on its way to another server."""
        if self.outgoing is not None:
            self.outgoing.end(RejectedRequest(f"the move was given up: {reason}"))
            self.outgoing = None
        for address in list(self.copying):
            self.stop_copying(address)

    def end_move(self) -> None:
        """End the outgoing move."""
        if self.outgoing is not None:
            self.outgoing.end()
            self.outgoing = None

    def stop_replicating(self, address: str) -> None:
        """Stop replicating to a replica, or to a future one."""
        if self.outgoing is not None and self.outgoing.drains and self.outgoing.connection.address == address:
            self.outgoing.end(RejectedRequest(f"the move was given up: {address} is to be no replica"))
            self.outgoing = None
        if address in self.copying:
            self.stop_copying(address)
        self.partition.replicas.pop(address, None)

    def truncate(self, clock: int) -> None:
        """Truncate the undo log: see :meth:`Partition.truncate`."""
        if self.role in (Role.SERVING, Role.REPLICA):
            self.partition.truncate(clock)

    def stop_copying(self, address: str) -> None:
        """Stop copying to a future replica."""
        self.copying.pop(address).wake()
        if self._partition is not None:
            self._partition.replicas.pop(address, None)

    def publish(self) -> None:
        """Make known what there is."""
        here = self._partition if self.role not in (Role.ABSENT, Role.MOVED) else None
        address = self.address if self.role is not Role.SERVING else ""
        status = PartitionStatus(self.number, self.role, self.generation, self.term, ended=self.ended, address=address)
        if here is not None:
            status = replace(
                status,
                clocks=tuple(here.can_roll_back()),
                replicated=here.replicated,
                stragglers=tuple(here.stragglers()),
                replicas=tuple(address for address in here.replicas if address not in self.copying),
                divergence=None if here.distances is None else here.distances.report(here.clock),
            )
        self.snapshot = status

    def roll_back(self, clock: int, generation: int) -> None:
        """Roll back to the state of a clock. What was sent in an earlier generation does not count, and what is still
        arriving from one may not begin. A repeat changes nothing.

        :raises RejectedRequest: nothing has changed.
        """
        if self.can_roll_back(clock, generation):
            self._arbiter = None
            self.call_off("there was a roll-back meanwhile")
            self.partition.roll_back(clock)
            self.generation, self.generation_clock, self._attempt = generation, clock, None
            self.changed()
        elif self.role is Role.ARRIVING and self.generation < generation:
            self.stop_arriving()
        self.least_generation = max(self.least_generation, generation)

    def stop_arriving(self) -> None:
        """Reject what is being brought here; a replica stays one."""
        self._attempt = None
        if self.role is Role.ARRIVING:
            self.place(None, Role.MOVED if self.address else Role.ABSENT, self.term)

    @property
    def arriving_term(self) -> int:
        """Return the term of the move that is on its way here; -1 for none."""
        return self._attempt_term if self._attempt is not None else -1

    def forget(self) -> None:
        """Have nothing of the partition, and know of nobody who has."""
        self._attempt, self.address, self.ended = None, "", False
        self.place(None, Role.ABSENT, self.term)

    def reset(self, generation: int) -> None:
        """Drop what is here of an earlier generation, and refuse what comes of one. Another host may have been reset
        sooner, and what it has sent of this generation is here already."""
        if self.least_generation < generation:
            self.least_generation = generation
            if self.generation < generation:
                self.forget()

    def workers_from(self, workers: Collection[int], first: int) -> None:
        """Set exactly these workers as participants from a clock on, wherever the partition goes.

        :raises RejectedRequest: see there.
        """
        if self.role is not Role.SERVING:
            raise RejectedRequest(f"partition {self.number} is not served here")
        if self.partition.workers_from(workers, first):
            if self.outgoing is not None:
                self.outgoing.add([workers_part(self.number, workers, first)])
            self.changed()

    def take_delta(self, to: str, clock: int, last: bool = False) -> ReplicationDelta:
        """Return what a replica lacks up to a clock: see :meth:`Partition.take_delta`."""
        delta = self.partition.take_delta(to, clock, last)
        return structs.replace(delta, generation=self.generation, term=self.term)

    def can_roll_back(self, clock: int, generation: int) -> bool:
        """Return whether there is anything to roll back. :raises RejectedRequest: it cannot be done."""
        if self.role is Role.IN_DOUBT:  # the other one counts
            return generation > self.generation and clock in self.partition.can_roll_back()
        is_repeat = (self.generation, self.generation_clock) == (generation, clock)
        if self.role not in (Role.SERVING, Role.REPLICA) or is_repeat:
            return False
        if generation <= self.generation:
            raise RejectedRequest(
                f"partition {self.number} is in generation {self.generation} since clock {self.generation_clock}, "
                f"not in {generation}"
            )
        clocks = self.partition.can_roll_back()
        if clock not in clocks:
            raise RejectedRequest(f"partition {self.number} can go back to clocks {clocks}, not {clock}")
        return True
