"""Hosts that come to a job that runs, as its hub has it."""

from typing import Any

import pytest

from runners.agile import adding
from tests.runners.agile.paper_hub import Paper, host, lose, paper

__all__ = ["paper"]


def test_a_lost_reliable_host_comes_back_while_another_stays_away(
    paper: Paper, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    """And the other is tried again, until it comes too."""
    monkeypatch.setattr(adding, "_AGAIN_S", 0.05)
    hub = paper.hub("rrt")
    for number in (0, 1):
        lose(hub, number, "no power")
    paper.unreachable = {"h0"}
    paper.says({"is": "wanted", "what": "reliable"})
    paper.until(lambda: bool(paper.heard("joined")))
    (joined,) = paper.heard("joined")
    assert [one["name"] for one in joined["hosts"]] == ["h1"]
    paper.until(lambda: paper.tries.count(["h0"]) > 2)
    assert paper.tries.count(["h1"]) == 1
    assert set(hub._groups) >= set(hub._members)
    paper.unreachable = set()
    paper.until(lambda: len(paper.heard("joined")) == 2)
    assert {member.name for member in hub._members.values()} == {"h0", "h1", "h2"}


def test_a_lost_reliable_host_that_somebody_added_is_not_tried_again(
    paper: Paper, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    monkeypatch.setattr(adding, "_AGAIN_S", 0.05)
    hub = paper.hub("rrt")
    lose(hub, 0, "no power")
    paper.unreachable = {"h0"}
    paper.says({"is": "wanted", "what": "reliable"})
    paper.until(lambda: bool(paper.notes))
    paper.unreachable = set()
    answers: list[dict[str, Any]] = []
    hub._wish({"do": "add", "hosts": [vars(host("h0", "r"))], "bulk": True}, answers.append)
    paper.until(lambda: bool(answers))
    tries = len(paper.tries)
    for _ in range(3):
        hub._turn()
    assert len(paper.tries) == tries
    assert [member.name for member in hub._members.values()].count("h0") == 1
