"""Checkpoints in the background: when one is due, whole, kept, or given up."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pytest

from plink.model.checkpoint_names import name_of
from plink.model.elastic.fields import SavedCheckpoint
from plink.model.elastic.reports import Answer
from plink.model.elastic.requests import method_of, params_of
from solvers.elastic import checkpointing, step
from solvers.elastic.commands import CheckpointAnswer, LogLine, Say, Send
from solvers.elastic.context import Context
from solvers.elastic.member import Member
from solvers.elastic.placement.cluster import Cluster
from solvers.elastic.settings import Settings
from solvers.elastic.start import start
from solvers.elastic.state import Checkpoint, Checkpointing, initial

JOB = Settings("", 3, 2, ((10, 10),), 0.0, 0.0).job


def requests_in(commands: Iterable[object]) -> list[dict[str, Any]]:
    """Requests to hosts, plainly: method, parameters, and the number of those that want an answer."""
    return [
        {"to": command.host, "do": method_of(command.request), "id": command.id, **_plain(params_of(command.request))}
        for command in commands
        if isinstance(command, Send)
    ]


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(part) for key, part in value.items()}
    return [_plain(part) for part in value] if isinstance(value, tuple) else value


class Desk:
    """Two reliable hosts with three partitions, and what is sent to them."""

    def __init__(self, every_s: float = 0.0, folder: str = "/c") -> None:
        self.sent: list[dict[str, Any]] = []
        self.notes: list[str] = []
        self.lines: list[dict[str, Any]] = []
        self.answers: list[dict[str, Any]] = []
        self.now = 0.0
        settings = Settings("", 3, 2, ((10, 10),), 0.0, 0.0, checkpoints=folder, checkpoint_every_s=every_s)
        self.job = initial(settings, 1, 0.0)
        self.job.members = {number: Member(number, f"h{number}", "reliable", 1) for number in (0, 1)}
        self.state = start([Member(0, "h0", "reliable"), Member(1, "h1", "reliable")], (1.0,) * 3, 2).cluster

    @property
    def saving(self) -> Checkpointing:
        """The sub-state that is tried."""
        return self.job.checkpointing

    def act(self, does: Callable[[Context], Any], cluster: Cluster | None = None) -> Any:
        """One step, with this placement; the state before it is as it was."""
        self.job.placement = cluster or self.state
        shown = repr(self.job)
        ctx = Context(self.job, self.now)
        result = does(ctx)
        assert repr(self.job) == shown
        self.job = ctx.state
        self.sent += requests_in(ctx.commands)
        self.notes += [command.text for command in ctx.commands if isinstance(command, Say)]
        self.answers += [dict(command.result) for command in ctx.commands if isinstance(command, CheckpointAnswer)]
        self.lines += [dict(entry.fields) for entry in ctx.entries if isinstance(entry, LogLine)]
        return result

    def advance(self, cluster: Cluster | None = None, left_s: float | None = None) -> None:
        """Begin one if it is due."""
        self.act(lambda ctx: checkpointing.advance(ctx, left_s), cluster)

    def consistent(self, clock: int) -> None:
        """All replicas have that clock."""
        self.job.checkpointing = replace(self.saving, clock=clock)

    def rolled_back(self, clock: int) -> None:
        """All are at a clock again."""
        self.job.checkpointing = checkpointing.rolled_back(self.saving, clock)

    def finished(self, clock: int, cluster: Cluster | None = None) -> bool:
        """Whether the job may end."""
        return bool(self.act(lambda ctx: checkpointing.finished(ctx, clock), cluster))

    def words(self, do: str) -> list[dict[str, Any]]:
        """Of a kind."""
        return [word for word in self.sent if word["do"] == do]

    def answer(self, word: dict[str, Any], error: str | None = None, kind: str = "", **result: Any) -> None:
        """One that was sent is answered."""
        answer = Answer(word["id"], error, kind, {} if error else result)
        self.act(lambda ctx: step.answered(ctx, word["to"], answer))

    def written(self, reason: str | None = None, kind: str = "", *, by: tuple[int, ...] = (0, 1)) -> None:
        """Hosts have answered that they wrote theirs, or why not, and removed what they were asked to remove."""
        for word in self.words("write_checkpoint"):
            if word["to"] in by:
                self.answer(word, reason, kind, seconds=0.5 + word["to"], bytes=10)
        for word in self.words("discard_checkpoint"):
            self.answer(word)

    def confirm(self) -> None:
        """The last is whole."""
        self.written()
        self.answer(self.words("keep_checkpoint")[-1])


def test_one_is_written_and_then_it_is_the_latest() -> None:
    desk = Desk()
    desk.consistent(7)
    desk.advance()
    desk.advance()
    assert [(word["to"], word["partitions"], word["folder"]) for word in desk.sent] == [
        (0, [0, 1], f"/c/{name_of(7, JOB)}"),
        (1, [2], f"/c/{name_of(7, JOB)}"),
    ]
    assert desk.saving.attempt
    desk.written()
    assert desk.saving.last is None
    (keep,) = desk.words("keep_checkpoint")
    assert keep["job"] == JOB
    assert keep["saved"] == SavedCheckpoint(7, 3, name_of(7, JOB))
    desk.answer(keep)
    assert desk.saving.last == Checkpoint(f"/c/{name_of(7, JOB)}", 7)
    assert desk.lines == [{"what": "checkpoint", "clock": 7, "seconds": 1.5, "bytes": 20}]
    assert [(word["to"], word["clock"]) for word in desk.words("truncate")] == [(0, 7), (1, 7)]
    desk.advance()  # of the same clock there is one
    assert len(desk.words("write_checkpoint")) == 2


@pytest.mark.parametrize("reason", ["no folder", "not yet", "not safe", "unknown host", "no clock", "halted"])
def test_none_is_written(reason: str) -> None:
    desk = Desk(every_s=1e9 if reason == "not yet" else 0.0, folder="" if reason == "no folder" else "/c")
    if reason != "no clock":
        desk.consistent(7)
    state, item = desk.state, desk.state.partitions[0]
    if reason == "not safe":
        state = replace(state, partitions=(replace(item, safe=False), *state.partitions[1:]))
    if reason == "unknown host":
        state = replace(state, partitions=(replace(item, replica=9), *state.partitions[1:]))
    desk.advance(replace(state, halted=reason == "halted"))
    assert not desk.sent


@pytest.mark.parametrize(
    ("kind", "notes"), [("OSError", ["no checkpoint could be written in /c: h0: disk full"]), ("Gone", [])]
)
def test_failed_checkpoint_is_abandoned(kind: str, notes: list[str]) -> None:
    desk = Desk()
    desk.consistent(7)
    desk.advance()
    desk.written("disk full", kind)
    assert desk.notes == notes
    assert not desk.saving.attempt
    assert len(desk.words("truncate")) == 2  # once: the second answer is of nothing
    assert not desk.words("keep_checkpoint")


@pytest.mark.parametrize("counts", [True, False])
def test_a_checkpoint_whose_naming_failed_may_count(counts: bool) -> None:
    """Where the job's own file names it, and that for other jobs could not be replaced."""
    desk = Desk()
    desk.consistent(7)
    desk.job.checkpointing = replace(desk.saving, requests=((6, 1),))
    desk.advance()
    for word in desk.words("write_checkpoint"):
        desk.answer(word, seconds=0.5, bytes=10)
    desk.answer(desk.words("keep_checkpoint")[-1], "latest.json: not permitted", "OSError")
    latest = {"clock": 7, "partitions": 3, "folder": name_of(7, JOB)} if counts else None
    for word in desk.words("discard_checkpoint"):
        desk.answer(word, latest=latest)
    (note,) = desk.notes
    assert "latest.json: not permitted" in note
    assert ("no checkpoint could be written" in note) == (not counts)
    assert [answer.get("clock") for answer in desk.answers] == [7 if counts else None]
    assert desk.saving.failures == (0 if counts else 1)


