"""Processes of hosts that end by themselves, one after another, while the job does not get on: that is the program's
doing, and another host would end just so. Hosts that are taken away end at once, or with their agents."""

from dataclasses import dataclass, field

ENDED = "its node ended with exit code"
_FEW = 3
_MANY = 6  # of which one was killed: by the kernel when memory was out, but somebody else may have done it
_KILLED = 137
_TOLD = (129, 130, 143)  # SIGHUP, SIGINT, SIGTERM
_CAUSE = "the program may end its own process, or run out of memory"


@dataclass
class Deaths:
    """Those since the job last got on.

    One that was there already when the one before it was noticed may have been lost together with it. So it counts only
    where the host has answered something that it was asked after that.
    """

    _clock: int = -1  # that the job had reached when they died
    _codes: list[int] = field(default_factory=list)  # of those that count
    _all: int = 0  # with those that may have been lost together
    _last: str = ""
    _asked: int = -1  # the latest question when the last of those that count was noticed
    _answered: dict[int, int] = field(default_factory=dict)  # the latest question, by host

    def answered(self, host: int, question: int) -> None:
        """A host was alive when it was asked this; questions rise."""
        self._answered[host] = max(question, self._answered.get(host, -1))

    def died(self, host: int, name: str, why: str, clock: int, asked: int) -> bool:
        """Whether one that is gone counts: then the others are to be asked something, to show that they are there.

        :param clock: that the whole job has reached. :param asked: the latest question to anybody.
        """
        answered = self._answered.pop(host, -1)
        code = _code(why)
        if code is None or code in _TOLD:
            return False
        if clock > self._clock:
            self._clock, self._asked, self._all = clock, -1, 0
            self._codes.clear()
        self._all += 1
        self._last = f"{name}, exit code {code}"
        if self._codes and answered <= self._asked:
            return False
        self._codes.append(code)
        self._asked = asked
        return True

    @property
    def blame(self) -> str | None:
        """Why the job is to end; None where it may go on."""
        if len(self._codes) < (_MANY if _KILLED in self._codes else _FEW):
            return None
        count, clock = len(self._codes), self._clock + 1
        return f"{count} hosts died one after another while clock {clock} was worked on (last: {self._last}): {_CAUSE}"

    @property
    def suspicion(self) -> str | None:
        """What may be behind it where nobody is left; None where nothing speaks for it."""
        if not self._all or _KILLED in self._codes:
            return None
        hosts = f"{self._all} host{'s' if self._all > 1 else ''}"
        return f"{hosts} died while clock {self._clock + 1} was worked on (last: {self._last}): {_CAUSE}"


def _code(why: str) -> int | None:
    """Of a process that ended by itself; None: the host is gone for another reason."""
    said = why.removeprefix(ENDED).strip()
    return int(said) if why.startswith(ENDED) and said.isdigit() else None
