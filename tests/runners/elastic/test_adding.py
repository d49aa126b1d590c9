"""Hosts that come to a job that runs, as its supervisor has it."""

import time
from typing import Any

import pytest
from msgspec import structs

from plink.errors import PlinkError
from runners.elastic import control_socket, group
from runners.elastic.control_socket import Answer, ControlSocket, ask
from runners.elastic.supervisor import Supervisor
from solvers.elastic import commands
from solvers.elastic.failures import ENDED
from tests.runners.elastic.paper_supervisor import Paper, host, hosts, lose, paper

__all__ = ["paper"]


def request(supervisor: Supervisor, *names: str) -> list[dict[str, Any]]:
    """To add transient hosts; what is answered, once it is."""
    answers: list[dict[str, Any]] = []
    supervisor._handle_request(
        {"method": "add", "hosts": [vars(host(name, "t")) for name in names], "bulk": True}, answers.append
    )
    return answers


def test_a_host_that_is_on_its_way_is_not_started_twice(paper: Paper) -> None:
    """Nor two under one name; what could not be added may be tried again."""
    supervisor = paper.supervisor("rt")
    paper.silent = {"n0"}
    first = request(supervisor, "n0")
    paper.until(lambda: paper.tries == [["n0"]])
    (refused,) = request(supervisor, "n1", "n0")
    assert refused == {"error": "n0: being added already; `plink elastic status` shows hosts"}
    assert request(supervisor, "h1") == [{"error": "h1: in the job already"}]
    assert request(supervisor, "n2", "n2") == [{"error": "plink elastic add: hosts[1]: host 'n2' is listed twice"}]
    assert not first
    assert paper.tries == [["n0"]]
    supervisor._handle_message(2, None, "no power")
    paper.until(lambda: bool(first))
    assert first == [{"error": "n0: no power"}]
    paper.silent = set()
    again = request(supervisor, "n0")
    paper.until(lambda: bool(again))
    assert again == [{"added": ["n0"]}]
    assert paper.tries == [["n0"], ["n0"]]


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ({"name": "my host"}, "hosts[0].name"),
        ({"name": "n0", "tier": "borrowed"}, "hosts[0].tier"),
        ({"name": "n0", "slots": "2"}, "hosts[0].slots"),
        ({"name": "n0", "role": "hub"}, "role=hub"),
        ({"name": "n0", "price": -1}, "hosts[0].price"),
        (None, "hosts"),
    ],
)
def test_hosts_that_cannot_be_are_refused(paper: Paper, host: Any, expected: str) -> None:
    supervisor, answers = paper.supervisor("rt"), list[dict[str, Any]]()
    supervisor._handle_request({"method": "add", "hosts": host and [host], "bulk": "no"}, answers.append)
    assert expected in answers[0]["error"]
    assert not paper.tries


def test_newcomers_that_cannot_keep_what_they_would_serve_are_refused(paper: Paper) -> None:
    """All that were asked for with them; of those that there are already it is said only."""
    paper.hello = {name: {"memory": 400} for name in ("h0", "n0")}
    supervisor = paper.supervisor("rt")
    refused = request(supervisor, "n0", "n1")
    paper.until(lambda: bool(refused))
    assert refused[0]["error"].startswith("n0 would keep 500 B of parameters, and has 400 B")
    assert not paper.events_of("joined")
    added = request(supervisor, "n1", "n2", "n3")
    paper.until(lambda: bool(added))
    assert added[0]["added"] == ["n1", "n2", "n3"]
    assert added[0]["note"].startswith("memory will run short once they have come: h0 would keep 1 kB of parameters")


def test_a_job_does_not_begin_where_memory_does_not_do(paper: Paper) -> None:
    paper.hello = {"h0": {"memory": 900}}
    with pytest.raises(PlinkError, match=r"h0 would keep 1 kB of parameters, and has 900 B of memory: use smaller tab"):
        paper.run("rt")
    assert not paper.sent


@pytest.mark.parametrize(
    ("hello", "error"),
    [
        ({"version": 1, "plink": "0.9"}, r"h0 has plink 0.9 \(protocol 1\), here it is"),
        ({}, "exit code 1 before the job"),
    ],
)
def test_hosts_that_end_after_their_first_message(paper: Paper, hello: dict[str, Any], error: str) -> None:
    names = hosts("rttt").names
    paper.hello, paper.short_lived = dict.fromkeys(names, hello), set(names)
    with pytest.raises(PlinkError, match=error):
        paper.run("rttt")


@pytest.mark.parametrize("taken", [["h2"], ["h0", "h3"]])
def test_hosts_lost_before_the_start_are_logged_and_the_others_begin(paper: Paper, taken: list[str]) -> None:
    """A controller gets to know them, too: only it knows whether the job can begin."""
    paper.taken = set(taken)
    assert paper.run("rttt").code == 0
    assert [message["type"] for message in paper.sent[0][:3]] == ["settings", "start", "lost"]
    assert [(line["host"], line["event"], line["why"]) for line in paper.log if line["what"] == "host"] == [
        (name, "failed", "no power") for name in taken
    ]


def test_job_whose_hosts_are_all_lost_before_the_start(paper: Paper) -> None:
    paper.taken = paper.silent = set(hosts("rtt").names)
    with pytest.raises(PlinkError, match="h0: no power; all 3 hosts were lost"):
        paper.run("rtt")


