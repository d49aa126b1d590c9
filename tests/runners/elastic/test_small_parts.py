"""What a controller is made of, part by part: its channel, who is silent, which hosts fit together."""

import json
import subprocess
import sys
import time
from typing import Any

import msgspec
import pytest

from plink.errors import ProtocolError, UsageError
from plink.model.elastic.codec import VERSION, decode_message
from plink.model.elastic.reports import Answer, Hello, Log, OtherVersion
from plink.model.elastic.requests import LoadShards, Pause, Request
from runners.elastic.compatibility import refuse
from runners.elastic.controller import encode
from solvers.elastic import events, failures
from solvers.elastic.commands import Send
from solvers.elastic.context import Context
from solvers.elastic.events import ShardsReady
from solvers.elastic.failures import FailureDetector
from solvers.elastic.member import Member
from solvers.elastic.settings import Settings
from solvers.elastic.state import GONE, initial
from solvers.elastic.step import answered
from solvers.elastic.working import loaded


def hello_of(**fields: Any) -> Hello | OtherVersion:
    """The first message of a node."""
    message = {"type": "hello", "version": VERSION, "plink": "1.2", "app": "App", "pid": 7, "tables": 1, "shards": 8,
            "batches": 1, "grains": 1, "shapes": [[8, 125]], "memory": None, "pool": "", "optimisers": [],
            "float_tables": 1}  # fmt: skip
    hello = decode_message(message | fields)
    assert isinstance(hello, Hello | OtherVersion)
    return hello


def member(number: int, tier: str = "reliable", **hello: Any) -> Member:
    """One that said hello."""
    return Member(number, f"h{number}", tier, 1, hello=hello_of(**hello))


class Channel:
    """A job that has nothing to do but to ask hosts 1 and 2 to load."""

    def __init__(self) -> None:
        self.job = initial(Settings("", 1, 2, ((8, 8),), 0.0, 0.0), 3, 0.0)
        self.request_ids: list[int] = []
        self.emitted: list[Any] = []

    def ask(self, host: int, ticket: int, request: Request | None = None) -> None:
        """A request whose answer is wanted."""
        ctx = Context(self.job, 0.0)
        ctx.request(host, request or LoadShards(()), loaded, host, (), ticket)
        self.job = ctx.state
        self.request_ids += [
            command.id for command in ctx.commands if isinstance(command, Send) and command.id is not None
        ]

    def answer(self, host: int, number: int, error: str | None = None, **result: Any) -> None:
        """As a host does."""
        ctx = Context(self.job, 0.0)
        answered(ctx, host, Answer(number, error, GONE if error else "", result))
        self.job = ctx.state
        self.emitted += ctx.emitted

    @property
    def received(self) -> list[int]:
        """Tickets of answers that counted."""
        return [event.ticket for event in self.job.undecided if isinstance(event, ShardsReady)]


def test_an_answer_goes_to_who_asked_and_once() -> None:
    channel = Channel()
    channel.ask(1, 7)
    (number,) = channel.request_ids
    assert number == 3 << 32
    channel.answer(2, number)  # of another host
    channel.answer(1, number + 6)
    assert channel.received == []
    channel.answer(1, number)
    channel.answer(1, number)
    assert channel.received == [7]


def test_host_with_an_invalid_answer_is_lost() -> None:
    channel = Channel()
    channel.ask(1, 7, Pause(2))
    channel.answer(1, channel.request_ids[0], "not now")
    assert not channel.emitted
    channel.ask(1, 8, Pause(2))
    channel.answer(1, channel.request_ids[1], begun="2")
    (lost,) = channel.emitted
    assert lost.hosts == (1,)
    assert lost.reason == "invalid answer to pause: Expected `int`, got `str` - at `$.begun`"


class Hearing:
    """A failure detector with a timeout."""

    def __init__(self, timeout_s: float) -> None:
        self.detector, self._timeout_s = FailureDetector(), timeout_s

    @property
    def now_s(self) -> float:
        """Seconds that count."""
        return self.detector.now_s

    def pass_time(self, now: float) -> None:
        """Something has come."""
        self.detector = failures.pass_time(self.detector, now)

    def received(self, member: Member) -> None:
        """A heartbeat."""
        self.detector = failures.message_received(self.detector, member.number)

    def silent(self, members: list[Member]) -> list[Member]:
        """Those that are as good as gone."""
        result = failures.silent(self.detector, [member.number for member in members], self._timeout_s)
        return [member for member in members if member.number in result]


def test_a_host_is_silent_only_while_somebody_listens() -> None:
    hearing, item = Hearing(1.6), member(0)
    hearing.pass_time(10.0)
    hearing.received(item)
    hearing.pass_time(500.0)  # the controller stood still: that is one step
    assert not hearing.silent([item])
    for step in range(5):
        hearing.pass_time(500.0 + 0.3 * (step + 1))
    assert hearing.silent([item]) == [item]
    hearing.received(item)
    assert not hearing.silent([item])
    hearing.pass_time(0.0)  # a clock that goes back
    assert hearing.now_s == pytest.approx(1.8)


