"""A node's line to its controller, with the agent's end that it has in a job."""

import gc
import json
import select
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from plink.errors import PlinkError
from plink.runtime.elastic.host import control_channel
from plink.runtime.elastic.host.control_channel import ControlChannel
from runners.job.rank_channel import RankChannel


@pytest.fixture
def agent() -> Iterator[RankChannel]:
    """The other end."""
    line = RankChannel()
    yield line
    line.close()


def received(agent: RankChannel, number: int) -> list[Any]:
    """So many messages that the agent gets."""
    result: list[str] = []
    while len(result) < number:
        assert select.select([agent], [], [], 10.0)[0], result
        result += agent.poll()
    return [json.loads(line) for line in result]


def test_both_ends_hear_what_the_other_says(agent: RankChannel) -> None:
    agent.send('{"do": "open", "partition": 3}')
    line = ControlChannel(agent.name)
    line.send({"type": "hello", "text": "hé\n"})
    line.mention({"type": "alive"})
    assert received(agent, 2) == [{"type": "hello", "text": "hé\n"}, {"type": "alive"}]
    agent.send('{"do": "bye"}')
    agent.poll()
    message = iter(line)
    assert [next(message), next(message)] == [{"do": "open", "partition": 3}, {"do": "bye"}]
    line.close()


def test_what_is_long_comes_whole(agent: RankChannel) -> None:
    line = ControlChannel(agent.name)
    line.send({"text": "x" * 1_000_000})
    assert len(received(agent, 1)[0]["text"]) == 1_000_000
    result: list[Any] = []
    reader = threading.Thread(target=lambda: result.append(next(iter(line))), daemon=True)
    reader.start()
    agent.send(json.dumps({"text": "y" * 1_000_000}))
    while reader.is_alive():
        agent.poll()
        reader.join(0.001)
    assert len(result[0]["text"]) == 1_000_000
    line.close()


@pytest.mark.parametrize("words", ["", "no JSON", "[{}]", "[" * 100_000])
def test_what_is_no_message_is_passed_over(agent: RankChannel, words: str) -> None:
    line = ControlChannel(agent.name)
    agent.send(words)
    agent.send('{"do": "bye"}')
    agent.poll()
    assert next(iter(line)) == {"do": "bye"}
    line.close()


def test_no_messages_after_the_agent_is_gone(agent: RankChannel) -> None:
    line = ControlChannel(agent.name)
    line.send({"type": "hello"})
    received(agent, 1)
    agent.close()
    assert list(line) == []
    line.send({"type": "alive"})  # to nobody
    line.close()


def test_last_words_are_sent(agent: RankChannel) -> None:
    line = ControlChannel(agent.name)
    for number in range(50):
        line.send({"number": number})
    line.close()
    assert [item["number"] for item in received(agent, 50)] == list(range(50))


def test_without_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(control_channel.VARIABLE, raising=False)
    with pytest.raises(PlinkError, match="plink elastic run"):
        ControlChannel()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # its socket is left open
def test_with_nobody_at_the_other_end() -> None:
    with pytest.raises(PlinkError, match="does not answer"):
        ControlChannel("plink-line-nobody")
    gc.collect()
