"""Entry point ``plink`` of the group ``torchrun.handlers``: ``torchrun --rdzv-backend=plink``.

Every torchrun on the machine loads this, whatever its backend: imports are deferred.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch.distributed.elastic.rendezvous import RendezvousHandler, RendezvousParameters


def entry_point() -> Callable[[RendezvousParameters], RendezvousHandler]:
    """Return the factory that torchrun registers under the name of the entry point."""
    return create


def create(parameters: RendezvousParameters) -> RendezvousHandler:
    """Return the rendezvous of one torchrun.

    :raises ValueError: for an elastic ``--nnodes=A:B``, and for an invalid setting of ``--rdzv-conf``.
    """
    from plink.runtime.rendezvous import PlinkRendezvous, requested_processes

    return PlinkRendezvous(parameters, requested_processes())
