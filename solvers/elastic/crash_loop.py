"""Crash loop detection: processes of hosts that end by themselves, one after another, while the job does not get on.

That is the program's doing, and another host would end just so. Hosts that are taken away end at once, or with their
agents. A host that was there already when the death before it was noticed may have been lost together with that one. So
its death counts only where it has answered a request that was sent after that.
"""

from dataclasses import replace

from solvers.elastic.state import CrashLoop, omit

ENDED = "its node ended with exit code"
_MAX_DEATHS = 3
_MAX_KILLED = 6  # of which one was killed: by the kernel when memory was out, but somebody else may have done it
_KILLED = 137
_TERMINATED = (129, 130, 143)  # SIGHUP, SIGINT, SIGTERM
_CAUSE = "the program may end its own process, or run out of memory"


def answered(deaths: CrashLoop, host: int, request: int) -> CrashLoop:
    """Note that a host was alive when it was sent this request; numbers rise."""
    latest = max(request, deaths.answered.get(host, -1))
    return replace(deaths, answered={**deaths.answered, host: latest})


def died(
    deaths: CrashLoop, host: tuple[int, str], reason: str, clock: int, latest_request: int
) -> tuple[CrashLoop, bool]:  # fmt: skip
    """Return whether a death counts: then the others are to be asked something, to show that they are there.

    :param host: its number and name. :param clock: that the whole job has reached. :param asked: the latest request.
    """
    number, name = host
    answered = deaths.answered.get(number, -1)
    deaths = replace(deaths, answered=omit(deaths.answered, number))
    code = _code(reason)
    if code is None or code in _TERMINATED:
        return deaths, False
    if clock > deaths.clock:
        deaths = replace(deaths, clock=clock, last_request=-1, all=0, codes=())
    deaths = replace(deaths, all=deaths.all + 1, last=f"{name}, exit code {code}")
    if deaths.codes and answered <= deaths.last_request:
        return deaths, False
    return replace(deaths, codes=(*deaths.codes, code), last_request=latest_request), True


def blame(deaths: CrashLoop) -> str | None:
    """Return why the job is to end; None where it may go on."""
    if len(deaths.codes) < (_MAX_KILLED if _KILLED in deaths.codes else _MAX_DEATHS):
        return None
    count, clock = len(deaths.codes), deaths.clock + 1
    return f"{count} hosts died one after another while clock {clock} was worked on (last: {deaths.last}): {_CAUSE}"


def suspicion(deaths: CrashLoop) -> str | None:
    """Return what may be behind it where no host is left; None where nothing speaks for it."""
    if not deaths.all or _KILLED in deaths.codes:
        return None
    hosts = f"{deaths.all} host{'s' if deaths.all > 1 else ''}"
    return f"{hosts} died while clock {deaths.clock + 1} was worked on (last: {deaths.last}): {_CAUSE}"


def _code(reason: str) -> int | None:
    """Return the exit code of a process that ended by itself; None: the host is gone for another reason."""
    code = reason.removeprefix(ENDED).strip()
    return int(code) if reason.startswith(ENDED) and code.isdigit() else None
