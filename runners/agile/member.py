"""A host of an elastic job, as its controller and its hub know it."""

from dataclasses import dataclass, field
from typing import Any

from plink.runtime.agileml.carried import Carried
from solvers.elastic.placement.hosts import Host, Tier


@dataclass
class Member:
    """``address``: of its server, once that listens. ``hello``: what its node said first. ``heard_s``: when it was
    heard of last, in seconds in which the controller listened."""

    number: int
    name: str
    tier: str
    slots: int
    price: float | None = None
    at: str = ""
    hello: dict[str, Any] = field(default_factory=dict)
    address: str = ""
    heard_s: float = 0.0
    carried: Carried = field(default_factory=Carried)
    rate: float | None = None
    rack: str = ""

    @property
    def host(self) -> Host:
        """As the decisions know it."""
        return Host(self.number, self.name, Tier(self.tier), self.slots, self.rate, self.rack)

    def line(self, event: str, why: str, seconds: float | None = None) -> dict[str, Any]:
        """Of the run's log: what happens to it. ``seconds``: that it may stay."""
        return {
            "what": "host", "host": self.name, "number": self.number, "tier": self.tier, "slots": self.slots,
            "price": self.price, "event": event, "seconds": seconds, "why": why,
        }  # fmt: skip

    def to_json(self) -> dict[str, Any]:
        """As it travels between hub and controller."""
        return {
            "number": self.number, "name": self.name, "tier": self.tier, "slots": self.slots, "price": self.price,
            "at": self.at, "hello": self.hello, "rate": self.rate, "rack": self.rack,
        }  # fmt: skip
