"""Weight stashing: a minibatch uses one version of a stage's parameters in both passes (Harlap thesis, 5.3.3).

A version is a set of leaf tensors. What autograd saves refers to these, and never to the parameters that the optimiser
changes, so no update touches a minibatch in flight. The leaves of the current version share the parameters' memory; an
update moves the parameters to other memory first if somebody still needs the version (copy on write).
"""

from collections import Counter
from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

Leaves = dict[str, Tensor]


class StashedVersions:
    """The versions of some parameters, by number: ``current`` updates were made so far."""

    def __init__(self, parameters: Mapping[str, nn.Parameter], on_leaves: Callable[[Leaves], None]) -> None:
        """:param on_leaves: called with the leaves of each version that is made."""
        self.current = 0
        self._parameters = dict(parameters)
        self._on_leaves = on_leaves
        self._users: Counter[int] = Counter()
        self._oldest_needed = 0
        self._free: list[list[Tensor]] = []
        self._leaves = {0: self._make_leaves()}

    def restore(self, current: int, older: Mapping[int, Mapping[str, Tensor]]) -> None:
        """Begin with other versions; the parameters have the values of the current one.

        :param older: values of versions that a later forward pass uses, which are kept as they are.
        """
        self.current = current
        self._leaves = {}
        for number, values in older.items():
            self._leaves[number] = {name: value.requires_grad_() for name, value in values.items()}
            self._on_leaves(self._leaves[number])
        self._leaves[current] = self._make_leaves()
        self._oldest_needed = min(self._leaves)

    def values(self, number: int) -> Leaves:
        """Return a version that is kept, to be read."""
        return {name: leaf.detach() for name, leaf in self._leaves[number].items()}

    @property
    def numbers(self) -> list[int]:
        """The versions that are kept."""
        return sorted(self._leaves)

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self._leaves)

    def acquire(self, number: int) -> Leaves:
        """Return the leaves of a version, which stay as they are until it is released."""
        leaves = self._leaves[number]
        self._users[number] += 1
        return leaves

    def release(self, number: int) -> None:
        """End a use of a version."""
        self._users[number] -= 1
        self._drop()

    def advance(self, oldest_needed: int) -> None:
        """Begin the next version, whose values the optimiser then writes into the parameters.

        :param oldest_needed: the oldest version that a later forward pass uses.
        """
        self._oldest_needed = oldest_needed
        self._drop()  # first: the new version may have the memory
        if not self._parameters:
            leaves: Leaves = {}
        elif self._users[self.current] > 0 or oldest_needed <= self.current:
            values = [parameter.data for parameter in self._parameters.values()]
            memory = self._free.pop() if self._free else [torch.empty_like(value) for value in values]
            torch._foreach_copy_(memory, values)
            for parameter, value in zip(self._parameters.values(), memory, strict=True):
                parameter.data = value
            leaves = self._make_leaves()
        else:
            leaves = self._leaves.pop(self.current)
        self.current += 1
        self._leaves[self.current] = leaves
        self._drop()

    def _make_leaves(self) -> Leaves:
        # .data shares the memory, but not the counter by which autograd detects changes.
        leaves = {name: parameter.data.requires_grad_() for name, parameter in self._parameters.items()}
        self._on_leaves(leaves)
        return leaves

    def _drop(self) -> None:
        for number in [number for number in self._leaves if number < min(self.current, self._oldest_needed)]:
            if self._users[number] == 0:
                self._free.append([leaf.data for leaf in self._leaves.pop(number).values()])
                del self._users[number]
