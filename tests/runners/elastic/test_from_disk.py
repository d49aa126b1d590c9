"""Which checkpoint a controller goes on from that takes over from another: the job's own, before that the one which it
was told to go on from, never one that some other job left in the folder."""

from typing import Any

import pytest

from plink.model.elastic.reports import Answer, Failed, PartitionsChanged
from runners.elastic.controller import Controller
from solvers.elastic import events
from solvers.elastic.member import Member
from solvers.elastic.settings import Settings
from solvers.elastic.state import Checkpoint
from solvers.elastic.step import status

NOBODY_WORKS: dict[str, Any] = {
    "serves": {"0": 1, "1": 2}, "replicas": {"0": [-1], "1": [-1]}, "in_doubt": {}, "generation": 0, "number": 5,
    "loaded": [],
    "map": None, "address": "1.2.3.4:5", "workers": {}, "takeovers": {}, "begun": -1, "finished": {}, "paused": False,
    "saved": None, "own": None, "thresholds": None,
    "traffic": {"client_sent": 0, "client_received": 0, "server_sent": 0, "server_received": 0},
}  # fmt: skip
MAP = {"clock": 0, "generation": 0, "everywhere": {"0": [0, [0, 1], 0]}, "left": []}
AT_WORK = NOBODY_WORKS | {
    "replicas": {"0": [8, 9], "1": [9]}, "map": MAP, "workers": {"0": [0, 1]}, "begun": 10, "loaded": [0, 1],
}  # fmt: skip
BEGUN = {"address": "1.2.3.4:6", "unwritable": None, "unsaved": None, "saved": None, "own": None}


def member(number: int, tier: str) -> Member:
    """As the supervisor tells of it."""
    return Member(number, f"h{number}", tier, 1)


OWN = Settings(keys="", partitions=2, shards=2, shapes=((8, 125),), started=0.0, began=0.0).job


def on_disk(clock: int, job: str = "5f3") -> dict[str, Any]:
    """What a host finds in a folder."""
    return {"clock": clock, "partitions": 2, "folder": f"clock-{clock}-{job}"}


class RecordedController:
    """A controller, and what it says."""

    def __init__(self, **settings: Any) -> None:
        self.out: list[dict[str, Any]] = []
        settings = {"partitions": 2, "shards": 2, "shapes": ((8, 125),), "started": 0.0, "began": 0.0, **settings}
        self.controller = Controller(self.out.append, Settings(keys="", **settings), 2, lambda: 0.0)

    def words(self, do: str) -> list[dict[str, Any]]:
        """To hosts, of a kind."""
        sent = [(message["host"], message["request"]) for message in self.out if message["type"] == "send"]
        return [{"to": host, "id": item["id"], **item["params"]} for host, item in sent if item["method"] == do]

    def says(self, kind: str) -> list[dict[str, Any]]:
        """To the launcher, of a kind."""
        return [word for word in self.out if word["type"] == kind]

    def answer(self, host: int, do: str, answer: dict[str, Any]) -> None:
        """To the last such word to it."""
        request = [word for word in self.words(do) if word["to"] == host][-1]
        self.controller.handle(events.HostMessage(host, Answer(request["id"], result=answer)))
        self.controller.tick()

    def lose(self, host: int) -> None:
        """One is killed."""
        self.controller.handle(events.HostsLost((host,), "killed"))
        self.controller.tick()

    def comes(self, number: int, **result: Any) -> None:
        """A reliable host, which begins and finds this."""
        self.controller.handle(events.HostsJoined((member(number, "reliable"),), True))
        self.answer(number, "begin", {**BEGUN, **result})
        for do in ("mark_folder", "check_folder"):
            for word in self.words(do):
                self.answer(word["to"], do, {})

    def restored(self, of_another_job: bool) -> set[str]:
        """The folders that partitions were asked for from, all of another job or of this one."""
        assert all(word["of_another_job"] == of_another_job for word in self.words("restore"))
        return {word["path"].rpartition("/")[0] for word in self.words("restore")}


class Resumed(RecordedController):
    """The second controller of a job with one host."""

    def __init__(self, report: dict[str, Any], tier: str = "reliable", **settings: Any) -> None:
        super().__init__(**settings)
        self.controller.handle(events.ControllerRestarted((member(0, tier),)))
        self.answer(0, "report", report)

    def lose_and_return(self, **result: Any) -> None:
        """The reliable host, which begins anew and finds this."""
        self.lose(0)
        self.comes(1, **result)


