"""A host of an elastic job, as its controller and its supervisor know it."""

from dataclasses import dataclass
from typing import Any

from plink.model.elastic.reports import Hello, OtherVersion
from solvers.elastic.placement.hosts import JobHost, Tier


@dataclass(frozen=True)
class Member:
    """Host of a job.

    ``at``: its address. ``hello``: the first message of its node. ``address``: of its server, once that listens.
    """

    number: int
    name: str
    tier: str
    slots: int
    price: float | None = None
    at: str = ""
    hello: Hello | OtherVersion | None = None
    rate: float | None = None
    rack: str = ""
    address: str = ""

    @property
    def host(self) -> JobHost:
        """Return the host as the placement knows it."""
        return JobHost(self.number, self.name, Tier(self.tier), self.slots, self.rate, self.rack)

    @property
    def program(self) -> Hello:
        """Return what its node reported of its program."""
        assert isinstance(self.hello, Hello)
        return self.hello

    @property
    def reliable(self) -> bool:
        """Return whether it is a reliable host."""
        return self.tier == Tier.RELIABLE.value

    def line(self, event: str, reason: str, seconds: float | None = None) -> dict[str, Any]:
        """Return the log line of an event of this host; ``seconds``: that it may stay."""
        return {
            "what": "host", "host": self.name, "number": self.number, "tier": self.tier, "slots": self.slots,
            "price": self.price, "event": event, "seconds": seconds, "why": reason,
        }  # fmt: skip
