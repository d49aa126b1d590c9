"""Which hosts are silent: heard of by a controller that may itself have been held up."""

from collections.abc import Iterable, Mapping

from runners.agile.member import Member

_STEP_S = 0.3
_TOGETHER_S = 0.6  # two heartbeats
_PATIENCE = 6
_FEW = 2


class Hearing:
    """Seconds count only while the controller listens: what it did not hear because it, or the hub between it and the
    hosts, stood still is no host's fault. So a step of the clock counts for as much as a listener may sleep at most."""

    def __init__(self, silence_s: float) -> None:
        self._silence_s = silence_s
        self._at: float | None = None
        self.now_s = 0.0

    def pass_time(self, now: float) -> None:
        """The hub has just been heard, at ``now`` by the machine's clock."""
        if self._at is not None:
            self.now_s += min(_STEP_S, max(0.0, now - self._at))
        self._at = now

    def heard(self, member: Member) -> None:
        """Something of that host."""
        member.heard_s = self.now_s

    def silent(self, members: Iterable[Member]) -> list[Member]:
        """Those that are as good as gone. Where most of them are silent at once it is more likely that something lies
        between them and here, or that this machine is overrun: they get :data:`_PATIENCE` times as long."""
        every = list(members)
        silences = {member.number: self.now_s - member.heard_s for member in every}
        quiet = [member for member in every if silences[member.number] > self._silence_s]
        if len(every) > _FEW and 2 * len(quiet) > len(every):
            return [member for member in quiet if silences[member.number] > _PATIENCE * self._silence_s]
        return [] if self._may_grow(silences) else quiet

    def _may_grow(self, silences: Mapping[int, float]) -> bool:
        """Whether hosts that may have fallen silent at the same moment are about to be found silent: a rack that is
        lost takes all of its hosts, whose last heartbeats differ by an interval."""
        longest = max(silences.values(), default=0.0)
        nearly = any(longest - _TOGETHER_S < silence <= self._silence_s for silence in silences.values())
        return nearly and longest < self._silence_s + _TOGETHER_S
