"""Messages between the stages of a pipeline, over Gloo: activations forward, gradients back.

A send is never waited for before computing. Receives are posted ahead, for Gloo moves a message only when its receiver
is ready for it. The first message between two ranks says what will cross: as many tensors, of these shapes and types,
with every minibatch. Tensors on a GPU go through host memory.

Memory of messages is bounded by the depth: gradients that arrive for a minibatch confirm its activations, and a
minibatch's activations confirm the gradients of those that its sender must have finished before.
"""

import json
import math
import re
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor

from plink.errors import PlinkError
from plink.model.pipeline.shape import replica_of
from plink.runtime.allreduce.host_staging import stage_to_host
from plink.runtime.pipeline.stage import StagePlace, Value, tensors_of

MIN_POOLED_BYTES = 1 << 17
"""Below it malloc uses memory again by itself (glibc, M_MMAP_THRESHOLD)."""
_MAX_FREE = 8  # buffers of one size


MAX_POSTED = 3
"""Receives posted ahead, each of a minibatch."""
MAX_TENSORS = 200
_MINIBATCH_NUMBERS = 1 << 20  # tags wrap; far more than can be in flight
_HEADER_BYTES = 1 << 14
_HEADER_TAG = (1 << 31) - 2  # above all others
_SOURCE_LINE = re.compile(r"^\[[^\]]*\] *")  # of Gloo, before its message
Direction = Literal["forward", "backward"]
_STREAMS: dict[torch.device, torch.cuda.Stream] = {}


