"""A host of an elastic job, as its controller and its supervisor know it."""

from dataclasses import asdict, dataclass, field
from typing import Any

from solvers.elastic.placement.hosts import Host, Tier


@dataclass(frozen=True)
class Member:
    """``at``: its address. ``hello``: what its node sent first. ``address``: of its server, once that listens."""

    number: int
    name: str
    tier: str
    slots: int
    price: float | None = None
    at: str = ""
    hello: dict[str, Any] = field(default_factory=dict)
    rate: float | None = None
    rack: str = ""
    address: str = ""

    @property
    def host(self) -> Host:
        """As the placement knows it."""
        return Host(self.number, self.name, Tier(self.tier), self.slots, self.rate, self.rack)

    @property
    def reliable(self) -> bool:
        """Whether it is a reliable host."""
        return self.tier == Tier.RELIABLE.value

    def line(self, event: str, why: str, seconds: float | None = None) -> dict[str, Any]:
        """Return the log line of an event of this host; ``seconds``: that it may stay."""
        return {
            "what": "host", "host": self.name, "number": self.number, "tier": self.tier, "slots": self.slots,
            "price": self.price, "event": event, "seconds": seconds, "why": why,
        }  # fmt: skip

    def to_json(self) -> dict[str, Any]:
        """As it travels from the supervisor to the controller."""
        return {name: value for name, value in asdict(self).items() if name != "address"}