def test_a_controller_that_is_lost_while_partitions_are_read() -> None:
    """Minutes for large tables: the next one is told again where they lie."""
    job = Resumed(NOBODY_WORKS | {"saved": on_disk(40)}, restore="/shared/before")
    assert job.says("end") == []
    assert job.restored(of_another_job=True) == {"/shared/before/clock-40-5f3"}


def test_missing_checkpoint_is_reported() -> None:
    job = Resumed(NOBODY_WORKS, restore="/shared/before")
    (end,) = job.says("end")
    assert end["reason"] == "--restore /shared/before: none of the reliable hosts finds a checkpoint there"


@pytest.mark.parametrize(("own", "saved"), [(None, None), (on_disk(7), Checkpoint("/shared/c/clock-7-5f3", 7))])
def test_only_its_own_are_counted(own: dict[str, int] | None, saved: Checkpoint | None) -> None:
    """And written on from there."""
    job = Resumed(AT_WORK | {"own": own}, checkpoints="/shared/c", checkpoint_every_s=0.0)
    assert job.controller.state.checkpointing.last == saved
    assert status(job.controller.state, 0.0)["checkpoint"] == (saved.clock if saved else None)


def test_resumes_from_the_supplied_checkpoint_before_its_own() -> None:
    values = {"restore": "/shared/before", "checkpoints": "/shared/c"}
    job = Resumed(AT_WORK | {"saved": on_disk(4)}, **values)
    job.lose_and_return(saved=on_disk(4))
    assert job.says("end") == []
    assert job.restored(of_another_job=True) == {"/shared/before/clock-4-5f3"}


def test_then_from_its_own() -> None:
    values = {"restore": "/shared/before", "checkpoints": "/shared/c"}
    job = Resumed(AT_WORK | {"saved": on_disk(4), "own": on_disk(8, OWN)}, **values)
    job.lose_and_return(saved=on_disk(4), own=on_disk(8, OWN))
    assert job.restored(of_another_job=False) == {f"/shared/c/clock-8-{OWN}"}


@pytest.mark.parametrize(("clock", "latest"), [(9, 9), (7, 8)])
def test_newer_of_what_is_known_and_what_the_folder_has(clock: int, latest: int) -> None:
    """A checkpoint may have been named by a host that was lost before it said so."""
    job = Resumed(AT_WORK | {"own": on_disk(8, OWN)}, checkpoints="/shared/c", checkpoint_every_s=1e9)
    job.lose_and_return(own=on_disk(clock, OWN))
    assert job.restored(of_another_job=False) == {f"/shared/c/clock-{latest}-{OWN}"}


class Naming(RecordedController):
    """The second controller of a job with so many reliable hosts, with one partition each, and what it says once host 0
    was told to name the checkpoint of clock 10."""

    def __init__(self, hosts: int, own: dict[str, Any] | None = None) -> None:
        super().__init__(partitions=hosts, checkpoints="/shared/c", checkpoint_every_s=0.0)
        self.controller.handle(events.ControllerRestarted(tuple(member(number, "reliable") for number in range(hosts))))
        for number in range(hosts):
            part = {"serves": {str(number): 1 + number}, "replicas": {str(number): [8, 9]}, "workers": {}}
            work = {"workers": AT_WORK["workers"]} if number == 0 else {}
            self.answer(number, "report", AT_WORK | part | work | {"own": own})
        for number in range(hosts):
            changed = PartitionsChanged({number: ("serving", AT_WORK["generation"], 1 + number, 10, 10)})
            self.controller.handle(events.HostMessage(number, changed))
        self.controller.tick()
        written = {"seconds": 0.1, "bytes": 10}
        for number in (*range(1, hosts), 0):
            self.answer(number, "write_checkpoint", written)
        assert [word["to"] for word in self.words("keep_checkpoint")] == [0]


@pytest.mark.parametrize("own", [None, on_disk(10, OWN)])
def test_the_only_reliable_host_is_lost_as_it_names_the_first(own: dict[str, Any] | None) -> None:
    """It may have been named: the host says so when it returns."""
    job = Naming(1)
    job.lose(0)
    assert not job.says("end")
    job.comes(1, own=own)
    assert job.restored(of_another_job=False) == ({f"/shared/c/clock-10-{OWN}"} if own else set())
    assert bool(job.says("end")) == (own is None)


