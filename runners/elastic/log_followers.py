"""Followers of a run's log, for the supervisor: the cost so far, and the hosts that are there."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

from plink.model.elastic.summary import TotalCost
from plink.records.elastic_history import HostPeriod, IterationValues, members_of
from plink.records.elastic_log import HostEvent
from solvers.elastic.member import Member

_GONE = ("left", "failed")


class LoggedHosts:
    """Hosts that are there according to the log, or on their way in."""

    def __init__(self) -> None:
        self._there: dict[int, Mapping[str, Any]] = {}  # by number, as they joined or were let go

    def expected(self, members: Iterable[Member]) -> None:
        """Note hosts whose joining will be logged, or else their end."""
        self._there |= {member.number: member.line("joined", "") for member in members}

    def logged(self, line: Mapping[str, Any]) -> None:
        """Take a line of the run's log."""
        if line["what"] != "host":
            return
        if line["event"] in _GONE:
            self._there.pop(line["number"], None)
        elif line["event"] == "joined" or (line["event"] == "released" and line["number"] in self._there):
            self._there[line["number"]] = line

    def missing(self, members: Iterable[int]) -> list[int]:
        """Return the hosts that are there by the log alone, or were lost on their way in."""
        return sorted(self._there.keys() - set(members))

    def end_of(self, number: int, reason: str) -> dict[str, Any] | None:
        """Return the log line of a host's end; None where it is logged."""
        last = self._there.get(number)
        if last is None:
            return None
        event = "left" if last["event"] == "released" else "failed"
        return {**last, "event": event, "seconds": None, "why": reason}


_HOUR_S = 3600.0


class CostTracker:
    """Cost of a job that runs, from the lines of its log, of whichever controller."""

    def __init__(self) -> None:
        self._hosts: list[HostEvent] = []
        self._iterations = IterationValues()  # the last clocks of iterations that no roll-back undid

    def logged(self, line: Mapping[str, Any]) -> None:
        """Take a line of the log, with its time."""
        if line["what"] == "host":
            self._hosts.append(HostEvent(**{key: value for key, value in line.items() if key != "what"}))
        elif line["what"] == "iteration":
            self._iterations.add(line["iteration"], line["clock"])
        elif line["what"] == "rolled back":
            self._iterations.keep_while(lambda clock: clock <= line["clock"])

    def so_far(self, at: float) -> TotalCost | None:
        """Return :func:`spent` until a time, of hosts that are there still; None where no host ever had a price. The
        log's times are rounded: what it has is over."""
        now = max([at, *(event.at for event in self._hosts)])
        cost = spent(members_of(self._hosts, now), len(self._iterations))
        return None if cost.total is None else cost


def spent(members: Iterable[HostPeriod], iterations: int) -> TotalCost:
    """Return what a run cost in all and per iteration, both None where no host has a price, and the hosts that have
    none.

    Each host costs its price an hour for as long as it was held. The cost by iteration is what a mix of reliable and
    transient machines is chosen by (Harlap thesis, 4.3).
    """
    members = list(members)
    costs = [
        member.joined.price * max(0.0, member.until - member.joined.at) / _HOUR_S
        for member in members
        if member.joined.price is not None
    ]
    total = math.fsum(costs) if costs else None
    return TotalCost(
        total=_rounded(total),
        per_iteration=_rounded(total / iterations if total is not None and iterations else None),
        without_price=tuple(dict.fromkeys(each.joined.host for each in members if each.joined.price is None)),
    )


def _rounded(money: float | None) -> float | None:
    return None if money is None else float(f"{money:.6g}")
