"""One lane at work: its actions in their order, with receptions begun ahead of time."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from plink.runtime.aggengine.program import ADD, COPY, SEND, Action
from plink.runtime.aggengine.reductions import Combine
from plink.runtime.aggengine.transport import Pending, Transport

# A lane receives ahead of what it works on as long as no more than so many bytes are under way to it, and two messages
# at any rate, so that one arrives while another is added. More would wait in queues of the network, and with them the
# short messages by which Gloo's ends agree.
ROOM_BYTES = 4 << 20


class Buffers:
    """Merge buffers of one lane, kept between all-reduces: fresh memory costs a page fault for every 4 KB of it."""

    def __init__(self) -> None:
        self._kept: dict[tuple[torch.dtype, torch.device], list[torch.Tensor]] = {}

    def take(self, like: torch.Tensor, size: int) -> torch.Tensor:
        """One of ``size`` elements or more, of the type and on the device of ``like``."""
        kept = self._kept.get((like.dtype, like.device), [])
        while kept:
            if len(one := kept.pop()) >= size:
                return one
        return like.new_empty(size)

    def give(self, one: torch.Tensor) -> None:
        """It is free again; kept while those of its type are no more than a lane needs at a time, which is two at any
        rate."""
        kept = self._kept.setdefault((one.dtype, one.device), [])
        if len(kept) < 2 or sum(other.nbytes for other in kept) + one.nbytes <= ROOM_BYTES:
            kept.append(one)


@dataclass(frozen=True)
class Lane:
    """One of a rank's parallel connections to each peer, with the merge buffers of the one thread that uses it."""

    number: int
    buffers: Buffers = field(default_factory=Buffers)


def run_lane(
    lane: Lane, actions: Sequence[Action], flat: torch.Tensor, combine: Combine, transport: Transport, signature: int
) -> None:
    """Execute the actions on a contiguous vector; returns when all that was sent has left."""
    number, buffers = lane.number, lane.buffers
    receptions = [action for action in actions if action.what != SEND]
    begun: deque[tuple[torch.Tensor, Pending]] = deque()
    ahead = 0
    largest = max((action.stop - action.start for action in receptions if action.what == ADD), default=0)
    room, under_way = ROOM_BYTES // flat.element_size(), 0
    sent: list[tuple[int, Pending] | None] = []

    def left(k: int) -> None:
        """Wait for a send, once: Gloo would wait for another one."""
        one, sent[k] = sent[k], None
        if one is not None:
            peer, pending = one
            transport.wait(pending, peer, number)

    def begin(must: bool) -> bool:
        """Begin the next reception, if it may be."""
        nonlocal ahead, under_way
        action = receptions[ahead]
        size = action.stop - action.start
        takes = largest if action.what == ADD else size
        if under_way + takes > room and len(begun) > 1:
            return False
        if action.what == ADD:
            where = buffers.take(flat, largest)
            target = where[:size]
        else:
            if not action.early and not must:
                return False
            for k in action.after_sends:
                left(k)
            where = target = flat[action.start : action.stop]
        begun.append((where, transport.receive(target, action.peer, number, signature)))
        ahead += 1
        under_way += takes
        return True

    most = len(receptions)
    for action in actions:
        while ahead < most and begin(False):
            pass
        if action.what == SEND:
            sending = transport.send(flat[action.start : action.stop], action.peer, number, signature)
            sent.append((action.peer, sending))
            continue
        if not begun:
            begin(True)
        where, pending = begun.popleft()
        transport.wait(pending, action.peer, number)
        under_way -= largest if action.what == ADD else action.stop - action.start
        if action.what == COPY:
            continue
        for k in action.after_sends:
            left(k)
        combine(flat[action.start : action.stop], where[: action.stop - action.start])
        buffers.give(where)
    for k in range(len(sent)):
        left(k)