def test_the_first_one_of_its_own_is_of_the_clock_that_was_restored() -> None:
    desk = Desk()
    desk.consistent(7)
    desk.job.checkpointing = replace(desk.saving, last=Checkpoint("/b/clock-7-5f3", 7), requests=((7, 1),))
    desk.advance()
    for word in desk.words("write_checkpoint"):
        desk.answer(word, seconds=0.5, bytes=10)
    desk.answer(desk.words("keep_checkpoint")[-1], "latest.json: not permitted", "OSError")
    for word in desk.words("discard_checkpoint"):
        desk.answer(word, latest={"clock": 7, "partitions": 3, "folder": name_of(7, JOB)})
    assert desk.saving.last == Checkpoint(f"/c/{name_of(7, JOB)}", 7)
    assert desk.answers == [{"clock": 7, "folder": f"/c/{name_of(7, JOB)}"}]


@pytest.mark.parametrize(("named", "last"), [(7, 7), (3, 5), (None, 5)])
def test_the_answer_to_the_naming_is_lost(named: int | None, last: int) -> None:
    """Any reliable host knows whether it was named, also one that wrote no part."""
    desk = Desk()
    desk.job.checkpointing = replace(desk.saving, clock=5)
    desk.advance()
    desk.confirm()
    desk.consistent(7)
    desk.job.checkpointing = replace(desk.saving, requests=((6, 1),))
    desk.advance()
    for word in desk.words("write_checkpoint")[2:]:
        desk.answer(word, seconds=0.5, bytes=10)
    desk.job.members = {1: desk.job.members[1], 2: Member(2, "h2", "reliable", 1), 3: Member(3, "h3", "transient", 1)}
    desk.answer(desk.words("keep_checkpoint")[-1], "the host is gone", "Gone")
    removals = desk.words("discard_checkpoint")
    assert [word["to"] for word in removals] == [1, 2]
    desk.answer(removals[0])
    desk.answer(removals[1], latest=named and {"clock": named, "partitions": 3, "folder": name_of(named, JOB)})
    assert desk.saving.last == Checkpoint(f"/c/{name_of(last, JOB)}", last)
    assert desk.answers == ([{"clock": 7, "folder": f"/c/{name_of(7, JOB)}"}] if named == 7 else [])
    logged = [line for line in desk.lines if line["what"] == "checkpoint" and line["clock"] == 7]
    assert [(line["seconds"], line["bytes"]) for line in logged] == ([(0.5, 20)] if named == 7 else [])
    assert not desk.saving.attempt


