"""Failures of hosts: missed heartbeats, and programs that end one host after another.

The failure detector is for a controller that may itself have been held up. Seconds count only while the controller
listens: a message that was late because it, or the supervisor between it and the hosts, stood still is no host's fault.
So a step of the clock counts for as much as a listener may sleep at most.

A crash loop are processes of hosts that end by themselves, one after another, while the job does not get on. That is
the program's doing, and another host would end just so. Hosts that are taken away end at once, or with their agents. A
host that was there already when the death before it was noticed may have been lost together with that one. So its death
counts only where it has answered a request that was sent after that.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

_MAX_STEP_S = 0.3
_TOGETHER_S = 0.6  # two heartbeats
_MAJORITY_FACTOR = 6
_MIN_MAJORITY_HOSTS = 2


@dataclass(frozen=True)
class FailureDetector:
    """State of the failure detector.

    ``now_s``: seconds in which the controller listened. ``last_heartbeat_s``: the last heartbeat of each host, by it.
    """

    last_event_s: float | None = None
    now_s: float = 0.0
    last_heartbeat_s: Mapping[int, float] = field(default_factory=dict)


def pass_time(detector: FailureDetector, now: float) -> FailureDetector:
    """Advance the listening time: the supervisor was connected at ``now`` by the machine's clock."""
    last = detector.last_event_s
    passed = 0.0 if last is None else min(_MAX_STEP_S, max(0.0, now - last))
    return replace(detector, last_event_s=now, now_s=detector.now_s + passed)


def message_received(detector: FailureDetector, host: int) -> FailureDetector:
    """Note a message of a host."""
    return replace(detector, last_heartbeat_s={**detector.last_heartbeat_s, host: detector.now_s})


def silent(detector: FailureDetector, hosts: Iterable[int], timeout_s: float) -> dict[int, float]:
    """Return the hosts that are as good as gone, and for how many seconds each was silent.

    Where most of them are silent at once it is more likely that something lies between them and here, or that this
    machine is overrun: they get :data:`_MAJORITY_FACTOR` times as long.
    """
    silences = {host: detector.now_s - detector.last_heartbeat_s.get(host, 0.0) for host in hosts}
    quiet = {host: silence for host, silence in silences.items() if silence > timeout_s}
    if len(silences) > _MIN_MAJORITY_HOSTS and 2 * len(quiet) > len(silences):
        return {host: silence for host, silence in quiet.items() if silence > _MAJORITY_FACTOR * timeout_s}
    return {} if _may_grow(silences, timeout_s) else quiet


def silence_reason(silences: Mapping[int, float], hosts: int) -> str:
    """Return why these of so many hosts are as good as gone; each was silent for as long, or longer."""
    text = f"no heartbeat for {min(silences.values()):.1f} s"
    if len(silences) == 1 or 2 * len(silences) <= hosts:
        return text
    return f"{text}, like {len(silences)} of {hosts} hosts at once: the launching machine's link is the likelier cause"


def _may_grow(silences: Mapping[int, float], timeout_s: float) -> bool:
    """Return whether hosts that may have fallen silent together are about to time out.

    A rack that is lost takes all of its hosts, whose last heartbeats differ by an interval.
    """
    longest = max(silences.values(), default=0.0)
    nearly = any(longest - _TOGETHER_S < silence <= timeout_s for silence in silences.values())
    return nearly and longest < timeout_s + _TOGETHER_S


ENDED = "its node ended with exit code"
_MAX_DEATHS = 3
_MAX_KILLED = 6  # of which one was killed: by the kernel when memory was out, but somebody else may have done it
KILLED = 137
_TERMINATED = (129, 130, 143)  # SIGHUP, SIGINT, SIGTERM
CAUSE = "the program may end its own process, or run out of memory"


@dataclass(frozen=True)
class CrashLoop:
    """State of crash loop detection.

    Deaths of nodes' processes since the job last got on: ``codes`` of those that count, ``all``: with those that may
    have been lost together. ``last_request``: the latest at the last that counts; ``answered``: the latest request that
    a host answered.
    """

    clock: int = -1
    codes: tuple[int, ...] = ()
    all: int = 0
    last: str = ""
    last_request: int = -1
    answered: Mapping[int, int] = field(default_factory=dict)


def answered(deaths: CrashLoop, host: int, request: int) -> CrashLoop:
    """Note that a host was alive when it was sent this request; numbers rise."""
    latest = max(request, deaths.answered.get(host, -1))
    return replace(deaths, answered={**deaths.answered, host: latest})


def died(
    deaths: CrashLoop, host: tuple[int, str], reason: str, clock: int, latest_request: int
) -> tuple[CrashLoop, bool]:
    """Return whether a death counts: then the others are to be asked something, to show that they are there.

    :param host: its number and name. :param clock: that the whole job has reached. :param asked: the latest request.
    """
    number, name = host
    answered = deaths.answered.get(number, -1)
    deaths = replace(deaths, answered={host: request for host, request in deaths.answered.items() if host != number})
    if (code := own_exit_code(reason)) is None:
        return deaths, False
    if clock > deaths.clock:
        deaths = replace(deaths, clock=clock, last_request=-1, all=0, codes=())
    deaths = replace(deaths, all=deaths.all + 1, last=f"{name}, exit code {code}")
    if deaths.codes and answered <= deaths.last_request:
        return deaths, False
    return replace(deaths, codes=(*deaths.codes, code), last_request=latest_request), True


def blame(deaths: CrashLoop) -> str | None:
    """Return why the job is to end; None where it may go on."""
    if len(deaths.codes) < (_MAX_KILLED if KILLED in deaths.codes else _MAX_DEATHS):
        return None
    count, clock = len(deaths.codes), deaths.clock + 1
    return f"{count} hosts died one after another while clock {clock} was worked on (last: {deaths.last}): {CAUSE}"


def suspicion(deaths: CrashLoop) -> str | None:
    """Return what may be behind it where no host is left; None where nothing speaks for it."""
    if not deaths.all or KILLED in deaths.codes:
        return None
    hosts = f"{deaths.all} host{'s' if deaths.all > 1 else ''}"
    return f"{hosts} died while clock {deaths.clock + 1} was worked on (last: {deaths.last}): {CAUSE}"


def own_exit_code(reason: str) -> int | None:
    """Return the exit code of a process that ended by itself; None: the host is gone for another reason."""
    code = reason.removeprefix(ENDED).strip()
    by_itself = reason.startswith(ENDED) and code.isdigit() and int(code) not in _TERMINATED
    return int(code) if by_itself else None
