"""What a turn is tried with: a job on paper, a channel whose words are kept, answers when a test says so."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from runners.agile.channel import Channel
from runners.agile.turns import Pieces, Share, Turns


@dataclass
class PaperJob:
    """``hosts``: slots by number; who is in it is alive."""

    hosts: dict[int, int]
    serves: tuple[int, ...] = (0, 0)
    clock: int = -1
    in_memory: dict[int, frozenset[int]] = field(default_factory=dict)
    served: bool = True
    turned_at: list[tuple[int, dict[int, Share]]] = field(default_factory=list)

    def alive(self, host: int) -> bool:
        return host in self.hosts

    def slots(self, host: int) -> int:
        return self.hosts[host]

    def owners(self) -> tuple[int, ...]:
        return self.serves

    def reached(self) -> int:
        return self.clock

    def loaded(self, host: int) -> frozenset[int]:
        return self.in_memory.get(host, frozenset())

    def ready(self) -> bool:
        return self.served

    def turned(self, first: int, shares: Mapping[int, Share]) -> None:
        self.turned_at.append((first, dict(shares)))


class Table:
    """Turns, the job and what was said; ``later`` is done when a test says so."""

    def __init__(self, hosts: Mapping[int, int], wanted: Mapping[int, Pieces], **job: Any) -> None:
        self.said: list[dict[str, Any]] = []
        self.later: list[Callable[[], None]] = []
        self.job = PaperJob(dict(hosts), **job)
        self.channel = Channel(self.said.append, 1)
        number = sum(len(pieces) for pieces in wanted.values())
        self.turns = Turns(self.channel, self.job, number, lambda seconds, does: self.later.append(does))
        self.turns.wanted = dict(wanted)

    def open(self, do: str = "") -> list[dict[str, Any]]:
        """Words that want an answer and have none yet, of a kind."""
        asked = self.channel._asked
        return [word for word in self.said if word.get("id") in asked and word["do"].startswith(do)]

    def words(self, do: str, host: int | None = None) -> list[dict[str, Any]]:
        """All of a kind."""
        return [word for word in self.said if word["do"] == do and host in (None, word["to"])]

    def answer(self, word: Mapping[str, Any], why: str | None = None, **more: Any) -> None:
        """One of them is."""
        self.channel.answered(word["to"], {"id": word["id"], "why": why, **more})

    def hold(self, begun: int = -1) -> None:
        """Everybody says what has begun."""
        for word in self.open("hold"):
            self.answer(word, begun=begun)

    def part(self) -> None:
        """All owners know who takes part."""
        for word in self.open("take_part"):
            self.answer(word, elsewhere=[])

    def first(self) -> "Table":
        """The first turn is over."""
        self.turns.look()
        self.part()
        return self

    def want(self, wanted: Mapping[int, Pieces]) -> None:
        """Something was decided."""
        self.turns.wanted = dict(wanted)
        self.turns.look()

    def die(self, *hosts: int, wanted: Mapping[int, Pieces] | None = None) -> None:
        """Some are gone at once; ``wanted``: what is decided then."""
        for host in hosts:
            self.job.hosts.pop(host, None)
        if wanted is not None:
            self.turns.wanted = dict(wanted)
        for host in hosts:
            self.channel.gone(host)
        self.turns.look()

    def wait(self) -> None:
        """What was put off is done."""
        some, self.later[:] = list(self.later), []
        for does in some:
            does()
