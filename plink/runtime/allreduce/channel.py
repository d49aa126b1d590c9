"""Data channel: runs its steps of a program in order, with receptions posted ahead of time."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from plink.runtime.allreduce.algorithm_selection import Waitable
from plink.runtime.allreduce.program import ADD, COPY, SEND, ProgramStep
from plink.runtime.allreduce.reductions import Combine
from plink.runtime.allreduce.transport import Transport

# A channel posts receptions ahead while at most this many bytes are in flight to it, and two messages in any case, so
# that one arrives while another is added. More would fill the network's queues and delay Gloo's control messages. Where
# many send at once (to a hub), three messages of each: fewer, and a sender waits for the others' and for this thread.
MAX_POSTED_BYTES = 4 << 20
_POSTED_OF_EACH = 3


class MergeBuffers:
    """Merge buffers of one channel, reused between all-reduces: fresh memory costs a page fault per 4 KB."""

    def __init__(self) -> None:
        self._free: dict[tuple[torch.dtype, torch.device], list[torch.Tensor]] = {}

    def take(self, like: torch.Tensor, size: int) -> torch.Tensor:
        """Return a buffer of ``size`` elements or more, of the type and on the device of ``like``."""
        free = self._free.get((like.dtype, like.device), [])
        while free:
            if len(buffer := free.pop()) >= size:
                return buffer
        return like.new_empty(size)

    def give(self, buffer: torch.Tensor, max_bytes: int = MAX_POSTED_BYTES) -> None:
        """Return a buffer to the pool, which keeps two of each type, or as many as a channel needs at a time."""
        free = self._free.setdefault((buffer.dtype, buffer.device), [])
        if len(free) < 2 or sum(other.nbytes for other in free) + buffer.nbytes <= max_bytes:
            free.append(buffer)


@dataclass(frozen=True)
class DataChannel:
    """One of a rank's parallel connections to each peer, with the merge buffers of its thread."""

    number: int
    buffers: MergeBuffers = field(default_factory=MergeBuffers)


def run_channel(
    channel: DataChannel,
    steps: Sequence[ProgramStep],
    flat: torch.Tensor,
    combine: Combine,
    transport: Transport,
    tag: int,
) -> None:
    """Execute the steps on a contiguous vector; returns when everything sent has left."""
    number, buffers = channel.number, channel.buffers
    receptions = [step for step in steps if step.kind != SEND]
    posted: deque[tuple[torch.Tensor, Waitable]] = deque()
    next_reception = 0
    added = [step for step in receptions if step.kind == ADD]
    buffer_elements = max((step.stop - step.start for step in added), default=0)
    of_each = _POSTED_OF_EACH * len({step.peer for step in added}) * buffer_elements
    max_posted, in_flight = max(MAX_POSTED_BYTES // flat.element_size(), of_each), 0
    sends: list[tuple[int, Waitable] | None] = []

    def wait_for_send(k: int) -> None:
        """Wait for a send, but only once: a second wait would wait for another message of Gloo's."""
        send, sends[k] = sends[k], None
        if send is not None:
            peer, pending = send
            transport.wait(pending, peer, number)

    def post(required: bool) -> bool:
        """Post the next reception, if the limits allow."""
        nonlocal next_reception, in_flight
        step = receptions[next_reception]
        size = step.stop - step.start
        posted_elements = buffer_elements if step.kind == ADD else size
        if in_flight + posted_elements > max_posted and len(posted) > 1:
            return False
        if step.kind == ADD:
            buffer = buffers.take(flat, buffer_elements)
            target = buffer[:size]
        else:
            if not step.early and not required:
                return False
            for k in step.after_sends:
                wait_for_send(k)
            buffer = target = flat[step.start : step.stop]
        posted.append((buffer, transport.receive(target, step.peer, number, tag)))
        next_reception += 1
        in_flight += posted_elements
        return True

    total = len(receptions)
    for step in steps:
        while next_reception < total and post(False):
            pass
        if step.kind == SEND:
            for k in step.after_sends:
                wait_for_send(k)
            pending = transport.send(flat[step.start : step.stop], step.peer, number, tag)
            sends.append((step.peer, pending))
            continue
        if not posted:
            post(True)
        buffer, pending = posted.popleft()
        transport.wait(pending, step.peer, number)
        in_flight -= buffer_elements if step.kind == ADD else step.stop - step.start
        if step.kind == COPY:
            continue
        for k in step.after_sends:
            wait_for_send(k)
        combine(flat[step.start : step.stop], buffer[: step.stop - step.start])
        buffers.give(buffer, max_posted * flat.element_size())
    for k in range(len(sends)):
        wait_for_send(k)