@pytest.mark.parametrize("names", [["h1"], ["h0", "h1", "h2"]])
def test_host_killed_before_the_start(paper: Paper, names: list[str]) -> None:
    """Its program may have taken all memory: with its code, and with how many others."""
    paper.taken, paper.silent, paper.reason = set(names), set(names), f"{ENDED} 137"
    with pytest.raises(PlinkError, match=rf"{names[0]}: .*exit code 137 .* out of memory") as error:
        paper.run("rtt")
    assert ("all 3 hosts" in str(error.value)) == (len(names) == 3)


def test_a_job_that_waits_for_a_reliable_host_says_so_once(paper: Paper) -> None:
    paper.unreachable = {"h0"}
    lose(paper.supervisor("rt"), 0, "no power")
    for _ in range(2):
        paper.says(commands.StartReliableHosts())
    (line,) = (text for text in paper.shown if "waits for a reliable host" in text)
    assert "h0" in line
    assert "plink elastic add" in line


def test_late_answer_is_reported_missing_after_the_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    """To add a host takes longer than all else. Nobody says that the job has ended while it goes on."""

    def hear(request: dict[str, Any], answer: Answer) -> None:
        if request["method"] == "add" and not request["silently"]:
            time.sleep(0.5)  # longer than all else may take
            answer({"added": ["n0"]})

    server = ControlSocket(hear)
    try:
        monkeypatch.setattr(control_socket, "_REPLY_TIMEOUT_S", 0.2)
        with pytest.raises(PlinkError, match=r"has not answered within 0\.2 s, and may still do it"):
            ask(server.name, {"method": "status"})
        assert ask(server.name, {"method": "add", "silently": False}) == {"added": ["n0"]}
        monkeypatch.setattr(control_socket, "_LONG_REPLY_TIMEOUT_S", 0.2)
        with pytest.raises(PlinkError, match=r"has not answered within 0\.2 s, and may still do it"):
            ask(server.name, {"method": "add", "silently": True})
    finally:
        server.close()


def test_a_lost_reliable_host_comes_back_while_another_stays_away(
    paper: Paper, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    """And the other is tried again, until it comes too."""
    monkeypatch.setattr(group, "_FIRST_RETRY_S", 0.05)
    supervisor = paper.supervisor("rrt")
    for number in (0, 1):
        lose(supervisor, number, "no power")
    paper.unreachable = {"h0"}
    paper.says(commands.StartReliableHosts())
    paper.until(lambda: bool(paper.events_of("joined")))
    (joined,) = paper.events_of("joined")
    assert [row["name"] for row in joined["hosts"]] == ["h1"]
    paper.until(lambda: paper.tries.count(["h0"]) > 2)
    assert paper.tries.count(["h1"]) == 1
    assert set(supervisor._groups) >= set(supervisor._members)
    paper.unreachable = set()
    paper.until(lambda: len(paper.events_of("joined")) == 2)
    assert {member.name for member in supervisor._members.values()} == {"h0", "h1", "h2"}


def test_a_host_that_the_job_refuses_each_time_is_tried_more_and_more_seldom(
    paper: Paper, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One without the folder of checkpoints, say."""
    monkeypatch.setattr(group, "_FIRST_RETRY_S", 0.2)
    supervisor = paper.supervisor("rt")
    lose(supervisor, 0, "no power")
    waits = []
    for turn in range(1, 4):
        began = time.monotonic()
        paper.says(commands.StartReliableHosts())
        paper.until(lambda turn=turn: len(paper.events_of("joined")) == turn)  # type: ignore[misc]
        waits.append(time.monotonic() - began)
        (number,) = (number for number, member in supervisor._members.items() if member.name == "h0")
        lose(supervisor, number, "another folder")
    assert waits[1] >= 0.2
    assert waits[2] >= 0.4


def test_lost_added_reliable_host_is_not_retried(
    paper: Paper, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    monkeypatch.setattr(group, "_FIRST_RETRY_S", 0.05)
    supervisor = paper.supervisor("rrt")
    lose(supervisor, 0, "no power")
    paper.unreachable = {"h0"}
    paper.says(commands.StartReliableHosts())
    paper.until(lambda: bool(paper.notes))
    paper.unreachable = set()
    answers: list[dict[str, Any]] = []
    supervisor._handle_request({"method": "add", "hosts": [vars(host("h0", "r"))], "bulk": True}, answers.append)
    paper.until(lambda: bool(answers))
    tries = len(paper.tries)
    for _ in range(3):
        supervisor._run_next()
    assert len(paper.tries) == tries
    assert [member.name for member in supervisor._members.values()].count("h0") == 1


@pytest.mark.parametrize(
    ("folder", "expected"),
    [("", "the job ends with it, for want of a checkpoint"), ("/c", "the job goes on from its last checkpoint when")],
)
def test_evicting_the_last_reliable_host_is_explained(paper: Paper, folder: str, expected: str) -> None:
    supervisor, answers = paper.supervisor("rrt"), list[dict[str, Any]]()
    assert supervisor._settings is not None
    supervisor._settings = structs.replace(supervisor._settings, checkpoints=folder)
    for name in ("h2", "h1", "h0"):
        supervisor._handle_request({"method": "evict", "hosts": [name], "seconds": 9.0}, answers.append)
    assert answers[:2] == [{}, {}]
    assert answers[2]["note"].startswith("no reliable host stays (h0, h1): ")
    assert expected in answers[2]["note"]
    assert "plink elastic add" in answers[2]["note"]
