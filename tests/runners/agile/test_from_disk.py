"""Which checkpoint a controller goes on from that takes over from another: the job's own, before that the one which it
was told to go on from, never one that some other job left in the folder."""

from typing import Any

import pytest

from runners.agile.controller import Controller
from runners.agile.member import Member
from runners.agile.saving import Saved
from runners.agile.settings import Settings

NOBODY_WORKS: dict[str, Any] = {
    "serves": {"0": 1, "1": 2}, "backs": {"0": -1, "1": -1}, "era": 0, "number": 5, "loaded": [], "map": {},
    "address": "1.2.3.4:5", "workers": {}, "stands_in": {}, "begun": -1, "finished": {}, "held": False,
    "saved": None, "own": None,
}  # fmt: skip
MAP = {"clock": 0, "era": 0, "everywhere": {"0": [0, [0, 1], 0]}, "left": []}
AT_WORK = NOBODY_WORKS | {
    "backs": {"0": 9, "1": 9}, "map": MAP, "workers": {"0": [0, 1]}, "begun": 10, "loaded": [0, 1],
}  # fmt: skip


def on_disk(clock: int) -> dict[str, int]:
    """What a host finds in a folder."""
    return {"clock": clock, "partitions": 2}


class Resumed:
    """The second controller of a job with one reliable host, and what it says."""

    def __init__(self, report: dict[str, Any], **settings: Any) -> None:
        self.out: list[dict[str, Any]] = []
        asked = Settings(keys="", partitions=2, pieces=2, bytes=1000, started=0.0, began=0.0, **settings)
        self.controller = Controller(self.out.append, asked, 2, lambda: 0.0)
        self.controller.hear({"is": "resume", "hosts": [Member(0, "r0", "reliable", 1, hello={}).to_json()]})
        self.answer(0, "report", report)

    def words(self, do: str) -> list[dict[str, Any]]:
        """To hosts, of a kind."""
        return [word for word in self.out if word.get("do") == do]

    def says(self, kind: str) -> list[dict[str, Any]]:
        """To the launcher, of a kind."""
        return [word for word in self.out if word.get("is") == kind]

    def answer(self, host: int, do: str, answer: dict[str, Any]) -> None:
        """To the last such word."""
        asked = self.words(do)[-1]
        self.controller.hear({"is": "answer", "from": host, "id": asked["id"], "why": None, **answer})
        self.controller.tick()

    def lose_and_return(self, **found: Any) -> None:
        """The reliable host, which begins anew and finds this."""
        self.controller.hear({"is": "gone", "host": 0, "why": "killed"})
        self.controller.hear(
            {"is": "joined", "hosts": [Member(1, "r0", "reliable", 1, hello={}).to_json()], "bulk": True}
        )
        self.answer(1, "begin", {"address": "1.2.3.4:6", "saved": None, "own": None, **found})

    def restored(self) -> set[str]:
        """The folders that partitions were asked for from."""
        return {word["path"].rpartition("/")[0] for word in self.words("restore")}


def test_a_controller_that_is_lost_while_partitions_are_read() -> None:
    """Minutes for large tables: the next one is told again where they lie."""
    job = Resumed(NOBODY_WORKS | {"saved": on_disk(40)}, restore="/shared/before")
    assert job.says("end") == []
    assert job.restored() == {"/shared/before/clock-40"}


def test_a_checkpoint_that_nobody_finds_is_said() -> None:
    job = Resumed(NOBODY_WORKS, restore="/shared/before")
    (end,) = job.says("end")
    assert end["why"] == "--restore /shared/before: none of the reliable hosts finds a checkpoint there"


@pytest.mark.parametrize(("own", "saved"), [(None, None), (on_disk(7), Saved("/shared/c/clock-7", 7))])
def test_only_its_own_are_counted(own: dict[str, int] | None, saved: Saved | None) -> None:
    """And written on from there."""
    job = Resumed(AT_WORK | {"own": own}, checkpoints="/shared/c", checkpoint_every_s=0.0)
    assert job.controller.saving.last == saved
    assert job.controller.status()["checkpoint"] == (saved.clock if saved else None)


def test_before_its_own_first_one_it_goes_on_from_what_it_was_given() -> None:
    given = {"restore": "/shared/before", "checkpoints": "/shared/c"}
    job = Resumed(AT_WORK | {"saved": on_disk(4)}, **given)
    job.lose_and_return(saved=on_disk(4))
    assert job.says("end") == []
    assert job.restored() == {"/shared/before/clock-4"}


def test_then_from_its_own() -> None:
    given = {"restore": "/shared/before", "checkpoints": "/shared/c"}
    job = Resumed(AT_WORK | {"saved": on_disk(4), "own": on_disk(8)}, **given)
    job.lose_and_return(saved=on_disk(4), own=on_disk(8))
    assert job.restored() == {"/shared/c/clock-8"}
