"""What a job costs, by its log: while it runs (`plink elastic status`), and afterwards (`plink elastic summary`)."""

from collections.abc import Iterable, Mapping
from typing import Any

from plink.records.elastic_history import HostPeriod, members_of
from plink.records.elastic_log import HostEvent
from plink.records.iteration_values import IterationValues
from solvers.elastic.placement.costs import Held, cost_of


class CostTracker:
    """Cost of a job that runs, from the lines of its log, of whichever controller."""

    def __init__(self) -> None:
        self._hosts: list[HostEvent] = []
        self._iterations = IterationValues()  # the last clocks of iterations that no roll-back undid

    def logged(self, line: Mapping[str, Any]) -> None:
        """Take a line of the log, with its time."""
        if line["what"] == HostEvent.what:
            self._hosts.append(HostEvent(**{key: value for key, value in line.items() if key != "what"}))
        elif line["what"] == "iteration":
            self._iterations.add(line["iteration"], line["clock"])
        elif line["what"] == "rolled back":
            self._iterations.keep_while(lambda clock: clock <= line["clock"])

    def so_far(self, at: float) -> dict[str, Any] | None:
        """Return :func:`spent` until a time, of hosts that are there still; None where no host ever had a price. The
        log's times are rounded: what it has is over."""
        now = max([at, *(event.at for event in self._hosts)])
        cost = spent(members_of(self._hosts, now), len(self._iterations))
        return None if cost["total"] is None else cost


def spent(members: Iterable[HostPeriod], iterations: int) -> dict[str, Any]:
    """Return what a run cost in all and per iteration, both None where no host has a price, and the hosts that have
    none."""
    held = [Held(member.joined.host, member.joined.price, ((member.joined.at, member.until),)) for member in members]
    cost = cost_of(held, iterations)
    return {
        "total": _rounded(cost.total),
        "per_iteration": _rounded(cost.per_unit),
        "without_price": list(cost.without_price),
    }


def _rounded(money: float | None) -> float | None:
    return None if money is None else float(f"{money:.6g}")
