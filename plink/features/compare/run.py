"""Run a job in the hosts' own order and in plink's, alternately, and estimate the gain."""

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from plink.errors import NoAnswer, PlinkError, UsageError
from plink.features.compare.metric import RUN_SECONDS, Metric, detected_metric, metric_from
from plink.features.compare.request import CompareRequest
from plink.features.launch.run import LaunchRequest, RecordRequest, launch
from plink.model.hosts import Hosts
from plink.model.order import RankOrder
from plink.model.run import ComparedRun, OrderComparison, OrderName
from runners.job.monitor import Sink
from runners.job.placement import RunResult
from runners.job.runner import Job, RunObserver
from solvers.gain import CONFIDENCE, paired_gain

NOTHING_TO_COMPARE = "plink's order is the given one: there is nothing to compare"
_MAX_LINES_PER_RANK = 2000
_log = logging.getLogger("plink.compare")
Start = Callable[[Hosts, LaunchRequest, Sink], RunResult]


def compare(
    job: Job,
    hosts: Hosts,
    order: RankOrder,
    request: CompareRequest | None = None,
    launch_request: LaunchRequest | None = None,
    observer: RunObserver | None = None,
) -> OrderComparison:
    """Run a job as its hosts stand and in an order, alternately, and return how many times better the order is.

    :param launch_request: of every run; with ``record`` they are kept, each below a folder of ``log_dir`` of its own.
    :param observer: of every run.
    :raises NoAnswer: when the hosts stand in that order. :raises UsageError: for a job with hubs. :raises InputError:
        when the order is not of these hosts.
    :raises PlinkError: when a run fails or reports no metric.
    """
    if job.hubs:
        raise UsageError("jobs with hubs are not compared")
    job = replace(job, env=order.environment | job.env)
    watched = observer or RunObserver()

    def start(placed: Hosts, own_request: LaunchRequest, on_line: Sink) -> RunResult:
        def on_any_line(rank: int | None, stream: str, line: str) -> None:
            on_line(rank, stream, line)
            watched.on_line(rank, stream, line)

        return launch(job, placed, None, own_request, replace(watched, on_line=on_any_line))

    comparison = OrderRuns(request or CompareRequest(), hosts.ranked(), order.arrange(hosts, "order"))
    comparison.run(launch_request or LaunchRequest(), start)
    return comparison.document()


@dataclass
class OrderRuns:
    """Runs of a job in two orders of its hosts. ``printed``: what all ranks printed in each order, of all runs.

    :raises NoAnswer: when both are one.
    """

    request: CompareRequest
    baseline: Hosts
    optimised: Hosts
    runs: list[ComparedRun] = field(default_factory=list)
    printed: Mapping[OrderName, list[str]] = field(default_factory=lambda: {"given": [], "plink": []})
    _metric: Metric | None = None

    def __post_init__(self) -> None:
        if self.baseline.names == self.optimised.names:
            raise NoAnswer(NOTHING_TO_COMPARE)
        self._metric = None if self.request.metric is None else metric_from(self.request.metric)

    @property
    def complete_pairs(self) -> int:
        """Number of pairs of which both runs are done."""
        return len(self.runs) // 2

    def run(self, launch_request: LaunchRequest, start: Start) -> None:
        """Run the job in both orders as often as requested; ``start`` runs it once.

        :raises PlinkError: when a run fails or reports no metric; what was done until then stays.
        """
        orders: dict[OrderName, Hosts] = {"given": self.baseline, "plink": self.optimised}
        for pair in range(self.request.pairs):
            # Turn and turn about, so that what drifts with time favours neither.
            for name in list(orders) if pair % 2 == 0 else list(orders)[::-1]:
                self._run_once(name, pair, orders[name], launch_request, start)
                launch_request = replace(launch_request, preflight=None)  # once, before the first run

    def document(self) -> OrderComparison:
        """Return the gain by the pairs that are complete, one at least."""
        assert self._metric is not None  # since the first run
        runs = self.runs[: 2 * self.complete_pairs]
        baseline, ordered = ([run.value for run in runs if run.order == name] for name in ("given", "plink"))
        gain = paired_gain(baseline, ordered, self.request.higher_is_better)
        return OrderComparison(
            metric=None if self._metric is RUN_SECONDS else self._metric.name,
            unit=self._metric.unit,
            higher_is_better=self.request.higher_is_better,
            pairs=self.complete_pairs,
            gain=round(gain.gain, 4),
            interval=None if gain.low is None or gain.high is None else (round(gain.low, 4), round(gain.high, 4)),
            confidence=CONFIDENCE,
            runs=tuple(runs),
        )

    def _run_once(self, name: OrderName, pair: int, hosts: Hosts, launch_request: LaunchRequest, start: Start) -> None:
        printed: dict[int, list[str]] = {}

        def keep(rank: int | None, stream: str, line: str) -> None:
            if rank is not None and stream == "out":
                lines = printed.setdefault(rank, [])
                lines.append(line)
                del lines[:-_MAX_LINES_PER_RANK]

        result = start(hosts, replace(launch_request, record=_record(launch_request.record, name, pair)), keep)
        more = "" if launch_request.record is None else f"; `plink runs show {result.id}` shows more"
        if result.exit_code:
            raise PlinkError(f"in {name} order {result.reason}{more}")
        if self._metric is None:
            self._metric = _metric_of(printed)
        self.printed[name].extend(line for rank in sorted(printed) for line in printed[rank])
        value = result.seconds if self._metric is RUN_SECONDS else _parsed(self._metric, printed, result.id, more)
        self.runs.append(ComparedRun(order=name, pair=pair, value=value, id=result.id))
        _log.info("%5s, %d of %d: %s", name, pair + 1, self.request.pairs, self._metric.shown(value))


def _record(request: RecordRequest | None, name: OrderName, pair: int) -> RecordRequest | None:
    """Return how the run of a pair is kept: with its order, its logs in a folder of its own."""
    if request is None:
        return None
    log_dir = None if request.log_dir is None else request.log_dir / f"{name}-{pair + 1}"
    order = request.note.get("order", name) if name == "plink" else name
    return RecordRequest(log_dir, {**request.note, "order": order, "compared": name})


def _metric_of(printed: Mapping[int, Sequence[str]]) -> Metric:
    """Return the metric that the output of the first run has, or that of whole runs, and say which."""
    for rank in sorted(printed):
        metric = detected_metric(printed[rank])
        if metric is not None:
            unit = f" in {metric.unit}" if metric.unit else ""
            _log.info("compared by %s%s, which rank %d prints (--metric selects another)", metric.name, unit, rank)
            return metric
    _log.warning(
        "warning: compared by the time of whole runs, start-up and imports included, for the output has no time of a "
        "step; call plink.report_metric(seconds) in the program, or give --metric"
    )
    return RUN_SECONDS


def _parsed(metric: Metric, printed: Mapping[int, Sequence[str]], run_id: str, more: str) -> float:
    """Return the metric of the first rank that prints it.

    :raises PlinkError: when none does, or it cannot be compared.
    """
    for rank in sorted(printed):
        if (value := metric.parse(printed[rank])) is not None:
            if not 0 < value < math.inf:
                raise PlinkError(f"--metric {metric.name}: the run {run_id} reports {value:g}; gains need more than 0")
            return value
    raise PlinkError(f"--metric {metric.name}: no rank of the run {run_id} printed one{more}")
