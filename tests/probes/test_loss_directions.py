"""Losses are told by their direction however long the way is. Two ends, a link and a clock that are simulated."""

import heapq
import itertools
import socket
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

import probes.agent.echo as echo
from probes.agent.echo import Session
from probes.datagrams import Inbox
from probes.stamp import Key, ntp_from_ns, pack_reflector, unpack_reflector, unpack_sender
from tests.probes.echo_peers import GREETINGS, HERE, THERE, task

KEY = Key(b"the key of this run")
COUNT, PORT = 400, 9
LOST = frozenset({0, 1, 7, 50, 51, 52, 120, 300})
OTHERS = frozenset({3, 60, 200})  # none of the last: that an answer was sent is known from those that come after it
Lost = Callable[[bool, int], bool]  # (back, sequence) -> whether the link loses it


class Link:
    """Two sessions, a and b, that measure each other over a way of ``one_way_s``; what is on it, by its arrival.

    ``lost`` says what it loses of what a sends and of the answers to it, ``late_s`` what it holds up, ``twice`` whether
    every packet arrives two times.
    """

    def __init__(self, one_way_s: float, lost: Lost, late_s: Callable[[bool, int], float], twice: bool = False) -> None:
        self.one_way_s, self.lost, self.late_s, self.twice = one_way_s, lost, late_s, twice
        self.now_s = 1000.0
        self.arrived = 0  # probes of a at b
        self._on_the_way: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self.greetings = 0  # that a has sent

    def carry(self, arrive: Callable[[], None], of_a: bool, back: bool, sequence: int) -> None:
        """Put one packet on its way."""
        if of_a and self.lost(back, sequence):
            return
        at_s = self.now_s + self.one_way_s + (self.late_s(back, sequence) if of_a else 0.0)
        for copy in range(1 + self.twice):
            heapq.heappush(self._on_the_way, (at_s + copy * 1e-5, next(self._order), arrive))

    def until(self, time_s: float) -> None:
        """Go on to a time, or to the next arrival before it."""
        if self._on_the_way and self._on_the_way[0][0] <= time_s:
            self.now_s, _, arrive = heapq.heappop(self._on_the_way)
            arrive()
        else:
            self.now_s = time_s

    def sends(self, own: str, of_a: bool, to: "list[Session]") -> Any:
        """The sending socket of one end; ``to`` will hold both ends, the other one last for a, first for b."""

        def sendto(packet: bytes, _: object) -> None:
            question = unpack_sender(KEY, packet)
            assert question is not None
            sequence = question[0]
            self.greetings += of_a and sequence >= GREETINGS

            def at_the_peer() -> None:
                number = to[of_a].answer_number(question[3], sequence, peer_of(own))
                if number is None:
                    return
                self.arrived += of_a and sequence < GREETINGS
                stamp = ntp_from_ns(self.time_ns())
                answer = unpack_reflector(KEY, pack_reflector(KEY, number, stamp, stamp, question, 64))
                assert answer is not None
                mine = to[not of_a]
                other = peer_of(THERE if of_a else HERE)
                self.carry(lambda: mine.on_answer(answer, other, self.time_ns()), of_a, True, sequence)

            self.carry(at_the_peer, of_a, False, sequence)

        return SimpleNamespace(fileno=lambda: int(of_a), sendto=sendto)

    def time_ns(self) -> int:
        """The clock of both ends."""
        return int(self.now_s * 1e9)


def peer_of(address: str) -> bytes:
    """A sender as an inbox names it."""
    return socket.inet_aton(address) + PORT.to_bytes(2, "big")


def measured(monkeypatch: pytest.MonkeyPatch, link: Link, late_s: float = 0.0) -> dict[str, Any]:
    """What a finds out; b begins so much later."""
    clock = SimpleNamespace(monotonic=lambda: link.now_s, time_ns=link.time_ns)
    monkeypatch.setattr(echo, "time", clock)
    monkeypatch.setattr(echo, "timestamps", SimpleNamespace(enable=lambda *_, **__: True))
    inbox = cast(Inbox, SimpleNamespace(sent_at=lambda sock: []))
    ends: list[Session] = []
    for own, peer, of_a, (out, back) in ((HERE, THERE, True, (5, 6)), (THERE, HERE, False, (6, 5))):
        while not of_a and link.now_s < 1000 + late_s:
            ends[0].send(KEY)
            link.until(link.now_s + max(1e-6, ends[0].poll_timeout_s()))
        request = task((peer, PORT), ssid_out=out, ssid_in=back, count=COUNT, window=32, timeout_s=0.25)
        ends.append(Session(request, [link.sends(own, of_a, ends)], inbox))
    while not all(end.is_over() for end in ends):
        for end in ends:
            end.send(KEY)
        link.until(
            link.now_s + max(1e-6, min((end.poll_timeout_s() for end in ends if not end.is_over()), default=0.0))
        )
    return ends[0].result()


