"""The on-demand machines that a driver falls back to when a deadline asks for it (:mod:`solvers.spot.deadline`)."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from plink.model.spot.market_file import Machines
from plink.model.spot.prices import on_demand_market
from runners.spot.brain import RentalChoice
from solvers.spot.deadline import UNMEASURED_SHARE, Deadline, IterationTime, JobProgress, latest_start
from solvers.spot.ledger import Ledger


@dataclass(frozen=True)
class HostCores:
    """The cores of the hosts of a job, which are not its workers: a host may have one worker on all of its cores.

    ``by_type``: of rented machines; ``reliable``: of each host that is not rented, None where nothing says it.
    """

    by_type: Mapping[str, float]
    reliable: float | None

    def total(self, ledger: Ledger, hosts: Collection[str]) -> float | None:
        """Return the cores of these hosts, None where those of one are unknown."""
        types = {each.host: each.market.type for each in ledger.instances.values()}
        cores = [self.by_type.get(types[host]) if host in types else self.reliable for host in hosts]
        return None if None in cores else sum(each for each in cores if each is not None)


@dataclass
class OnDemandFallback:
    """The fallback of one run. ``machines``: which and how many; ``zones``: where, or empty: wherever there are prices;
    ``start_s``: from a request until they work; ``slack_s``: by which it begins earlier than it has to; ``note``: gets
    a line when the deadline cannot be met, or nothing says what is left to do;
    ``host_cores``: None where the job counts cores itself."""

    deadline: Deadline
    machines: Machines
    zones: tuple[str, ...]
    iteration: IterationTime
    start_s: float
    slack_s: float
    note: Callable[[str], None] = lambda text: None
    host_cores: HostCores | None = None
    _done: int = 0
    _is_late: bool = False
    _is_unmeasured: bool = False
    _counts_workers: bool = False

    def observe(self, progress: JobProgress, ledger: Ledger) -> None:
        """Take how the job stands. A controller that has just taken over knows of no iteration; then the last count
        stands."""
        self._done = max(self._done, progress.iterations) if progress.iterations <= 0 else progress.iterations
        if self.host_cores is not None and progress.hosts:
            cores = self.host_cores.total(ledger, progress.hosts)
            if cores is not None:
                progress = replace(progress, cores=cores)
            elif not self._counts_workers:
                self._counts_workers = True
                self.note(
                    "the market file has no [anchors], so the cores of the reliable hosts are unknown: the deadline "
                    "takes each worker (slots) for a core, and may be missed where a worker has several"
                )
        self.iteration.observe(progress)

    def choose(self, ledger: Ledger, zones: Collection[str], now: float) -> RentalChoice:
        """Return what to request now; a count of 0 where the deadline asks for nothing.

        :param zones: those that the provider has prices of.
        """
        machines = self.machines
        held = sum(each.market.is_on_demand and not each.is_leaving for each in ledger.held)
        missing = machines.count - held
        if self._done >= self.deadline.iterations:
            return RentalChoice("all iterations are done")
        if missing <= 0:
            return RentalChoice("all of the fallback is held")
        has_begun = any(each.entry.is_for_deadline and each.outcome is not None and each.granted > 0
                        for each in ledger.requests.values())  # fmt: skip
        if not has_begun and not self._is_due(now):
            return RentalChoice("the deadline does not ask for it yet")
        markets = [on_demand_market(zone, machines.type.name) for zone in self.zones or sorted(zones)]
        market = next((each for each in markets if not ledger.penalised(each, now)), None)
        if market is None:
            return RentalChoice("deadline: no zone grants on-demand machines now", is_urgent=True)
        when = datetime.fromtimestamp(self.deadline.at_s, UTC).strftime("%Y-%m-%d %H:%M")
        return RentalChoice(
            f"on demand, for the deadline, {when} UTC ({self._done} of {self.deadline.iterations} iterations)",
            market, missing, machines.type.on_demand,
        )  # fmt: skip

    def _is_due(self, now: float) -> bool:
        iteration_s = self.iteration.seconds(self.machines.count * self.machines.type.cores)
        late_s = now - latest_start(self.deadline, self._done, iteration_s, self.start_s + self.slack_s)
        if iteration_s is None:
            if late_s >= 0 and not self._is_unmeasured:
                self._is_unmeasured = True
                self.note(
                    f"no iteration has been measured in {UNMEASURED_SHARE:.0%} of the time to the deadline, so what is "
                    "left is unknown: the reference machines are requested on demand (iteration_s in the market file "
                    "says what iterations take)"
                )
        elif late_s > self.slack_s and not self._is_late:
            self._is_late = True
            self.note(f"the deadline will be missed by {(late_s - self.slack_s) / 60:.0f} min or more, on demand, too")
        return late_s >= 0
