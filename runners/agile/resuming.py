"""What hosts told another controller before, told to the one that goes on."""

from collections.abc import Mapping
from typing import Any

from runners.agile.turns import Share


def shares_of(reports: Mapping[int, Mapping[str, Any]]) -> tuple[dict[int, Share], int]:
    """Who works on what by the latest map that any host was told, and the first number that no worker had."""
    latest = max((report["map"] for report in reports.values() if report["map"]), key=_age)
    shares = {
        int(worker): Share(host, tuple(pieces), first) for worker, (host, pieces, first) in latest["everywhere"].items()
    }
    numbers = {*shares, *(int(worker) for report in reports.values() for worker in report["workers"])}
    return shares, max(numbers) + 1


def thresholds_of(reports: Mapping[int, Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """What the latest measure of the traffic left to be kept; None: there was none."""
    return max((kept for report in reports.values() if (kept := report["thresholds"])), key=_measure, default=None)


def leaving(reports: Mapping[int, Mapping[str, Any]], shares: Mapping[int, Share]) -> dict[int, int]:
    """Workers that were told to leave and have not yet, with their hosts."""
    return {
        int(worker): host
        for host, report in reports.items()
        for worker in report["workers"]
        if int(worker) not in shares
    }


def torn(reports: Mapping[int, Mapping[str, Any]]) -> bool:
    """Whether something was under way that nobody can tell the end of: a turn, a roll-back, a host that was lost, one
    that stands in for another."""
    latest = max((report["map"] for report in reports.values() if report["map"]), key=_age)
    if any(report["era"] > latest["era"] for report in reports.values()):
        return True
    for host, _, _ in latest["everywhere"].values():
        if host not in reports or reports[host]["map"] != latest:
            return True
    if any(host not in reports and _reached(reports) < until - 1 for host, until in latest["left"]):
        return True  # who was told to leave was lost before it had done what was left
    if _reached(reports) < latest["clock"] - 1:
        return True  # should somebody be lost now, nobody knows what it had before that clock
    return any(report["held"] or report["stands_in"] for report in reports.values())


def _reached(reports: Mapping[int, Mapping[str, Any]]) -> int:
    """The clock that all partitions have."""
    clocks: dict[str, int] = {}
    for report in reports.values():
        for index, clock in report["backs"].items():
            clocks[str(index)] = max(clock, clocks.get(str(index), clock))
    return min(clocks.values(), default=-1)


def pieces_of(report: Mapping[str, Any], shares: Mapping[int, Share]) -> frozenset[int]:
    """What a host works on, or did until its workers had nothing left to do."""
    running = {piece for pieces in report["workers"].values() for piece in pieces}
    return frozenset(running | {piece for worker in report["finished"] for piece in shares[int(worker)].pieces})


def _age(told: Mapping[str, Any]) -> tuple[int, int]:
    return told["era"], told["clock"]


def _measure(kept: Mapping[str, Any]) -> int:
    return int(kept["measure"])
