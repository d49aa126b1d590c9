"""Gradients of a stage, from its backward passes to its update, which averages over some minibatches."""

import functools
from collections.abc import Mapping
from typing import Any, Protocol

from torch import Tensor, nn

from plink.runtime.pipeline.versions import Leaves


class Gradients(Protocol):
    """Where the gradients of backward passes go."""

    def attach(self, leaves: Leaves) -> None:
        """Prepare the leaves of a new version."""

    def begin(self, update: int, replica: int, is_last: bool) -> None:
        """Begin a backward pass, whose gradients belong to this update; ``is_last``: of this process."""

    def take(self, leaves: Leaves) -> None:
        """End the backward pass: its gradients are those of the leaves."""

    def wait(self, update: int) -> None:
        """Wait for the gradients of other replicas."""

    def apply(self, update: int, minibatches: int, parameters: Mapping[str, nn.Parameter]) -> None:
        """Set the parameters' gradients to the mean over so many minibatches."""

    def discard(self, update: int) -> None:
        """Forget the gradients of an update that was made."""


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
