"""Gradients of a stage with several replicas: added up in buckets while the backward pass goes on.

Buckets are filled from the last parameter to the first, as gradients come, and reduced in that sequence on every
replica. A replica without a minibatch in a short last update takes part with zeros, or the others would wait for ever.
The last bucket has a number for each parameter besides: how many replicas had a gradient. Where none had, the parameter
has none, as in one process, and the optimiser leaves it alone.
DDP cannot serve: its hooks are on a module's parameters, not on the leaves of a version.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from plink.runtime.allreduce.host_staging import StagedTensor, stage_to_host
from plink.runtime.pipeline.versions import Leaves

DEFAULT_BUCKET_BYTES = 1 << 20


class LocalGradients:
    """All replicas' minibatches are processed here: first added up by replica, then over replicas.

    ``adds_at_once``: add each gradient as soon as it is complete, so that those of a backward pass are never all there
    beside their sums; worth its call for each parameter where an update averages several minibatches.
    """

    def __init__(self, adds_at_once: bool = False) -> None:
        self._adds_at_once = adds_at_once
        self._sums: dict[int, dict[int, dict[str, Tensor]]] = {}
        self._current: dict[str, Tensor] = {}

    def attach(self, leaves: Leaves) -> None:
        """Have autograd report each gradient when it is complete, if it is to be added at once."""
        if self._adds_at_once:
            for name, leaf in leaves.items():
                register: Any = leaf.register_post_accumulate_grad_hook
                register(functools.partial(self._add_one, name))

    def _add_one(self, name: str, leaf: Tensor) -> None:
        assert leaf.grad is not None
        _add({name: leaf.grad}, self._current)
        leaf.grad = None

    def begin(self, update: int, replica: int, is_last: bool) -> None:
        """Select the sums that the next backward pass adds to."""
        self._current = self._sums.setdefault(update, {}).setdefault(replica, {})

    def take(self, leaves: Leaves) -> None:
        """Add the leaves' gradients to the sums."""
        _add({name: leaf.grad for name, leaf in leaves.items() if leaf.grad is not None}, self._current)
        for leaf in leaves.values():
            leaf.grad = None

    def wait(self, update: int) -> None:
        """Do nothing: there is nobody to wait for."""

    def apply(self, update: int, minibatches: int, parameters: Mapping[str, nn.Parameter]) -> None:
        """Set the parameters' gradients; one that took no part has none."""
        by_replica = self._sums.pop(update, {})
        total: dict[str, Tensor] = {}
        for replica in sorted(by_replica):
            _add(by_replica[replica], total)
        for name, parameter in parameters.items():
            gradient = total.get(name)
            parameter.grad = gradient if gradient is None or minibatches == 1 else gradient.div_(minibatches)

    def discard(self, update: int) -> None:
        """Do nothing: the parameters' gradients were the last."""


def _add(gradients: Mapping[str, Tensor], sums: dict[str, Tensor]) -> None:
    for name, gradient in gradients.items():
        sums[name] = gradient if name not in sums else sums[name].add_(gradient)


@dataclass
class _Bucket:
    """Memory for the gradients of some parameters; ``views`` by name. ``missing``: names that it still waits for."""

    flat: Tensor
    views: dict[str, Tensor]
    missing: set[str] = field(default_factory=set)
    filled: set[str] = field(default_factory=set)
    staged: StagedTensor | None = None
    work: Any = None


class _Update:
    """The buckets of one update."""

    def __init__(self, layout: Sequence[Sequence[tuple[str, Tensor]]]) -> None:
        self.buckets = []
        for members in layout:
            size = sum(tensor.numel() for _, tensor in members)
            counts = sum(map(len, layout)) if members is layout[-1] else 0
            flat = members[0][1].new_zeros(size + counts)
            views, offset = {}, 0
            for name, tensor in members:
                views[name] = flat[offset : offset + tensor.numel()].view(tensor.shape)
                offset += tensor.numel()
            self.buckets.append(_Bucket(flat, views))
        self.by_name = {name: bucket for bucket in self.buckets for name in bucket.views}
        self.absent: set[str] = set()
        self.reset()

    def reset(self) -> None:
        """Forget all gradients."""
        self.launched = 0
        self.absent = set()
        for bucket in self.buckets:
            bucket.missing, bucket.filled = set(bucket.views), set()
            bucket.staged = bucket.work = None

    def put_counts(self, bucket: _Bucket) -> None:
        """Write which parameters have a gradient here into the last bucket, once all before it are complete."""
        if bucket is self.buckets[-1]:
            has = [float(name in own.filled) for own in self.buckets for name in own.views]
            bucket.flat[-len(has) :] = torch.tensor(has, dtype=bucket.flat.dtype)

    def read_counts(self, sums: Tensor) -> None:
        """Note which parameters have no gradient on any replica. ``sums``: of the last bucket, in host memory."""
        counts = sums[-len(self.by_name) :].tolist()
        names = [name for own in self.buckets for name in own.views]
        self.absent = {name for name, count in zip(names, counts, strict=True) if count == 0}


