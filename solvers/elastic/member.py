"""A host of an elastic job, as its controller and its supervisor know it."""

from dataclasses import dataclass
from typing import Any

from plink.model.elastic.reports import Hello, OtherVersion


@dataclass(frozen=True)
class Member:
    """Host of a job.

    ``number``: of its joining, never given twice, so that the smaller one has been running longer and a host that comes
    back under its old name is another one. ``tier``: reliable hosts stay; transient ones may be taken away with a
    warning, or without (Harlap thesis, 4.2). ``slots``: workers on it; its share of the input data goes by them.
    ``at``: its address. ``hello``: the first message of its node. ``rate``: bytes a second that it carries in either
    direction, None where nobody has measured it. ``rack``: hosts of one name may be lost together; empty where it is
    not known. ``address``: of its server, once that listens.
    """

    number: int
    name: str
    tier: str
    slots: int = 1
    price: float | None = None
    at: str = ""
    hello: Hello | OtherVersion | None = None
    rate: float | None = None
    rack: str = ""
    address: str = ""

    @property
    def program(self) -> Hello:
        """Return what its node reported of its program."""
        assert isinstance(self.hello, Hello)
        return self.hello

    @property
    def reliable(self) -> bool:
        """Return whether it is a reliable host."""
        return self.tier == "reliable"

    def line(self, event: str, reason: str, seconds: float | None = None) -> dict[str, Any]:
        """Return the log line of an event of this host; ``seconds``: that it may stay."""
        return {
            "what": "host",
            "host": self.name,
            "number": self.number,
            "tier": self.tier,
            "slots": self.slots,
            "price": self.price,
            "event": event,
            "seconds": seconds,
            "why": reason,
        }