def test_hosts_silent_together_are_evicted_together() -> None:
    """A rack's heartbeats do not come at the same moment; one host that is late only does not delay the rest."""
    hearing, hosts, late = Hearing(1.6), [member(number) for number in range(7)], member(7)
    hearing.pass_time(0.0)
    result: list[list[int]] = []
    for step in range(1, 40):
        hearing.pass_time(0.1 * step)
        for host in hosts:
            if step < 10 or host.number > 2 or (step < 13 and host.number == 2):
                hearing.received(host)
        if step % 9 == 0:
            hearing.received(late)
        silent = [host.number for host in hearing.silent([*hosts, late])]
        result += [silent] if silent else []
    assert result[0] == [0, 1, 2]


def test_silent_majority_gets_a_longer_timeout() -> None:
    """Of two it may be any; of three two are most."""
    hearing, three = Hearing(1.6), [member(number) for number in range(3)]
    seconds = 0.0

    def listen(until: float) -> None:
        nonlocal seconds
        while hearing.now_s < until:
            hearing.pass_time(seconds)
            seconds += 0.3

    listen(1.8)
    assert hearing.silent(three[:2]) == three[:2]
    assert not hearing.silent(three)
    hearing.received(three[0])
    hearing.received(three[1])
    assert hearing.silent(three) == three[2:]
    listen(9.0)
    assert not hearing.silent(three)
    listen(9.9)
    assert hearing.silent(three) == three[2:]  # the others have been for less
    listen(12.0)
    assert hearing.silent(three) == three


def test_reason_has_the_length_of_the_silence() -> None:
    """And where it is of most hosts, what they have in common."""
    detector = FailureDetector(now_s=12.0, last_heartbeat_s={0: 2.2, 1: 2.3, 2: 11.9, 3: 10.1})
    alone, together = failures.silent(detector, [2, 3], 1.6), failures.silent(detector, [0, 1, 2], 1.6)
    assert (alone, together) == ({3: pytest.approx(1.9)}, {0: pytest.approx(9.8), 1: pytest.approx(9.7)})
    assert "1.9 s" in failures.silence_reason(alone, 2)
    assert "9.7 s" in failures.silence_reason(together, 3)
    assert "link" in failures.silence_reason(together, 3)


OLDER = decode_message({"type": "hello", "tables": 1})
assert isinstance(OLDER, OtherVersion)


@pytest.mark.parametrize(
    ("hosts", "expected"),
    [
        ([member(0), member(1, tables=2)], "h1 has other tables than h0"),
        ([member(0), member(1, batches=2)], "other mini-batches"),
        ([member(0), member(1, grains=2)], "other grains of a mini-batch"),
        ([member(0), member(1, optimisers=["w"])], "other tables with an optimiser"),
        ([member(0), member(1, version=0)], "h1 has plink 1.2 (protocol 0), here it is "),
        ([member(0), Member(1, "h1", "reliable", 1, hello=OLDER)], "h1 has plink an older version"),
    ],
)
def test_hosts_that_do_not(hosts: list[Member], expected: str) -> None:
    assert expected in str(refuse(hosts))


def test_optimisers_under_a_rule_that_shows_what_is_ahead() -> None:
    hosts = [member(0, optimisers=["w"])]
    assert refuse(hosts, "elastic-bsp:1") is None
    with pytest.raises(UsageError, match=r"an optimiser \(of table w\) .*: choose --rule bsp or elastic-bsp:1"):
        refuse(hosts, "ssp:0")


def test_settings_come_from_the_supervisor_alone() -> None:
    """A node that sends such a message is ended before it gets there; a node's come inside one of the supervisor's."""
    settings = Settings("", 2, 3, ((10, 10),), 0.0, time.monotonic())
    with pytest.raises(ProtocolError):
        decode_message({"type": "settings", "settings": msgspec.to_builtins(settings), "term": 5})
    words = [
        {"type": "settings", "settings": msgspec.to_builtins(settings), "term": 4},
        encode(events.JobStarted((member(0),))),
        encode(events.HostMessage(0, Log("settings"))),
        encode(events.StatusRequested(9)),
    ]
    done = subprocess.run(
        [sys.executable, "-c", "from runners.elastic.controller import main; main()"], timeout=300, capture_output=True,
        input="".join(json.dumps(word) + "\n" for word in words), text=True, check=True,
    )  # fmt: skip
    message = [json.loads(line) for line in done.stdout.splitlines()]
    assert [word["request"]["term"] for word in message if word["type"] == "send"] == [4]
    assert [word["request_id"] for word in message if word["type"] == "status"] == [9]


def test_hosts_learn_what_their_link_carries() -> None:
    """As measured, or as given for all, or nothing."""
    settings = Settings("", 1, 2, ((8, 8),), 0.0, 0.0, host_rate=5.0, link_rates={"h1": 7.0})
    again = msgspec.convert(json.loads(json.dumps(msgspec.to_builtins(settings))), Settings)
    assert [again.of(member(number)).link_bytes_s for number in (1, 2)] == [7.0, 5.0]
    assert Settings("", 1, 2, ((8, 8),), 0.0, 0.0).of(member(1)).link_bytes_s == 0