def test_a_failed_checkpoint_is_removed_once_all_hosts_have_answered() -> None:
    desk = Desk()
    desk.consistent(7)
    desk.advance()
    desk.written("disk full", "OSError", by=(0,))
    assert not desk.words("discard_checkpoint")
    desk.consistent(8)
    desk.advance()
    assert len(desk.words("write_checkpoint")) == 2  # the other host may still be writing
    desk.written(by=(1,))
    assert [(word["to"], word["folder"]) for word in desk.words("discard_checkpoint")] == [
        (0, f"/c/{name_of(7, JOB)}"),
        (1, f"/c/{name_of(7, JOB)}"),
    ]
    assert len(desk.notes) == 1
    desk.advance()
    assert len(desk.words("write_checkpoint")) == 4


def test_a_roll_back_gives_one_up() -> None:
    desk = Desk()
    desk.consistent(7)
    desk.advance()
    desk.rolled_back(3)
    desk.written()
    assert not desk.words("keep_checkpoint")
    assert not desk.saving.attempt


class RequestingDesk(Desk):
    """A desk at which checkpoints come seldom, and one is wished for at clock 7."""

    def __init__(self) -> None:
        super().__init__(every_s=1e9)
        self.consistent(7)
        self.request_checkpoint()

    def request_checkpoint(self) -> None:
        """For one now."""
        self.act(lambda ctx: checkpointing.request(ctx, 0))
        self.advance()