class ReducedGradients:
    """The gradients of one replica, and their sums over a group of all replicas."""

    def __init__(self, parameters: Mapping[str, nn.Parameter], group: Any, bucket_bytes: int) -> None:
        self._group = group
        self._layout = _layout([(name, parameter.data) for name, parameter in parameters.items()], bucket_bytes)
        self._updates: dict[int, _Update] = {}
        self._free: list[_Update] = []
        self._current: _Update | None = None
        self._is_last = False

    def attach(self, leaves: Leaves) -> None:
        """Have autograd report each gradient of these leaves when it is complete."""
        for name, leaf in leaves.items():
            register: Any = leaf.register_post_accumulate_grad_hook
            register(self._hook(name))

    def begin(self, update: int, replica: int, is_last: bool) -> None:
        """Begin a backward pass; the last one of an update begins the all-reduce of each bucket that it completes."""
        self._current, self._is_last = self._of(update), is_last

    def take(self, leaves: Leaves) -> None:
        """End the backward pass. Parameters that took no part in it add 0."""
        assert self._current is not None
        if self._is_last:
            for bucket in self._current.buckets:
                bucket.missing.clear()
            self._launch(self._current)
        self._current = None

    def wait(self, update: int) -> None:
        """Wait for the sums."""
        own = self._of(update)
        for bucket in own.buckets:  # none did, where this replica has no minibatch of the update
            bucket.missing.clear()
        self._launch(own)
        for bucket in own.buckets:
            self._reduce(bucket)
        for bucket in own.buckets:
            assert bucket.staged is not None
            bucket.work.wait()
            if bucket is own.buckets[-1]:
                own.read_counts(bucket.staged.flat)
            if bucket.staged.copy_back is not None:
                bucket.staged.copy_back()

    def apply(self, update: int, minibatches: int, parameters: Mapping[str, nn.Parameter]) -> None:
        """Set the parameters' gradients to the means; one that took no part on any replica has none."""
        own = self._updates[update]
        for bucket in own.buckets:
            if minibatches > 1:
                bucket.flat.div_(minibatches)
            for name, view in bucket.views.items():
                parameters[name].grad = None if name in own.absent else view

    def discard(self, update: int) -> None:
        """Let a later update have the memory."""
        own = self._updates.pop(update)
        own.reset()
        self._free.append(own)

    def _of(self, update: int) -> _Update:
        if update not in self._updates:
            self._updates[update] = self._free.pop() if self._free else _Update(self._layout)
        return self._updates[update]

    def _hook(self, name: str) -> Callable[[Tensor], None]:
        def complete(leaf: Tensor) -> None:
            current = self._current
            assert current is not None
            assert leaf.grad is not None
            bucket = current.by_name[name]
            if name in bucket.filled:
                bucket.views[name].add_(leaf.grad)
            else:
                bucket.views[name].copy_(leaf.grad)
                bucket.filled.add(name)
            leaf.grad = None
            if self._is_last:
                bucket.missing.discard(name)
                self._launch(current)

        return complete

    def _launch(self, update: _Update) -> None:
        """Begin the all-reduces of all buckets that are complete, up to the first that is not."""
        while update.launched < len(update.buckets):
            bucket = update.buckets[update.launched]
            if bucket.missing:
                return
            for name, view in bucket.views.items():
                if name not in bucket.filled:
                    view.zero_()
            update.put_counts(bucket)
            bucket.staged = stage_to_host(bucket.flat)
            if bucket.staged.wait_ready is None:
                self._reduce(bucket)
            update.launched += 1

    def _reduce(self, bucket: _Bucket) -> None:
        """Begin the all-reduce of a bucket; one of a GPU begins when its copy to host memory is waited for."""
        assert bucket.staged is not None
        if bucket.work is None:
            if bucket.staged.wait_ready is not None:
                bucket.staged.wait_ready()
            bucket.work = dist.all_reduce(bucket.staged.flat, group=self._group, async_op=True)


Gradients = LocalGradients | ReducedGradients
"""Where the gradients of backward passes go."""


def _layout(tensors: Sequence[tuple[str, Tensor]], bucket_bytes: int) -> list[list[tuple[str, Tensor]]]:
    """Return the members of each bucket: from the last parameter on, of one type each."""
    buckets: list[list[tuple[str, Tensor]]] = []
    size = 0
    kind: tuple[torch.dtype, torch.device] | None = None
    for name, tensor in reversed(tensors):
        if not buckets or size >= bucket_bytes or kind != (tensor.dtype, tensor.device):
            buckets.append([])
            size, kind = 0, (tensor.dtype, tensor.device)
        buckets[-1].append((name, tensor))
        size += tensor.numel() * tensor.element_size()
    return buckets
