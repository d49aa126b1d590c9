"""Messages of elastic jobs: what is sent is what arrives, and what nothing sends is one clear error."""

import json
from typing import Any

import pytest

from plink.model.elastic.codec import (
    VERSION,
    Envelope,
    ProtocolError,
    decode_message,
    decode_request,
    encode_message,
    encode_request,
    parse_message,
)
from plink.model.elastic.fields import TrafficCounters
from plink.model.elastic.reports import Alive, Answer, ClockDone, NodeMessage, Notice, OtherVersion, PartitionsChanged
from plink.model.elastic.requests import AssignShards, Bye, HostReport, Pause, Paused, Request, SetPrimaries, result_of

REQUESTS: tuple[Request, ...] = (
    Pause(7), Bye(), SetPrimaries({0: ("a:1", 3), 12: ("b:2", 4)}, 9),
    AssignShards(3, 0, {1: (2, 3)}, {1: (0, (2, 3), 0)}, ((0, 4),), {0: '10.0.0.1:7000'}),
)  # fmt: skip
MESSAGES: tuple[NodeMessage, ...] = (
    Alive(TrafficCounters(1, 2, 3, 4)), Answer(5, None, "", {"begun": 3}), Answer(5, "no", "RejectedRequest"),
    Notice(30.0, "SIGTERM"), PartitionsChanged({3: ("serving", 0, 1, 2, 3)}),
    ClockDone(5, 4, 1, 0.5, True, None, float("inf"), 0, 3),
)  # fmt: skip


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda request: type(request).__name__)
def test_a_request_arrives_as_it_was_sent(request_: Request) -> None:
    for number in (None, 17):
        envelope = Envelope(request_, 3, number)
        assert decode_request(json.loads(json.dumps(encode_request(envelope)))) == envelope


@pytest.mark.parametrize("message", MESSAGES, ids=lambda request: type(request).__name__)
def test_a_message_arrives_as_it_was_sent(message: NodeMessage) -> None:
    assert parse_message(json.dumps(encode_message(message))) == message


PAUSE = {"method": "pause", "params": {"clock": 7}, "term": 3, "id": None}


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ([], "a request has method, params, term and id"),
        ({"method": "pause", "params": {"clock": 7}, "term": 3}, "a request has method, params, term and id"),
        (PAUSE | {"method": "halt"}, "there is no method 'halt'"),
        (PAUSE | {"term": "3"}, "pause: params are an object, term is a number, id a number or null"),
        (PAUSE | {"params": {}}, "pause: Object missing required field `clock`"),
        (PAUSE | {"params": {"clock": 7, "generation": 1}}, "pause: Object contains unknown field `generation`"),
        (PAUSE | {"params": {"clock": "7"}}, "pause: Expected `int`, got `str` - at `$.clock`"),
    ],
)
def test_a_request_that_is_none(body: Any, error: str) -> None:
    with pytest.raises(ProtocolError) as raised:
        decode_request(body)
    assert str(raised.value) == error


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ({"type": "sing"}, "there is no type 'sing'"),
        ({"type": ["alive"]}, "there is no type ['alive']"),
        ({"type": "notice", "seconds": -1, "reason": ""}, "notice: Expected `float` >= 0.0 - at `$.seconds`"),
        ({"type": "notice", "seconds": 1}, "notice: Object missing required field `reason`"),
        ({"type": "notice", "seconds": 1, "reason": "", "x": 1}, "notice: Object contains unknown field `x`"),
        ({"type": "partitions", "partitions": {"-1": ["", 0, 0, 0, 0]}},
         "partitions: Expected `int` >= 0 - at `key` in `$.partitions`"),
        ({"type": "other_version", "plink": "9"}, "there is no type 'other_version'"),
        ({"type": "hello", "version": VERSION}, "hello: Object missing required field `plink`"),
    ],
)  # fmt: skip
def test_a_message_that_is_none(body: Any, error: str) -> None:
    with pytest.raises(ProtocolError) as raised:
        decode_message(body)
    assert str(raised.value) == error


@pytest.mark.parametrize("body", [{"type": "hello", "plink": "1.0"}, {"type": "hello", "version": 99}])
def test_a_node_of_another_version_is_known_by_its_first_message(body: dict[str, Any]) -> None:
    assert isinstance(decode_message(body), OtherVersion)


@pytest.mark.parametrize("line", [b"hello", b"{}", b"[1]", b'{"rank": 3}', b"[" * 5000])
def test_what_a_program_prints_is_no_message(line: bytes) -> None:
    assert parse_message(line) is None


def test_results_are_checked_by_their_request() -> None:
    assert result_of(Pause, {"begun": 3}) == Paused(3)
    for result in ({}, {"begun": "3"}, {"begun": 3, "ended": 4}):
        with pytest.raises(ValueError, match=r"begun|ended"):
            result_of(Pause, result)
    assert "traffic" in HostReport.__struct_fields__