class ReceiveBuffers:
    """Buffers in host memory, by their size.

    The kernel hands out large pieces of new memory page by page: for 16 MB that takes about as long as Gloo takes to
    send them on a fast link. What was received may live on, as a gradient or in a graph that a program keeps, so its
    memory is free only when the last tensor that shares it is gone. Python's reference counts say so: each tensor is
    made of an array, which its storage holds.
    """

    def __init__(self) -> None:
        self._free: dict[int, deque[Tensor]] = {}

    def take(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """Return a tensor with any values, that shares no memory with any other tensor in use."""
        count = math.prod(shape)
        size = count * dtype.itemsize
        if size < MIN_POOLED_BYTES:
            return torch.empty(shape, dtype=dtype)
        free = self._free.setdefault(size, deque(maxlen=_MAX_FREE))
        try:
            memory = free.pop()
        except IndexError:
            memory = torch.empty(size, dtype=torch.uint8)
        array = memory.numpy()
        weakref.finalize(array, free.append, memory)
        return torch.from_numpy(array).view(dtype).view(shape)


class PeerError(PlinkError):
    """A rank sends nothing any more, or sent nothing in time."""

    def __init__(self, peer: int, reason: str) -> None:
        short = _SOURCE_LINE.sub("", reason).split(". ")[0]
        if "closed by peer" in reason or "reset by peer" in reason:
            short = "connection closed"
        super().__init__(f"waits for rank {peer}: {short}")
        self.peer = peer


@dataclass(frozen=True)
class TensorForm:
    """Shape and type of a tensor that crosses, and whether its gradient comes back."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    gradient: bool

    def __str__(self) -> str:
        """Return the form for messages, like ``float32[8, 10]``."""
        return f"{str(self.dtype).removeprefix('torch.')}{list(self.shape)}{'' if self.gradient else ' (no gradient)'}"


@dataclass(frozen=True)
class BoundaryForm:
    """All tensors that cross a boundary with a minibatch. ``is_tuple``: the next layer gets them as one."""

    tensors: tuple[TensorForm, ...]
    is_tuple: bool

    def __str__(self) -> str:
        """Return the forms for messages."""
        return ", ".join(map(str, self.tensors)) or "nothing"

    @classmethod
    def of(cls, value: Any, with_gradients: bool) -> "BoundaryForm":
        """Return the form of what a stage returned."""
        forms = [
            TensorForm(tuple(tensor.shape), tensor.dtype, with_gradients and tensor.requires_grad)
            for tensor in tensors_of(value)
        ]
        if len(forms) > MAX_TENSORS:
            raise PlinkError(f"{len(forms)} tensors cross to the next stage; at most {MAX_TENSORS} can")
        return cls(tuple(forms), not isinstance(value, Tensor))

    def encode(self) -> Tensor:
        """Return the first message."""
        document = {
            "tuple": self.is_tuple,
            "tensors": [
                [list(form.shape), str(form.dtype).removeprefix("torch."), form.gradient] for form in self.tensors
            ],
        }
        data = json.dumps(document).encode()
        if len(data) > _HEADER_BYTES:
            raise PlinkError("too many tensors cross to the next stage")
        return torch.frombuffer(bytearray(data.ljust(_HEADER_BYTES)), dtype=torch.uint8)

    @classmethod
    def decode(cls, message: Tensor) -> "BoundaryForm":
        """Return what the first message says."""
        document = json.loads(bytes(message.tolist()))
        forms = [
            TensorForm(tuple(shape), getattr(torch, kind), gradient) for shape, kind, gradient in document["tensors"]
        ]
        return cls(tuple(forms), document["tuple"])


@dataclass
class _Receive:
    """Receives posted for one minibatch: a buffer and a request for each tensor; None for what is not sent."""

    minibatch: int
    peer: int
    buffers: list[Tensor | None]
    works: list[Any]
    header: tuple[Tensor, Any] | None = None


@dataclass
class _Sent:
    """Messages on their way. They hold the tensors until these are sent."""

    peer: int
    works: list[Any] = field(default_factory=list)
    tensors: list[Tensor] = field(default_factory=list)
    later: "Future[None] | None" = None

    def wait(self) -> None:
        if self.later is not None:
            self.later.result()
        for work in self.works:
            wait_for(work, self.peer)


class StageTransport:
    """One replica's messages with the replicas of the stages before and after it."""

    def __init__(
        self, group: Any, place: StagePlace, replica: int, ranks: Sequence[Sequence[int]], device: torch.device
    ) -> None:
        """:param group: a Gloo group of all ranks. :param ranks: of each stage's replicas."""
        self.sent_bytes = self.received_bytes = 0
        self._group, self._place, self._device = group, place, device
        self._replica, self._ranks = replica, ranks
        shape, stage = place.shape, place.stage
        own = place.own(replica)
        window = min(shape.depths[stage], MAX_POSTED)
        self._buffers = ReceiveBuffers()
        self._sent_forward: dict[int, _Sent] = {}
        self._sent_backward: dict[int, deque[tuple[int, _Sent]]] = {}
        self._greeted: set[int] = set()
        self._form: BoundaryForm | None = None  # of what is sent forward
        self._sender = ThreadPoolExecutor(1, "plink-send") if device.type != "cpu" else None
        self._activations = _ReceiveQueue(self._post_activations, own if stage else range(0), window)
        self._gradients = _ReceiveQueue(self._post_gradients, own, window)
        self._expected: BoundaryForm | None = None  # of what is received forward
        self._peers_checked: set[int] = set()

    def peer(self, direction: Direction, minibatch: int) -> int:
        """Return the rank of the next stage (forward) or the one before that processes a minibatch."""
        stage = self._place.stage + (1 if direction == "forward" else -1)
        return self._ranks[stage][replica_of(self._place.shape, stage, minibatch)]

    def send_forward(self, minibatch: int, value: Any) -> None:
        """Begin to send what this stage hands on."""
        form = BoundaryForm.of(value, not self._place.is_frozen)
        is_first = self._form is None
        if is_first:
            self._form = form
        elif form != self._form:
            raise PlinkError(f"the stage handed on {form}; {self._form} for the minibatches before")
        peer = self.peer("forward", minibatch)
        messages: list[tuple[Tensor, int]] = []
        if peer not in self._greeted:
            self._greeted.add(peer)
            messages.append((form.encode(), _HEADER_TAG))
        count = len(form.tensors)
        messages += [
            (tensor.detach(), _tag(minibatch, index, count, "forward"))
            for index, tensor in enumerate(tensors_of(value))
        ]
        self._sent_forward[minibatch] = self._send(peer, messages)
        if self._place.is_frozen:  # no gradients confirm them
            while len(self._sent_forward) > max(2, self._place.shape.depths[self._place.stage]):
                self._sent_forward.pop(min(self._sent_forward)).wait()
        elif is_first:
            self._gradients.post_ahead()

    def receive_forward(self, minibatch: int) -> Value:
        """Return what the stage before hands on, as leaves of a graph of their own where they have gradients."""
        receive = self._activations.take(minibatch)
        expected = self._expected
        if receive.header is not None:
            sent = BoundaryForm.decode(receive.header[0])
            self._expected = sent if expected is None else expected
            if sent != self._expected:
                raise PlinkError(f"rank {receive.peer} sends {sent}, other replicas of its stage {expected}")
        assert self._expected is not None
        tensors = []
        for form, buffer in zip(self._expected.tensors, receive.buffers, strict=True):
            assert buffer is not None
            tensors.append(self._to_device(buffer).requires_grad_(form.gradient))
        self._confirm_gradients(minibatch)
        return tuple(tensors) if self._expected.is_tuple else tensors[0]

    def send_backward(self, minibatch: int, gradients: Sequence[Tensor]) -> None:
        """Begin to send the gradients of what the stage before handed on."""
        assert self._expected is not None
        indices = [index for index, form in enumerate(self._expected.tensors) if form.gradient]
        peer = self.peer("backward", minibatch)
        count = len(self._expected.tensors)
        messages = [
            (gradient, _tag(minibatch, index, count, "backward"))
            for index, gradient in zip(indices, gradients, strict=True)
        ]
        self._sent_backward.setdefault(peer, deque()).append((minibatch, self._send(peer, messages)))

    def receive_backward(self, minibatch: int) -> list[Tensor]:
        """Return the gradients of what this stage handed on, of the tensors that have one."""
        receive = self._gradients.take(minibatch)
        # The receiver had the activations before it made these.
        self._sent_forward.pop(minibatch).wait()
        return [self._to_device(buffer) for buffer in receive.buffers if buffer is not None]

    def finish(self) -> None:
        """Wait until everything was sent."""
        for sent in self._sent_forward.values():
            sent.wait()
        for queue in self._sent_backward.values():
            for _, sent in queue:
                sent.wait()
        self.close()

    def close(self) -> None:
        """End the sending thread, if there is one."""
        if self._sender is not None:
            self._sender.shutdown(wait=False, cancel_futures=True)

    def _confirm_gradients(self, minibatch: int) -> None:
        """Let go of gradients that the sender of a minibatch must have received before its forward pass."""
        shape, before = self._place.shape, self._place.stage - 1
        peer = self.peer("backward", minibatch)
        window = max(shape.depths[before], shape.accumulate // shape.replicas[before])
        received = minibatch - window * shape.replicas[before]
        queue = self._sent_backward.get(peer, deque())
        while queue and queue[0][0] <= received:
            queue.popleft()[1].wait()

    def _post_activations(self, minibatch: int) -> _Receive | None:
        """Post the receives of a minibatch's activations; None before it is known what they are."""
        peer = self.peer("backward", minibatch)
        header = None
        if peer not in self._peers_checked:
            self._peers_checked.add(peer)
            message = torch.empty(_HEADER_BYTES, dtype=torch.uint8)
            with _blaming(peer):
                header = message, self._group.recv([message], peer, _HEADER_TAG)
            self.received_bytes += message.nbytes
            if self._expected is None:
                wait_for(header[1], peer)  # once: a second time it would wait for another message
                self._expected = BoundaryForm.decode(message)
                header = None
        assert self._expected is not None
        receive = _Receive(minibatch, peer, [], [], header)
        for index, form in enumerate(self._expected.tensors):
            self._post(receive, form, _tag(minibatch, index, len(self._expected.tensors), "forward"))
        return receive

    def _post_gradients(self, minibatch: int) -> _Receive | None:
        if self._form is None:
            return None
        receive = _Receive(minibatch, self.peer("forward", minibatch), [], [])
        for index, form in enumerate(self._form.tensors):
            if form.gradient:
                self._post(receive, form, _tag(minibatch, index, len(self._form.tensors), "backward"))
            else:
                receive.buffers.append(None)
        return receive

    def _post(self, receive: _Receive, form: TensorForm, tag: int) -> None:
        if self._device.type == "cuda":  # torch keeps pinned memory
            buffer = torch.empty(form.shape, dtype=form.dtype, pin_memory=True)
        else:
            buffer = self._buffers.take(form.shape, form.dtype)
        receive.buffers.append(buffer)
        self.received_bytes += buffer.nbytes  # all that is posted comes, or the rank fails
        if buffer.numel():
            with _blaming(receive.peer):
                receive.works.append(self._group.recv([buffer], receive.peer, tag))

    def _send(self, peer: int, messages: Sequence[tuple[Tensor, int]]) -> _Sent:
        messages = [(tensor, tag) for tensor, tag in messages if tensor.numel()]
        self.sent_bytes += sum(tensor.nbytes for tensor, _ in messages)
        if self._sender is None:
            sent = _Sent(peer)
            for tensor, tag in messages:
                sent.tensors.append(tensor.contiguous())
                with _blaming(peer):
                    sent.works.append(self._group.send([sent.tensors[-1]], peer, tag))
            return sent
        staged = [(stage_to_host(tensor), tag) for tensor, tag in messages]
        sent = _Sent(peer, tensors=[tensor for tensor, _ in messages])

        def send_when_ready() -> None:
            for tensor, tag in staged:
                if tensor.wait_ready is not None:
                    tensor.wait_ready()
                with _blaming(peer):
                    sent.works.append(self._group.send([tensor.flat], peer, tag))

        sent.later = self._sender.submit(send_when_ready)
        return sent

    def _to_device(self, buffer: Tensor) -> Tensor:
        if self._device.type == "cpu":
            return buffer
        if self._device.type != "cuda":
            return buffer.to(self._device)
        # In a stream of its own, so that the copy does not wait for the passes that are queued.
        current, copying = torch.cuda.current_stream(self._device), _copy_stream(self._device)
        with torch.cuda.stream(copying):
            tensor = buffer.to(self._device, non_blocking=True)
        current.wait_stream(copying)
        tensor.record_stream(current)
        return tensor


class _ReceiveQueue:
    """Receives of minibatches in their sequence, posted ahead."""

    def __init__(self, post: Callable[[int], _Receive | None], minibatches: range, window: int) -> None:
        self._post, self._minibatches, self._window = post, minibatches, window
        self._next = 0
        self._posted: deque[_Receive] = deque()

    def take(self, minibatch: int) -> _Receive:
        """Wait for the messages of the next minibatch, and post more receives."""
        self.post_ahead()
        receive = self._posted.popleft()
        assert receive.minibatch == minibatch
        for work in [*([] if receive.header is None else [receive.header[1]]), *receive.works]:
            wait_for(work, receive.peer)
        self.post_ahead()
        return receive

    def post_ahead(self) -> None:
        """Post receives up to the window."""
        while len(self._posted) < self._window and self._next < len(self._minibatches):
            receive = self._post(self._minibatches[self._next])
            if receive is None:
                return
            self._posted.append(receive)
            self._next += 1


def wait_for(work: Any, peer: int) -> None:
    """Wait for a message.

    :raises PeerError: when there will be none.
    """
    with _blaming(peer):
        work.wait()


@contextmanager
def _blaming(peer: int) -> Iterator[None]:
    """Turn Gloo's errors into those of a rank."""
    try:
        yield
    except RuntimeError as error:
        raise PeerError(peer, str(error)) from None


def _copy_stream(device: torch.device) -> torch.cuda.Stream:
    if device not in _STREAMS:
        new: Any = torch.cuda.Stream
        _STREAMS[device] = new(device)
    return _STREAMS[device]


def _tag(minibatch: int, index: int, count: int, direction: Direction) -> int:
    """Return a message's tag, below 2^31 less 2."""
    return minibatch % _MINIBATCH_NUMBERS * 2 * count + 2 * index + (direction == "backward")
