"""What a controller is made of, part by part: its channel, who is silent, which hosts fit together."""

import json
import subprocess
import sys
import time
from typing import Any

import pytest

from plink.runtime.agileml.control_line import VERSION
from runners.agile.channel import GONE, Channel
from runners.agile.fitting import refuse
from runners.agile.hearing import Hearing
from runners.agile.member import Member
from runners.agile.settings import Settings


def member(number: int, tier: str = "reliable", **hello: Any) -> Member:
    """One that said hello."""
    said = {"version": VERSION, "plink": "1.2", "tables": 1, "pieces": 8, "batches": 1, "shapes": [[8, 125]],
            "memory": None, "pool": ""}  # fmt: skip
    return Member(number, f"h{number}", tier, 1, hello=said | hello)


def test_an_answer_goes_to_who_asked_and_once() -> None:
    said: list[dict[str, Any]] = []
    heard: list[Any] = []
    channel = Channel(said.append, 3)
    channel.tell(1, "open", heard.append, partition=2)
    channel.tell_all([1, 2], "bye")
    number = said[0]["id"]
    assert said[0] == {"to": 1, "do": "open", "by": 3, "partition": 2, "id": number}
    assert [word["to"] for word in said[1:]] == [1, 2]
    channel.answered(2, {"id": number, "why": None})  # of another host
    channel.answered(1, {"id": number + 6, "why": None})
    assert not heard
    channel.answered(1, {"id": number, "why": None})
    channel.answered(1, {"id": number, "why": None})
    assert heard == [{"id": number, "why": None}]


def test_a_host_that_is_gone_answers_everything_at_once() -> None:
    """Also if the first of its answers has others asked, or given up."""
    said: list[dict[str, Any]] = []
    heard: list[Any] = []
    channel = Channel(said.append, 1)
    channel.tell(1, "a", lambda answer: (heard.append(answer), channel.tell(2, "c", heard.append)))
    channel.tell(1, "b", heard.append)
    channel.gone(1)
    assert [(answer["id"], answer["kind"]) for answer in heard] == [(word["id"], GONE) for word in said[:2]]


def test_a_host_is_silent_only_while_somebody_listens() -> None:
    hearing, one = Hearing(1.6), member(0)
    hearing.pass_time(10.0)
    hearing.heard(one)
    hearing.pass_time(500.0)  # the controller stood still: that is one step
    assert not hearing.silent([one])
    for step in range(5):
        hearing.pass_time(500.0 + 0.3 * (step + 1))
    assert hearing.silent([one]) == [one]
    hearing.heard(one)
    assert not hearing.silent([one])
    hearing.pass_time(0.0)  # a clock that goes back
    assert hearing.now_s == pytest.approx(1.8)


def test_hosts_that_fall_silent_together_are_given_up_together() -> None:
    """A rack's heartbeats do not come at the same moment; one host that is late only does not delay the rest."""
    hearing, hosts, late = Hearing(1.6), [member(number) for number in range(7)], member(7)
    hearing.pass_time(0.0)
    found: list[list[int]] = []
    for step in range(1, 40):
        hearing.pass_time(0.1 * step)
        for host in hosts:
            if step < 10 or host.number > 2 or (step < 13 and host.number == 2):
                hearing.heard(host)
        if step % 9 == 0:
            hearing.heard(late)
        silent = [host.number for host in hearing.silent([*hosts, late])]
        found += [silent] if silent else []
    assert found[0] == [0, 1, 2]


def test_where_most_are_silent_at_once_it_is_somebody_elses_fault_for_a_while() -> None:
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
    hearing.heard(three[0])
    hearing.heard(three[1])
    assert hearing.silent(three) == three[2:]
    listen(9.0)
    assert not hearing.silent(three)
    listen(9.9)
    assert hearing.silent(three) == three[2:]  # the others have been for less
    listen(12.0)
    assert hearing.silent(three) == three


def test_who_answers_what_makes_no_sense_is_as_good_as_gone() -> None:
    said: list[dict[str, Any]] = []
    heard: list[dict[str, Any]] = []
    lost: list[tuple[int, str]] = []

    def nonsense(host: int, why: str) -> None:
        lost.append((host, why))
        channel.gone(host)

    channel = Channel(said.append, 3, nonsense)
    channel.tell(1, "hold", heard.append, clock=2)
    channel.answered(1, {"id": said[0]["id"], "why": "not now"})
    assert [answer["why"] for answer in heard] == ["not now"]
    for _ in range(2):
        channel.tell(1, "hold", heard.append, clock=2)
    channel.answered(1, {"id": said[1]["id"], "why": None, "begun": "2"})
    assert lost == [(1, "what it answered makes no sense: 'hold' with begun '2'")]
    assert [answer.get("kind") for answer in heard[1:]] == [GONE, GONE]


@pytest.mark.parametrize(
    ("hosts", "why"),
    [
        ([member(0), member(1, tables=2)], "h1 has other tables than h0"),
        ([member(0), member(1, batches=2)], "other mini-batches"),
        ([member(0, "transient")], "no reliable host"),
        ([member(0), member(1, version=0)], "h1 has plink 1.2, here it is "),
        ([member(0), Member(1, "h1", "reliable", 1, hello={"tables": 1})], "h1 has plink an older version"),
        ([member(0), member(1, shapes="much")], "h1: what its node says of itself makes no sense: 'hello' with shapes"),
        ([member(0, shapes=[[8, 125], [-5, 8]])], "h0: what its node says of itself makes no sense"),
        ([member(0, pieces=0)], "h0: what its node says of itself makes no sense: 'hello' with pieces"),
    ],
)
def test_hosts_that_do_not(hosts: list[Member], why: str) -> None:
    assert why in str(refuse(hosts))


def test_only_the_hub_gives_a_controller_its_settings() -> None:
    """A node that says such a word does not end it, nor put another in its place."""
    settings = Settings("", 2, 3, ((10, 10),), 0.0, time.monotonic())
    words = [
        {"is": "settings", "settings": settings.to_json(), "by": 4},
        {"is": "start", "hosts": [member(0).to_json()]},
        {"is": "settings", "settings": settings.to_json(), "by": 5, "from": 0},
        {"is": "settings", "from": 0},
        {"is": "status", "ask": 9},
    ]
    done = subprocess.run(
        [sys.executable, "-c", "from runners.agile.main import main; main()"], timeout=60, capture_output=True,
        input="".join(json.dumps(word) + "\n" for word in words), text=True, check=True,
    )  # fmt: skip
    said = [json.loads(line) for line in done.stdout.splitlines()]
    assert [word["by"] for word in said if "do" in word] == [4]
    assert [word["ask"] for word in said if word.get("is") == "status"] == [9]
