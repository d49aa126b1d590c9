"""Adding hosts to a job that runs: they are started, load the program, and then the controller is notified."""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from plink.errors import PlinkError, UsageError
from plink.model.elastic.reports import Hello, OtherVersion
from plink.model.hosts import Host
from runners.elastic.compatibility import refuse
from runners.elastic.control_socket import Answer
from runners.elastic.group import Group
from solvers.elastic.crash_loop import ENDED
from solvers.elastic.member import Member

PROGRAM_LOAD_TIMEOUT_S = 600.0  # for a program to be imported and made, on all hosts
LATE = f"the program was not made within {PROGRAM_LOAD_TIMEOUT_S:.0f} s"
_POLL_INTERVAL_S = 0.2
_FIRST_RETRY_S = 5.0  # after the first attempt; twice as long after every other, up to
_MAX_RETRY_S = 60.0


@dataclass
class Adding:
    """Adding of hosts to a job that runs; for the supervisor's thread, on which ``soon`` runs a function. For the
    supervisor's thread, on which ``soon`` does something.

    ``gather``: hosts become a group that is not started yet, and members to be. ``members``: of the job. ``hello``:
    what others said first, None where they are gone, and ``lost`` why. ``room``: a warning where hosts may have too
    little memory, an error where they have. ``admit``: they are members from now on. ``dismiss``: they will be none.
    ``over``: whether the job is.
    """

    soon: Callable[[Callable[[], None]], None]
    gather: Callable[[list[Host]], tuple[Group, list[Member]]]
    members: Mapping[int, Member]
    hello: Mapping[int, Hello | OtherVersion | None]
    lost: Mapping[int, str]
    machines: Mapping[str, dict[str, Any]] | None
    room: Callable[[list[Member]], str | None]
    admit: Callable[[list[Member], bool], None]
    dismiss: Callable[[list[Member]], None]
    note: Callable[[str], None]
    over: Callable[[], bool]
    clock: Callable[[], float]
    _names: set[str] = field(default_factory=set)  # of those on their way

    def add(self, hosts: list[Host], answer: Answer, bulk: bool) -> None:
        """Add all of these hosts or none; ``answer`` gets which, or why not.

        :raises UsageError: for hosts that are in the job, or on their way into it.
        """
        names = [host.name for host in hosts]
        if there := set(names) & {member.name for member in self.members.values()}:
            raise UsageError(f"{', '.join(sorted(there))}: in the job already")
        if duplicates := set(names) & self._names:
            raise UsageError(
                f"{', '.join(sorted(duplicates))}: being added already; `plink elastic status` shows hosts"
            )
        if len(names) > len(set(names)):
            raise UsageError(f"{', '.join(sorted({name for name in names if names.count(name) > 1}))}: named twice")
        self._names |= set(names)

        def answered(response: dict[str, Any]) -> None:
            self._names -= set(names)
            answer(response)

        group, members = self.gather(hosts)
        peers = [member.at for member in self.members.values()]
        threading.Thread(target=self._start, args=(group, members, peers, answered, bulk), daemon=True).start()

    def until_it_comes(self, host: Host, wait_s: float | None = None, noted: str = "") -> None:
        """Try a lost host again and again, more and more seldom, whatever becomes of others.

        :param wait_s: before the next attempt. :param noted: why the last one failed, which need not be repeated.
        """
        after_s = wait_s or _FIRST_RETRY_S
        if self.over() or host.name in {member.name for member in self.members.values()}:
            return
        if host.name in self._names:  # by somebody else, who may not succeed
            self._later(after_s, lambda: self.until_it_comes(host, after_s, noted))
            return

        def answer(response: dict[str, Any]) -> None:
            if error := response.get("error"):
                if error != noted:
                    self.note(f"{host.name}: {error}")
                self._later(after_s, lambda: self.until_it_comes(host, min(2 * after_s, _MAX_RETRY_S), error))

        self.add([host], answer, True)

    def _start(self, group: Group, members: list[Member], peers: list[str], answer: Answer, bulk: bool) -> None:
        """Start a group, in a thread of its own: hosts take their time."""
        try:
            group.start(lambda phase, done, total: None, self.machines, peers)
        except (PlinkError, OSError) as error:
            text = str(error)
            group.close()
            self.soon(lambda: self._refuse(members, answer, text))
            return
        self.soon(lambda: self._await_hello(group, members, answer, bulk, self.clock() + PROGRAM_LOAD_TIMEOUT_S))

    def _await_hello(
        self, group: Group, members: list[Member], answer: Answer, bulk: bool, deadline: float
    ) -> None:  # fmt: skip
        """Wait for the first messages of all newcomers, by calling itself again."""
        late = self.clock() > deadline
        if not late and any(member.number not in self.hello for member in members):
            self._later(_POLL_INTERVAL_S, lambda: self._await_hello(group, members, answer, bulk, deadline))
            return
        newcomers = []
        for member in members:
            hello = self.hello.get(member.number)
            if hello is None:
                message = last_word(group.last_lines(member.number), self.lost.get(member.number, LATE))
                group.close()
                self._refuse(members, answer, f"{member.name}: {message}")
                return
            newcomers.append(replace(member, hello=hello, at=group.addresses[member.number]))
        try:
            if mismatch := refuse([*self.members.values(), *newcomers]):
                raise PlinkError(mismatch)
            note = self.room(newcomers)
        except PlinkError as error:
            group.close()
            self._refuse(members, answer, str(error))
            return
        self.admit(newcomers, bulk)
        answer({"added": [member.name for member in members], **({"note": note} if note else {})})

    def _refuse(self, members: list[Member], answer: Answer, error: str) -> None:
        self.dismiss(members)
        answer({"error": error})

    def _later(self, seconds: float, does: Callable[[], None]) -> None:
        timer = threading.Timer(seconds, lambda: self.soon(does))
        timer.daemon = True
        timer.start()


def last_word(lines: list[str], reason: str) -> str:
    """Return why a node ended before it was begun: from what it printed, where it ended by itself."""
    if not reason.startswith(ENDED):
        return reason
    if reason == f"{ENDED} 0":  # as with --help: the last line of that would explain nothing
        return "the program ended of its own accord before the job began, with exit code 0, after what it printed"
    errors = [line for line in lines if "error: " in line] or lines[-1:]
    return errors[-1].partition("error: ")[2] or errors[-1] if errors else "its node ended before the job began"
