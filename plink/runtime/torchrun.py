"""The entry point ``plink`` of the group ``torchrun.handlers``: ``torchrun --rdzv-backend=plink``.

Every torchrun on the machine loads this, whatever backend it was asked for: nothing is imported before it is needed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch.distributed.elastic.rendezvous import RendezvousHandler, RendezvousParameters


def entry_point() -> Callable[[RendezvousParameters], RendezvousHandler]:
    """What torchrun registers under the name of the entry point."""
    return create


def create(parameters: RendezvousParameters) -> RendezvousHandler:
    """The rendezvous of one torchrun.

    :raises ValueError: for an elastic ``--nnodes=A:B``, and for a setting of ``--rdzv-conf`` that cannot be.
    """
    from plink.runtime.rendezvous import PlinkRendezvous, processes_asked_for

    return PlinkRendezvous(parameters, processes_asked_for())
