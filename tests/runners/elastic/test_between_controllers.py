"""What happens while no controller listens: the next one gets to know it, and the log has it, once."""

from typing import Any

import pytest

from plink.model.elastic.codec import encode_message
from plink.model.elastic.reports import Failed, Log, Notice
from solvers.elastic import commands
from tests.runners.elastic.paper_supervisor import Paper, lose, paper

__all__ = ["paper"]

FAILED = Failed("process() raised ValueError", 3, "AppError")


def ends(paper: Paper, name: str) -> list[tuple[str, str]]:
    """How the log tells that a host is gone, and why."""
    lines = [line for line in paper.log if line["what"] == "host" and line["host"] == name]
    return [(line["event"], line["why"]) for line in lines if line["event"] in ("left", "failed")]


@pytest.mark.parametrize("reason", ["SIGTERM", "aws"])
def test_notices_are_resent(paper: Paper, reason: str) -> None:
    """Providers and SIGTERM say them once; the last word of each host counts."""
    supervisor = paper.supervisor("rtt")
    supervisor._handle_message(1, Notice(90.0, "before"), "")
    supervisor._handle_message(1, Notice(30.0, reason), "")
    supervisor._handle_message(2, Notice(30.0, reason), "")
    lose(supervisor, 2, "no power")
    paper.dies()
    (messages,) = paper.events_of("evict")
    assert (list(messages["hosts"]), messages["reason"]) == ([1], reason)
    assert 20 < messages["seconds"] <= 30


def test_failed_worker_is_reported_to_the_next_controller(paper: Paper) -> None:
    """After the members, without whom it would be nobody's word; not of a host that is gone since."""
    supervisor = paper.supervisor("rtt")
    supervisor._handle_message(1, FAILED, "")
    supervisor._handle_message(2, FAILED, "")
    lose(supervisor, 2, "no power")
    paper.dies()
    assert [(item["host"], item["message"]) for item in paper.events_of("host_message")] == [
        (1, encode_message(FAILED))
    ]
    assert [message["type"] for message in paper.sent[-1]] == ["settings", "restart", "host_message"]


def test_node_logs_are_recorded_without_a_controller(paper: Paper) -> None:
    paper.supervisor("rt")._handle_message(1, Log("no notices for now"), "")
    assert paper.notes == ["h1: no notices for now"]


def test_a_host_that_is_lost_between_two_controllers_is_in_the_log(paper: Paper) -> None:
    """Once, however many controllers there are; nobody tells the end of those that are there."""
    supervisor = paper.supervisor("rttt")
    member = lose(supervisor, 1, "no power")
    paper.dies()
    paper.dies()
    assert ends(paper, "h1") == [("failed", "no power")]
    (line,) = (line for line in paper.log if line["what"] == "host" and line["event"] == "failed")
    assert {key: line[key] for key in ("number", "tier", "slots")} == {
        "number": 1, "tier": "transient", "slots": member.slots,
    }  # fmt: skip
    assert ends(paper, "h2") == ends(paper, "h0") == []


def test_host_is_logged_once_across_controllers(paper: Paper) -> None:
    supervisor = paper.supervisor("rtt")
    member = lose(supervisor, 1, "no power")
    paper.says(commands.LogLine(member.line("failed", "no power")))
    paper.says(commands.DropHost(1, "no power"))
    paper.dies()
    supervisor._end(0, "")
    assert ends(paper, "h1") == [("failed", "no power")]


def test_a_host_that_was_let_go_has_left(paper: Paper) -> None:
    """Though it was warned again by the next controller."""
    supervisor = paper.supervisor("rtt")
    for event in ("released", "warned"):
        paper.says(commands.LogLine(supervisor._members[1].line(event, "")))
    lose(supervisor, 1, "its node ended with exit code 0")
    paper.dies()
    assert ends(paper, "h1") == [("left", "its node ended with exit code 0")]


def test_a_host_that_never_answers_the_next_controller_is_in_the_log(paper: Paper) -> None:
    """It is dropped before it was anybody's member, or before it had joined."""
    supervisor = paper.supervisor("rtt")
    answers: list[dict[str, Any]] = []
    supervisor._handle_request(
        {"method": "add", "hosts": [{"name": "n0", "address": "127.0.0.1"}], "bulk": True}, answers.append
    )
    paper.until(lambda: bool(answers))
    paper.dies()
    for number in (1, 3):
        paper.says(commands.DropHost(number, "nothing was heard of it for 1.6 s"))
    assert ends(paper, "h1") == ends(paper, "n0") == [("failed", "nothing was heard of it for 1.6 s")]


def test_a_host_that_is_lost_as_the_job_ends_is_in_the_log(paper: Paper) -> None:
    supervisor = paper.supervisor("rt")
    lose(supervisor, 1, "no power")
    supervisor._end(1, "it is over")
    assert ends(paper, "h1") == [("failed", "no power")]
    assert paper.log[-1]["what"] == "end"
