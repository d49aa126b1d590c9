"""How a job begins: anew, from a checkpoint, or where another controller left off."""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from plink.errors import PlinkError
from plink.model.hostlist import fold_hostlist
from runners.agile.channel import Answer
from runners.agile.member import Member
from runners.agile.resuming import leaving, pieces_of, shares_of, thresholds_of, torn
from runners.agile.rounds import SHIFT
from runners.agile.saving import Saved
from solvers.elastic.placement.racks import racks_at_risk
from solvers.elastic.placement.resume import Report, resume
from solvers.elastic.placement.stages import Thresholds
from solvers.elastic.placement.start import start as start_of
from solvers.elastic.placement.state import Cluster

if TYPE_CHECKING:
    from runners.agile.controller import Controller

_BEFORE = "the last reliable host was lost before the job had begun"
_NO_MORE = ", and there is no checkpoint (--checkpoint DIR): start the job again"


class Beginning:
    """Of one controller, which it sets going."""

    def __init__(self, job: "Controller") -> None:
        self._job = job
        self._waits: int | None = None  # for a reliable host to begin with, with this number
        self._lost = ""  # what only a checkpoint brings back, in a line
        self._seen = True  # whether somebody has looked for checkpoints who can read them

    def start(self, number: int = 0) -> None:
        """:param number: the last that a controller before this one gave, whose job had not begun."""
        if not self._job.any_reliable():
            self._wait(_BEFORE, number)
            return
        self._job.log(what="controller", event="started" if not number else "restarted", why="")
        saved = self._saved()
        if self._job.settings.restore and self._job.arriving.own is None and (why := self._cannot_restore()):
            self._fail(why)
            return
        try:
            hosts = [member.host for member in self._job.members.values()]
            state, actions = start_of(
                hosts, self._job.settings.partition_bytes, self._job.settings.pieces, self._job.settings.thresholds,
                clock=saved.clock + SHIFT if saved else 0, number=number,
            )  # fmt: skip
        except PlinkError as error:
            self._fail(str(error))
            return
        if number:
            self._job.tell_all("begin_again", clock=-1, era=state.era)
        if number or saved is not None:
            self._job.rolled_back(-1 if saved is None else saved.clock, state.era)
        self._restore_from(saved)
        self._warn_of_racks(state)
        self._job.decisions.carry_out(state, actions)

    def _warn_of_racks(self, state: Cluster) -> None:
        if self._job.settings.checkpoints:
            return
        for names in racks_at_risk(state):
            self._job.say(
                f"the job ends if the rack of {fold_hostlist(names)} is lost, with parameters and their only backups: "
                "give --checkpoint DIR, or mark a host in another rack as tier=reliable"
            )

    def _fail(self, why: str) -> None:
        """It may come of hosts that could not begin."""
        self._job.fail("; ".join([*self._job.arriving.refused, why]))

    def _saved(self) -> Saved | None:
        """The job's own latest checkpoint; before there was one, that which it was told to go on from."""
        own, settings = self._job.arriving.own, self._job.settings
        if own is not None:
            return self._job.saving.found(own, settings.checkpoints)
        return self._job.saving.found(self._job.arriving.saved, settings.restore)

    def _cannot_restore(self) -> str | None:
        saved, folder = self._job.arriving.saved, self._job.settings.restore
        if saved is None:
            return f"--restore {folder}: none of the reliable hosts finds a checkpoint there"
        wanted = self._job.settings.partitions
        if saved["partitions"] != wanted:
            return (
                f"--restore {folder}: it has {saved['partitions']} partitions, this job {wanted}; "
                f"give it --max-hosts {2 * saved['partitions']}"
            )
        return None

    def _restore_from(self, saved: Saved | None) -> None:
        if saved is not None:
            self._job.carrier.restore_from = saved.folder, saved.clock
            self._job.note(f"goes on from the checkpoint of clock {saved.clock} in {saved.folder}")

    def look(self) -> None:
        """Whether a reliable host has come, where the job waits for one to begin with."""
        if self._waits is None:
            return
        came = list(self._job.arriving.joining())
        if self._job.any_reliable():
            number, self._waits = self._waits, None
            self.start(number)
        elif came:  # and it was not one, or is lost again
            self._want()

    def halted(self, why: str) -> None:
        """State is lost that a checkpoint brings back, if there is one."""
        self._lost = why
        if self._job.saving.last is None and (self._seen or not self._folders()):
            self._no_checkpoint()
        else:
            self.start_again()

    def start_again(self) -> None:
        """From the last checkpoint, with the hosts that are left; without a reliable one it is waited for."""
        if not self._job.any_reliable():
            self._want()
            return
        saved = self._job.saving.last or self._saved()
        if saved is None:
            if self._lost:
                self._no_checkpoint()
            else:
                self.start_anew(None)
            return
        redone = max(0, self._job.turns.begun - 1 - saved.clock)
        self._lost = ""
        self.start_anew(saved)
        self._job.log(**{"what": "rolled back", "clock": saved.clock, "era": self._job.cluster.era, "redone": redone})

    def _folders(self) -> bool:
        """Whether there may be checkpoints."""
        return bool(self._job.settings.checkpoints or self._job.settings.restore)

    def _no_checkpoint(self) -> None:
        folder = self._job.settings.checkpoints
        where = f" in {folder} yet" if folder else ": --checkpoint DIR"
        self._job.fail(f"{self._lost} (no checkpoint was written{where})")

    def _want(self) -> None:
        self._job.write({"is": "wanted", "what": "reliable"})

    def _wait(self, what: str, number: int) -> None:
        """Nothing was done, or can be had again from what is on disk: whoever cares for that waits for a host."""
        if not self._folders():
            self._fail(f"{what}{_NO_MORE}")
            return
        self._waits = number
        self._want()

    def start_anew(self, saved: Saved | None) -> None:
        """All hosts that there are share everything once more; what they have is of no use, or of the checkpoint."""
        clock = -1 if saved is None else saved.clock
        self._job.carrier.opening.clear()
        self._job.carrier.commits.clear()
        self._job.leaving.let_go.clear()
        if not self._job.any_reliable():
            if saved is None and not self._folders():
                self._fail(f"{_BEFORE}{_NO_MORE}")
                return
            self._job.state = replace(self._job.cluster, halted=True)
            self._want()
            return
        try:
            state, actions = start_of(
                [member.host for member in self._job.members.values()], self._job.settings.partition_bytes,
                self._job.settings.pieces, self._job.cluster.thresholds, clock=clock + SHIFT,
                number=self._job.cluster.number,
            )  # fmt: skip
        except PlinkError as error:
            self._job.fail(str(error))
            return
        self._job.tell_all("begin_again", clock=clock, era=state.era)
        self._job.rolled_back(clock, state.era)
        self._restore_from(saved)
        self._job.decisions.carry_out(state, actions)
        self._job.warned(list(self._job.leaving.deadlines))  # nothing is known of it in the new beginning

    def go_on(self, reports: Mapping[int, Answer], unbegun: list[Member]) -> None:
        """From what the hosts have; with those that were about to join."""
        if not reports and not unbegun:
            self._wait("all hosts were lost with the controller", 0)
            return
        numbers = [report["number"] for report in reports.values()]
        if not any(report["map"] for report in reports.values()):  # nobody has worked yet
            self._job.arriving.begin(unbegun, lambda: self.start(max(numbers, default=0)))
            return
        self._resume(reports)
        for member in sorted(unbegun, key=lambda member: -member.number):
            self._job.arriving.arrive([member], False, first=True)

    def _resume(self, reports: Mapping[int, Answer]) -> None:
        self._job.log(what="controller", event="restarted", why="")
        shares, next_worker = shares_of(reports)
        found = [
            Report(
                self._job.members[number].host, report["number"], report["era"],
                {int(index): epoch for index, epoch in report["serves"].items()},
                {int(index): clock + SHIFT for index, clock in report["backs"].items()},
                frozenset(report["loaded"]),
                pieces_of(report, shares),
                {int(index): clock + SHIFT for index, clock in report["gave"].items()},
            )
            for number, report in reports.items()
        ]  # fmt: skip
        try:
            state, actions = resume(
                found, self._job.settings.partition_bytes, self._job.settings.pieces, self._thresholds(reports),
                again=torn(reports),
            )  # fmt: skip
        except PlinkError as error:
            self._job.fail(str(error))
            return
        begun = max(report["begun"] for report in reports.values())
        self._job.turns.resume(shares, state.era, next_worker, begun, leaving(reports, shares))
        self._job.resizing.known(shares)
        for report in reports.values():  # some may have finished since they reported
            for worker, clock in report["finished"].items():
                self._job.ending.finished.setdefault(int(worker), clock)
        self._job.turns.frozen = bool(self._job.ending.finished)
        self._saved()
        self._seen = self._job.any_reliable()
        self._job.rounds.clocks = {
            int(index): clock for report in reports.values() for index, clock in report["backs"].items()
        }
        for number, one in enumerate(state.partitions):  # what was on its way while they reported
            strangers = [host for host in self._job.members if host not in (one.owner, one.backup)]
            self._job.channel.tell_all(strangers, "drop", partition=number, epoch=one.epoch)
        self._job.decisions.welcomed = set(self._job.members)
        self._job.course.stage = state.stage.value
        self._job.decisions.carry_out(state, actions)
        for told in self._job.early:
            self._job.host_says(told["from"], "clock", told)
        self._job.early.clear()
        self._job.tell_all("push_up_to", clock=self._job.rounds.limit)
        self._job.tell_all("tell")  # what has changed meanwhile
        self._job.decisions.recover()

    def _thresholds(self, reports: Mapping[int, Answer]) -> Thresholds:
        """Those that held: from the traffic as another controller measured it, else as they were asked for."""
        kept = thresholds_of(reports)
        if kept is None:
            return self._job.settings.thresholds
        self._job.traffic.go_on(kept, self._job.clock())
        return Thresholds(kept["active"], kept["backup_only"])
