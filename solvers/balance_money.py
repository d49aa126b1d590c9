"""Price of workers, hubs and their network by parts (Luo 2020, 6.1.10)."""

from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta

from plink.model.types import PositiveInt, Quantity


@dataclass(frozen=True)
class NetworkParts:
    """Prices of parts in one currency. ``worker``: a host without ``accelerators``, the price of all that one host has.

    Each link is an interface, a switch port and a cable, and its part of the network above the first switch: 4 ports
    and 2 cables over ``oversubscription`` (2 for 2:1). A worker has one link, a hub ``hub_interfaces``.
    """

    worker: Quantity
    accelerators: Quantity
    interface: Quantity
    switch_port: Quantity
    cable: Quantity
    hub: Quantity
    hub_interface: Quantity
    hub_interfaces: PositiveInt
    oversubscription: Annotated[float, Meta(ge=1, lt=1e15)] = 1.0

    def link(self, interface: float) -> float:
        """Return the price of a link with an interface of this price."""
        above = (4 * self.switch_port + 2 * self.cable) / self.oversubscription
        return interface + self.switch_port + self.cable + above

    def total(self, workers: float, hubs: float) -> float:
        """Return the price of so many hosts with ranks, and so many hubs."""
        of_worker = self.worker + self.accelerators + self.link(self.interface)
        return workers * of_worker + hubs * (self.hub + self.hub_interfaces * self.link(self.hub_interface))