def test_requested_checkpoint_is_written_at_once() -> None:
    desk = RequestingDesk()
    desk.advance()
    assert [word["folder"] for word in desk.words("write_checkpoint")] == [f"/c/{name_of(7, JOB)}"] * 2
    desk.written()
    assert desk.answers == []  # it counts when it is named
    keep = desk.words("keep_checkpoint")[-1]
    desk.answer(keep)
    assert desk.answers == [{"clock": 7, "folder": f"/c/{name_of(7, JOB)}"}]
    desk.consistent(8)
    desk.advance()
    assert len(desk.words("write_checkpoint")) == 2  # the wish is fulfilled


def test_request_for_a_checkpoint_that_exists() -> None:
    desk = RequestingDesk()
    desk.request_checkpoint()
    desk.confirm()
    desk.request_checkpoint()
    assert [messages["clock"] for messages in desk.answers] == [7, 7, 7]
    assert len(desk.words("write_checkpoint")) == 2


def test_request_while_an_older_checkpoint_is_written() -> None:
    desk = RequestingDesk()
    desk.consistent(9)
    desk.request_checkpoint()
    desk.confirm()
    assert [messages["clock"] for messages in desk.answers] == [7]
    desk.advance()
    desk.confirm()
    assert [messages["clock"] for messages in desk.answers] == [7, 9]


def test_failed_checkpoint_answers_its_requests() -> None:
    desk = RequestingDesk()
    desk.written("disk full", "OSError")
    assert desk.answers == [{"error": "no checkpoint could be written in /c: h0: disk full"}]
    desk.advance()
    assert len(desk.words("write_checkpoint")) == 2  # and is not tried again


def test_one_that_is_due_outlives_a_partition_that_moved_meanwhile_too() -> None:
    """As no reliable host stays: the next would be due in a minute, or in a quarter of the time that is left."""
    for left_s in (None, 60.0):
        desk = Desk(every_s=60.0)
        desk.consistent(7)
        desk.job.checkpointing = replace(desk.saving, urgent=True)
        desk.advance(left_s=left_s)
        desk.written("partition 1 is not here", "RejectedRequest")
        desk.advance(left_s=left_s)
        assert len(desk.words("write_checkpoint")) == 2
        desk.now += 0.3
        desk.advance(left_s=left_s)
        assert (len(desk.words("write_checkpoint")), desk.notes) == (4, [])
        desk.confirm()
        assert not desk.saving.urgent


@pytest.mark.parametrize("back", [True, False])
def test_request_outlives_a_host_and_a_roll_back(back: bool) -> None:
    """To a clock before that of the wish, which all may never see again as it was."""
    desk = RequestingDesk()
    if back:
        desk.rolled_back(3)
        desk.written()
        desk.consistent(4)
    else:
        desk.written("the host is gone", "Gone")
    assert desk.answers == []
    desk.advance()
    desk.confirm()
    assert [messages["clock"] for messages in desk.answers] == [4 if back else 7]


def test_a_job_ends_though_its_last_clock_cannot_be_written() -> None:
    """It is said; what failed before does not count."""
    desk = Desk()
    desk.consistent(39)
    desk.advance()
    desk.written("disk full", "OSError")
    desk.consistent(40)
    assert not desk.finished(40)
    desk.written("disk full", "OSError")
    assert desk.finished(40)
    assert len(desk.notes) == 2
    desk.act(lambda ctx: checkpointing.say_what_is_missing(ctx, 40))
    assert "the last clock, 40, is in no checkpoint" in desk.notes[2]


def test_a_job_does_not_wait_for_ever_for_replicas_at_its_end() -> None:
    """One that is being written it does wait for."""
    desk = Desk(every_s=1e9)
    nowhere = replace(desk.state, partitions=(replace(desk.state.partitions[0], safe=False),))
    desk.consistent(40)
    assert not desk.finished(40, nowhere)
    desk.now = 29.0
    assert not desk.finished(40)
    desk.now = 99.0
    assert not desk.finished(40)
    desk.rolled_back(39)
    desk.written()
    desk.consistent(40)
    assert not desk.finished(40, nowhere)
    desk.now = 130.0
    assert desk.finished(40, nowhere)