@pytest.mark.parametrize("before", [None, on_disk(5, OWN)])
@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("loses", [(0,), (0, 1)])
def test_another_host_says_whether_a_checkpoint_was_named(
    before: dict[str, Any] | None, named: bool, loses: tuple[int, ...]
) -> None:
    """The host that was told to name it is lost, and state with it: the latest is the one that was named, if it was.
    The other may be lost as it is asked: then the next that comes says so."""
    job = Naming(2, own=before)
    job.lose(0)
    assert not job.says("end")
    assert not job.words("restore")
    latest = on_disk(10, OWN) if named else before
    if loses == (0,):
        job.answer(1, "discard_checkpoint", {"latest": latest})
    else:
        job.lose(1)
        assert not job.says("end")
        assert job.says("start_reliable_hosts")
        job.comes(2, own=latest)
    assert job.restored(of_another_job=False) == ({f"/shared/c/{latest['folder']}"} if latest else set())
    assert bool(job.says("end")) == (latest is None)


def test_hosts_that_come_wait_for_what_is_said_of_a_checkpoint() -> None:
    job = Naming(2, own=on_disk(5, OWN))
    job.lose(0)
    job.comes(2, own=on_disk(5, OWN))
    assert not job.words("restore")
    job.answer(1, "discard_checkpoint", {"latest": on_disk(10, OWN)})
    assert job.restored(of_another_job=False) == {f"/shared/c/clock-10-{OWN}"}


def on_its_way(job: Naming) -> None:
    """Host 2 has begun, and looks for the folder."""
    job.controller.handle(events.HostsJoined((member(2, "reliable"),), True))
    job.answer(2, "begin", BEGUN)
    job.answer(job.words("mark_folder")[-1]["to"], "mark_folder", {})
    assert [word["to"] for word in job.words("check_folder")] == [2]


def fails(job: Naming, host: int, do: str, error: str) -> None:
    """The last such word to it."""
    request = [word for word in job.words(do) if word["to"] == host][-1]
    job.controller.handle(events.HostMessage(host, Answer(request["id"], error, "InputError")))
    job.controller.tick()


def test_a_host_whose_folder_is_not_checked_yet_takes_no_part() -> None:
    """It is not asked, nor restored to; it may be refused, or come afterwards."""
    job = Naming(2, own=on_disk(5, OWN))
    job.lose(0)
    on_its_way(job)
    job.answer(1, "discard_checkpoint", {"latest": on_disk(10, OWN)})
    assert {word["to"] for word in job.words("discard_checkpoint")} == {1}
    assert {word["to"] for word in job.words("restore")} == {1}
    fails(job, 2, "check_folder", "another folder")
    assert not job.says("end")
    assert 2 not in job.controller.state.cluster.members


def test_a_host_without_the_folder_does_not_say_that_there_is_no_checkpoint() -> None:
    job = Naming(2)
    on_its_way(job)
    job.lose(0)
    assert {word["to"] for word in job.words("discard_checkpoint")} == {1}
    job.lose(1)
    fails(job, 2, "check_folder", "another folder")
    assert not job.says("end")
    assert job.says("start_reliable_hosts")
    job.comes(3, own=on_disk(10, OWN))
    assert job.restored(of_another_job=False) == {f"/shared/c/clock-10-{OWN}"}


def test_a_host_that_came_while_another_was_asked_is_asked_when_that_is_lost() -> None:
    """What it read as it began may be of before the naming."""
    job = Naming(2)
    job.lose(0)
    job.comes(2)
    job.lose(1)
    assert not job.says("end")
    job.answer(2, "discard_checkpoint", {"latest": on_disk(10, OWN)})
    assert job.restored(of_another_job=False) == {f"/shared/c/clock-10-{OWN}"}


def test_one_host_that_knows_the_checkpoint_is_enough() -> None:
    job = Naming(3, own=on_disk(5, OWN))
    job.lose(0)
    job.answer(1, "discard_checkpoint", {"latest": on_disk(10, OWN)})
    assert job.restored(of_another_job=False) == {f"/shared/c/clock-10-{OWN}"}


def test_a_job_that_has_ended_restores_nothing() -> None:
    job = Naming(2, own=on_disk(5, OWN))
    job.lose(0)
    job.controller.handle(events.HostMessage(1, Failed("ValueError: no")))
    assert job.says("end")
    job.answer(1, "discard_checkpoint", {"latest": on_disk(10, OWN)})
    assert not job.words("restore")


