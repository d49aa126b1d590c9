"""The arbiter beside partition 0's primary: it answers announcements, and sees updates arrive (MLfabric, Viswanathan
and Akella 2020, section 4).

It lives as long as the partition is served here in one generation; a worker that waited then announces its update
again.
"""

import json
from collections.abc import Callable
from dataclasses import astuple, dataclass, replace
from math import inf

from plink.model.elastic.fields import UpdateCounts
from plink.model.transfers import arbiter
from plink.model.transfers.arbiter import ASSUMED_BYTES_S, Announced, Arrived, DropUpdate, Lost, TickDue, Transfer
from plink.runtime.elastic.partition.partition import RejectedRequest
from plink.runtime.elastic.transport.messages import Announce, Grant, Update

_MAX_LOGGED_EVENTS = 10_000  # some megabytes, of which a replay begins with the first
_PATIENCE_S = 3.0  # a waiting worker asks again each second


@dataclass
class _Announcement:
    """An announced update: its clock and step, when its worker asked last, and the answer once it is decided."""

    event: Announced
    step: tuple[int, int]
    asked_s: float
    answer: Grant | None = None


class Arbitration:
    """Arbiter of a job, in the thread of partition 0. Times are of one clock, in seconds.

    :param bound: of delays. :param bytes_s: what this server receives in a second, as far as is known; 0: it is not.
    :param note: takes lines for whoever looks for the cause of something, and of the log from which the arbiter can be
        replayed.
    """

    def __init__(self, bound: int, bytes_s: float, note: Callable[[str], None], now: float) -> None:
        self._state = arbiter.start(bound, [bytes_s or ASSUMED_BYTES_S], now)
        self._note, self._hosts, self._logged = note, dict[str, int](), 0
        self._announcements: dict[int, _Announcement] = {}
        self._log({"at": now, "bound": bound, "bytes_s": bytes_s or ASSUMED_BYTES_S})

    @property
    def tick_s(self) -> float:
        """When :meth:`tick` is to be called, if nothing happens before."""
        return self._state.tick_s

    def decision(self, message: Announce, version: int, now: float) -> Grant | None:
        """Return the answer to an announcement, which may be a repeated one; None: it has to wait.

        :param version: of the partition.
        :raises RejectedRequest: the announcement cannot be read.
        """
        worker, this_step = message.worker, (message.clock, message.step)
        announcement = self._announcements.get(worker)
        if announcement is None or announcement.step != this_step:
            host = self._host(message.text, version, now)
            event = Announced(worker, host, float(max(0, message.size)), message.version, message.clock)
            announcement = self._announcements[worker] = _Announcement(event, this_step, now)
            self._step(event, version, now)
        announcement.asked_s = now
        return announcement.answer

    def _host(self, text: str, version: int, now: float) -> int:
        address, _, rate = text.partition(" ")
        if address not in self._hosts:
            try:
                joined = arbiter.HostJoined(float(rate) or ASSUMED_BYTES_S)
            except ValueError:
                raise RejectedRequest("an announcement that cannot be read") from None
            self._hosts[address] = len(self._hosts)
            self._step(joined, version, now)
        return self._hosts[address]

    def tick(self, version: int, now: float) -> None:
        """Do what is due by now."""
        for worker, announcement in list(self._announcements.items()):
            if announcement.answer is None and now - announcement.asked_s > _PATIENCE_S:
                del self._announcements[worker]
                self._step(Lost(worker), version, now)
        if self._state.tick_s <= now:
            self._step(TickDue(), version, now)

    def arrived(self, message: Update, applied: int, version: int, now: float) -> UpdateCounts | None:
        """Note that an update is here, with all that its worker sent to other partitions before.

        :param applied: how many updates the partition has applied with it. :param version: of the partition before.
        :returns: the counts of its transfer; zeros where that was not planned, None where it was not announced.
        """
        announcement = self._announcements.get(message.worker)
        if announcement is None or announcement.step != (message.clock, message.step):
            return None
        del self._announcements[message.worker]
        granted = (each for each in self._state.transfers if announcement.event in each.members)
        transfer = next((each for each in granted if each.granted_s < inf), None)
        if transfer is None:
            self._step(Lost(message.worker), version, now)  # or what was not waited for would be granted
            return UpdateCounts()
        if transfer.members[0] != announcement.event:
            return UpdateCounts()  # its content comes with another worker's
        self._step(Arrived(transfer.number, applied), version, now)
        if transfer.at_once or not transfer.size_bytes:
            return UpdateCounts()
        planned_s, took_s = transfer.end_s - transfer.granted_s, now - transfer.granted_s
        return UpdateCounts(planned=1, grouped=int(len(transfer.members) > 1), planned_s=planned_s, took_s=took_s)

    def _step(self, event: arbiter.Event, version: int, now: float) -> None:
        before = replace(self._state, version=version)
        self._state, answers = arbiter.step(before, event, now)
        for answer in answers:
            if isinstance(answer, Transfer):
                sender, *others = answer.members
                grant = Grant(0, transfer=answer.number, others=len(others), unplanned=answer.at_once)
                self._announcements[sender.worker].answer = grant
                for member in others:
                    self._announcements[member.worker].answer = Grant(0, transfer=answer.number, grouped=True)
            elif isinstance(answer, DropUpdate) and answer.worker in self._announcements:
                self._drop(answer.worker, now)
        if answers or replace(self._state, tick_s=inf) != replace(before, tick_s=inf):
            granted = {each.number: [m.worker for m in each.members] for each in answers if isinstance(each, Transfer)}
            dropped = [each.worker for each in answers if isinstance(each, DropUpdate)]
            name = [type(event).__name__, *astuple(event)]
            self._log({"at": now, "version": version, "event": name, "granted": granted, "dropped": dropped})

    def _drop(self, worker: int, now: float) -> None:
        announcement = self._announcements[worker]
        if announcement.answer is None:
            announcement.answer = Grant(0, dropped=True)
            return
        host = next(address for address, number in self._hosts.items() if number == announcement.event.host)
        self._note(
            f"the update of worker {worker} at {host} has not arrived long after it was granted: others go on, and it "
            "is dropped if it is too old when it comes"
        )

    def _log(self, entry: dict[str, object]) -> None:
        self._logged += 1
        if self._logged <= _MAX_LOGGED_EVENTS:
            self._note(f"arbiter: {json.dumps(entry)}")
