"""Messages of the parameter server: requests and answers, as records. :mod:`.wire` has them as bytes.

``generation`` counts roll-backs and ``term`` the primaries of a partition. ``version`` counts the updates that a
partition has applied: in an answer those until now, in an update those until the sender read what the update was
computed from.
"""

from enum import IntEnum
from typing import Generic, NamedTuple, TypeVar

from msgspec import Struct

from plink.runtime.elastic.arrays.layout import Rows
from plink.runtime.elastic.arrays.row_blocks import RowBlock

Blocks = tuple[RowBlock, ...]


class Status(IntEnum):
    """Result of a request."""

    OK = 0
    WAITING = 1  # the state that a read needs is not there yet: ask again
    ELSEWHERE = 2  # the text has the address, the term says since when
    ABSENT = 3  # not here, and nobody knows where
    ROLLED_BACK = 4  # the partition is in a later generation: clock is that of its state
    BEHIND = 5  # the partition is in an earlier generation and will follow: ask again
    REFUSED = 6  # the text says why; asking again is of no use


class RowRequest(NamedTuple):
    """Rows of one table that a read requests, or an update for the clock after it."""

    table: int
    rows: Rows


class ServerAnswer(Struct, frozen=True):
    """Answer to a request; to a read with the wanted rows, of the state of ``clock``. ``included``: the worker's update
    of the clock that they are for is in it already."""

    partition: int
    status: Status = Status.OK
    generation: int = 0
    term: int = 0
    clock: int = 0
    text: str = ""
    version: int = 0
    included: bool = False
    blocks: Blocks = ()


class UpdateAnswer(ServerAnswer, frozen=True):
    """Answer to an update, with the wanted rows if their state is there already.

    ``steps``: of the update's clock that are there; ``finished``: the worker has sent the last. ``latest_finished``:
    clock that any worker has finished. ``dropped``: it was too old, and counts as an empty one.
    """

    steps: int = 0
    finished: bool = False
    latest_finished: int = 0
    dropped: bool = False


class Grant(ServerAnswer, frozen=True):
    """Answer to an announcement: the update may be sent.

    ``transfer``: its number. ``others``: how many other workers' updates its sender adds to its own. ``grouped``: it is
    added to that of another worker of the host instead. ``dropped``: it is not to be sent. ``unplanned``: transfers of
    its size are too short to be planned.
    """

    transfer: int = 0
    others: int = 0
    grouped: bool = False
    dropped: bool = False
    unplanned: bool = False


AnswerKind = TypeVar("AnswerKind", bound=ServerAnswer)


class ServerRequest(Struct, Generic[AnswerKind], frozen=True):
    """Base of all requests about a partition."""

    partition: int


class Read(ServerRequest[ServerAnswer], frozen=True):
    """Request of rows, as of the state of clock ``state`` or a later one."""

    worker: int = -1
    generation: int = 0
    clock: int = 0
    state: int = 0
    wanted: tuple[RowRequest, ...] = ()


class Update(ServerRequest[UpdateAnswer], frozen=True):
    """One step of what a worker adds at a clock, counted from 0; with the ``last`` it has finished the clock.

    An update may be the sum of several workers' of a host: of ``others``, whose own are empty, and its version is the
    least of all. ``unsent``: it is empty because its content was too old. ``state``: of the ``wanted`` rows.
    """

    worker: int = -1
    generation: int = 0
    clock: int = 0
    step: int = 0
    last: bool = False
    others: int = 0
    version: int = 0
    unsent: bool = False
    blocks: Blocks = ()
    state: int = 0
    wanted: tuple[RowRequest, ...] = ()


class ReplicationDelta(ServerRequest[ServerAnswer], frozen=True):
    """Changes of a partition from clock ``before`` to ``after``, for a replica: the vectors as of ``after``. ``last``:
    no other will follow."""

    sequence: int
    before: int
    after: int
    blocks: Blocks = ()
    last: bool = False
    generation: int = 0
    term: int = 0


class PartKind(IntEnum):
    """Kind of a part of a partition."""

    STATE = 0
    NUMBERS = 1  # the same without vectors
    UNDO = 2
    SUMS = 3
    WAITING = 4
    UPDATE = 5  # a worker's last step of a clock that came while the parts were sent
    WORKERS = 6  # who takes part from a clock on, changed while the parts were sent
    PROBE = 7  # whether there is somebody to take it
    STEP = 8  # as UPDATE, but not the last


class PartitionPart(ServerRequest[ServerAnswer], frozen=True):
    """Part of a partition on its way to another server, or in a file.

    ``attempt``: number of the attempt to bring it, ``term`` of the primary that it is to have. A STATE has the
    ``generation_clock``, with which the generation began; an UNDO the clock ``before`` it; an UPDATE or STEP the
    ``step`` of its worker's clock and of how many ``members`` it is the sum. ``text``: numbers, as JSON.
    """

    kind: PartKind
    generation: int = 0
    term: int = 0
    attempt: int = 0
    generation_clock: int = 0
    clock: int = 0
    before: int = 0
    worker: int = -1
    step: int = 0
    members: int = 0
    blocks: Blocks = ()
    text: str = ""


class Activate(ServerRequest[ServerAnswer], frozen=True):
    """Order to begin in a role with what an attempt has brought; ``text``: the role and the replicas, as JSON."""

    generation: int = 0
    term: int = 0
    attempt: int = 0
    text: str = ""


class Help(ServerRequest[ServerAnswer], frozen=True):
    """Message to a worker from another one; ``text``: one of :mod:`plink.runtime.elastic.helping.messages`."""

    worker: int = -1
    text: str = ""


class HelpResult(ServerRequest[ServerAnswer], frozen=True):
    """A helper's additions to a partition for a worker, to request ``id`` of that one's clock and generation."""

    worker: int
    helper: int
    generation: int
    clock: int
    id: int
    blocks: Blocks = ()


class Announce(ServerRequest[Grant], frozen=True):
    """Announcement of an update, to partition 0, which answers when it may be sent.

    ``size``: bytes that will leave the sender's host. ``text``: address of that host's server and the bytes a second
    that the host carries, 0 where that is not known.
    """

    worker: int = -1
    generation: int = 0
    clock: int = 0
    step: int = 0
    version: int = 0
    size: int = 0
    text: str = ""


Message = ServerAnswer | Read | Update | ReplicationDelta | PartitionPart | Activate | Help | HelpResult | Announce