def test_a_host_that_comes_to_the_next_controller_without_the_folder_is_refused() -> None:
    """Its disk may not be mounted yet: it does not mark an empty folder, and the job waits on."""
    job = Resumed(AT_WORK, "transient", checkpoints="/shared/c")
    job.controller.handle(events.HostsJoined((member(1, "reliable"),), True))
    job.answer(1, "begin", BEGUN)
    assert not job.words("mark_folder")
    (word,) = job.words("check_folder")
    job.controller.handle(events.HostMessage(1, Answer(word["id"], "another folder", "InputError")))
    job.controller.tick()
    assert not job.says("end")
    job.comes(2, own=on_disk(8, OWN))
    assert job.restored(of_another_job=False) == {f"/shared/c/clock-8-{OWN}"}


def test_the_reliable_host_is_lost_with_the_controller() -> None:
    """Who is left may not see the folder: the reliable host that comes back does, and all go on from what it finds."""
    job = Resumed(AT_WORK, "transient", checkpoints="/shared/c")
    assert job.says("start_reliable_hosts")
    assert not job.says("end")
    assert status(job.controller.state, 0.0)["checkpoint"] is None
    job.comes(1, own=on_disk(8, OWN))
    assert job.says("end") == []
    assert job.restored(of_another_job=False) == {f"/shared/c/clock-8-{OWN}"}
    (again,) = (word for word in job.words("reset") if word["to"] == 0)
    assert again["clock"] == 8
    assert again["generation"] > AT_WORK["number"]


def test_it_is_lost_with_the_controller_and_there_is_no_checkpoint() -> None:
    """Without a folder that is known at once; whether one was written, when somebody comes who can look."""
    (end,) = Resumed(AT_WORK, "transient").says("end")
    assert "the last reliable host is gone" in end["reason"]
    assert end["reason"].endswith("(no checkpoint was written: --checkpoint DIR)")
    job = Resumed(AT_WORK, "transient", checkpoints="/shared/c")
    job.comes(1)
    (end,) = job.says("end")
    assert end["reason"].endswith("(no checkpoint was written in /shared/c yet)")


def test_a_worker_had_finished_and_was_released() -> None:
    """The map that hosts have does not name it any more."""
    job = Resumed(AT_WORK | {"finished": {"7": 11}})
    assert job.says("end") == []
    assert job.controller.state.ending.finished in ({7: 11}, {})  # {}: all were rolled back


def test_a_folder_that_cannot_be_written_is_refused_before_the_start() -> None:
    job = RecordedController(checkpoints="/proc/nope")
    job.controller.handle(
        events.JobStarted(
            (
                member(0, "reliable"),
                member(1, "reliable"),
            )
        )
    )
    for host in (0, 1):
        job.answer(host, "begin", {**BEGUN, "unwritable": "No such file or directory" if host == 1 else None})
    (end,) = job.says("end")
    assert end["reason"] == "--checkpoint /proc/nope: it cannot be written on h1: No such file or directory"


NO_FOLDER = "/nowhere/topics.npz: there is no folder /nowhere"


def test_a_result_that_could_not_be_kept_is_refused_before_the_start() -> None:
    job = RecordedController()
    job.controller.handle(
        events.JobStarted(
            (
                member(0, "reliable"),
                member(1, "transient"),
            )
        )
    )
    job.answer(0, "begin", {**BEGUN, "unsaved": NO_FOLDER})
    (end,) = job.says("end")
    assert end["reason"] == f"h0: what is learnt could not be kept: {NO_FOLDER}"
    assert not job.words("open")


class Early(RecordedController):
    """A job whose only reliable host is lost before it has begun."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.controller.handle(
            events.JobStarted(
                (
                    member(0, "reliable"),
                    member(1, "transient"),
                )
            )
        )
        self.answer(1, "begin", BEGUN)
        self.lose(0)


def test_the_reliable_host_is_lost_before_the_job_has_begun() -> None:
    """It was in the hosts file: nobody is told to mark one there, but which one it was, and why."""
    early = Early()
    ends = [line["fields"] for line in early.says("log") if line["fields"]["what"] == "host"]
    assert [(fields["host"], fields["event"], fields["why"]) for fields in ends] == [("h0", "failed", "killed")]
    (end,) = early.says("end")
    assert end["reason"].startswith("h0: killed; the last reliable host was lost before the job had begun")