@pytest.mark.parametrize(
    ("one_way_s", "there", "back"), [(50e-6, LOST, frozenset()), (5e-3, frozenset(), LOST), (30e-3, LOST, OTHERS)]
)
def test_loss_is_reported_by_direction(
    monkeypatch: pytest.MonkeyPatch, one_way_s: float, there: frozenset[int], back: frozenset[int]
) -> None:
    """On a long way many greetings are answered before the first answer comes; none of them is taken for a probe."""
    link = Link(one_way_s, lambda is_back, sequence: sequence in (back if is_back else there), lambda *_: 0.0)
    result = measured(monkeypatch, link)
    assert link.arrived == COUNT - len(there)
    assert (result["sent"], result["reflected"]) == (COUNT, link.arrived)
    assert result["received"] == COUNT - len(there) - len(back)
    assert (link.greetings > 3) == (one_way_s > 1e-3)


@pytest.mark.parametrize(("one_way_s", "back"), [(50e-6, True), (30e-3, False), (5e-3, True)])
def test_greetings_that_are_lost_are_no_lost_probes(
    monkeypatch: pytest.MonkeyPatch, one_way_s: float, back: bool
) -> None:
    """Every second greeting, or every second answer to one."""
    link = Link(one_way_s, lambda is_back, n: is_back == back and n >= GREETINGS and n % 2 == 0, lambda *_: 0.0)
    result = measured(monkeypatch, link)
    assert (result["sent"], result["reflected"], result["received"]) == (COUNT, COUNT, COUNT)


@pytest.mark.parametrize("down_s", [0.0, 0.4, 1.5])
def test_a_way_that_is_down_at_first_has_lost_probes(monkeypatch: pytest.MonkeyPatch, down_s: float) -> None:
    """For longer than the other host may need to begin: a link that flaps is measured in its good times."""
    link = Link(50e-6, lambda *_: link.now_s < 1000 + down_s, lambda *_: 0.0)
    result = measured(monkeypatch, link)
    assert result["received"] == result["reflected"] == COUNT
    assert result["sent"] - COUNT == pytest.approx(max(0.0, down_s - 0.5) / 0.05, abs=2)
    back = Link(50e-6, lambda is_back, _: is_back and back.now_s < 1000 + down_s, lambda *_: 0.0)
    result = measured(monkeypatch, back)
    assert result["sent"] == result["reflected"]  # only answers were lost
    assert result["sent"] - result["received"] == pytest.approx(max(0.0, down_s - 0.5) / 0.05, abs=2)


@pytest.mark.parametrize("late_s", [0.4, 1.2, 2.5])
def test_a_host_that_begins_late_has_lost_nothing(monkeypatch: pytest.MonkeyPatch, late_s: float) -> None:
    """Its own greetings tell when it began: those that came before nobody was there to answer."""
    link = Link(50e-6, lambda *_: link.now_s < 1000 + late_s, lambda *_: 0.0)
    result = measured(monkeypatch, link, late_s)
    assert (result["sent"], result["reflected"], result["received"]) == (COUNT, COUNT, COUNT)


@pytest.mark.parametrize("back", [False, True])
def test_packets_that_overtake_others_or_come_twice_change_nothing(monkeypatch: pytest.MonkeyPatch, back: bool) -> None:
    """Every third is 20 ms late, greetings too, so that some arrive among the probes; then all come twice as well."""
    for twice in (False, True):
        link = Link(
            5e-3,
            lambda is_back, n: not is_back and n in LOST,
            lambda is_back, n: 0.02 if is_back == back and n % 3 == 0 else 0.0,
            twice,
        )
        result = measured(monkeypatch, link)
        expected = COUNT - len(LOST)
        assert (result["sent"], result["reflected"], result["received"]) == (COUNT, expected, expected)


def test_an_answer_that_comes_too_late_was_reflected(monkeypatch: pytest.MonkeyPatch) -> None:
    """From the 100th on all are too late, so that it is given up; what did get there was not lost on the way there."""
    link = Link(5e-3, lambda *_: False, lambda back, n: 0.26 if back and 100 <= n < GREETINGS else 0.0)
    result = measured(monkeypatch, link)
    assert result["received"] == 100
    assert 132 <= result["reflected"] <= result["sent"] < COUNT
