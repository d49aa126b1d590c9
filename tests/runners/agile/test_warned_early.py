"""Hosts that are warned before every partition has its backup: nobody is to go back to what no backup has."""

from typing import Any

from runners.agile.controller import Controller
from runners.agile.member import Member
from runners.agile.settings import Settings

HOSTS = {0: "reliable", 1: "transient", 2: "transient"}


class Opening:
    """A job whose hosts have begun, and whose partitions are being opened."""

    def __init__(self) -> None:
        self.out: list[dict[str, Any]] = []
        self.now, self.answered = 0.0, set[int]()
        settings = Settings(keys="", partitions=2, pieces=2, shapes=((8, 125),), started=0.0, began=0.0)
        self.controller = Controller(self.out.append, settings, 1, lambda: self.now)
        hosts = [Member(number, f"h{number}", tier, 1, hello={}).to_json() for number, tier in HOSTS.items()]
        self.controller.hear({"is": "start", "hosts": hosts})
        self.answer("begin")

    def words(self, do: str) -> list[dict[str, Any]]:
        """To hosts, of a kind."""
        return [word for word in self.out if word.get("do") == do]

    def answer(self, do: str) -> None:
        """All words of a kind that nobody has answered yet: done."""
        for word in self.words(do):
            if word["id"] not in self.answered:
                self.answered.add(word["id"])
                more = (
                    {
                        "address": f"1.2.3.4:{word['to']}",
                        "saved": None,
                        "own": None,
                        "unwritable": None,
                        "unsaved": None,
                    }
                    if do == "begin"
                    else {}
                )
                self.controller.hear({"is": "answer", "from": word["to"], "id": word["id"], "why": None, **more})
        self.wait(0.0)

    def wait(self, seconds: float) -> None:
        """Time goes by."""
        self.now += seconds
        self.controller.tick()


def test_who_is_warned_while_partitions_are_opened_is_decided_on_afterwards() -> None:
    """A roll-back, which a warning without time is, came before the partition that was still being read: the host
    refused to serve it in an era that was over, and the job ended."""
    job = Opening()
    assert job.words("open")
    assert not job.controller.ready()
    job.controller.hear({"is": "evict", "hosts": [1], "seconds": 0.0, "why": "a notice"})
    job.wait(0.5)
    assert job.words("roll_back") == []
    job.answer("open")
    job.answer("back_up")
    assert job.controller.ready()
    job.wait(0.5)
    assert job.words("roll_back")


def test_who_is_gone_by_then_is_not_decided_on() -> None:
    """All begin anew without it."""
    job = Opening()
    job.controller.hear({"is": "evict", "hosts": [1], "seconds": 0.0, "why": "a notice"})
    job.wait(0.0)
    job.controller.hear({"is": "gone", "host": 1, "why": "killed"})
    job.answer("open")
    job.answer("back_up")
    job.wait(0.5)
    assert job.controller.ready()
    assert job.words("roll_back") == []
    assert 1 not in job.controller.cluster.members
