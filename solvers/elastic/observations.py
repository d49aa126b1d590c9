"""Sub-states of what a controller observes: training progress, slow hosts, traffic, and the work of hosts."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from plink.model.elastic.fields import TrafficCounters
from plink.model.elastic.reports import ClockDone
from solvers.elastic.placement.stages import Stage


@dataclass(frozen=True)
class IterationEnd:
    """An iteration whose last clock is done, and how things stood then."""

    clock: int
    stage: int
    workers: int
    at: float


@dataclass(frozen=True)
class TrainingProgress:
    """Progress of a job.

    ``seconds``, ``iteration_workers``: of the latest iteration; ``workers``: of the latest clock.
    ``took``: seconds by iteration and clock. ``over``: iterations whose line is not written yet; ``objectives``: of
    these. ``evaluated``: the latest iteration whose objective is known. ``batches``: clocks of an iteration.
    ``work``: of the latest iteration, by host (:func:`solvers.elastic.host_work.of_iteration`). ``moved``, ``help``: of
    that, what workers did for others (:func:`solvers.elastic.host_work.help_of_iteration`).
    """

    iteration: int = -1
    clock_done: int = -1
    objective: float | None = None
    seconds: float | None = None
    workers: int = 0
    iteration_workers: int = 0
    stage: int = 0  # 0: not known yet
    took: Mapping[int, Mapping[int, float]] = field(default_factory=dict)
    over: Mapping[int, IterationEnd] = field(default_factory=dict)
    objectives: Mapping[int, float | None] = field(default_factory=dict)
    evaluated: int = -1
    batches: int = 1
    work: Mapping[str, tuple[float, float, int]] = field(default_factory=dict)
    moved: float = 0.0
    help: Mapping[str, Mapping[str, float]] = field(default_factory=dict)


@dataclass(frozen=True)
class Wait:
    """A wait of all for some hosts. ``hosts`` have not done ``clock``; no worker has done any for ``seconds``."""

    clock: int
    hosts: tuple[int, ...]
    seconds: float


@dataclass(frozen=True)
class Stragglers:
    """State of straggler detection.

    ``done``: workers that have done a clock, by clock and host. ``noted``: the last wait that was noted.
    """

    first: int | None = None
    newest: int = -1
    done: Mapping[int, Mapping[int, int]] = field(default_factory=dict)
    at_s: float = 0.0
    longest_s: float = 0.0
    noted: Wait | None = None


@dataclass(frozen=True)
class TrafficMonitor:
    """State of traffic measurement.

    ``counters``: of each host. ``before``: at the last measure. ``stages``: seen since then. ``worker``: as measured
    last while reliable hosts had workers. ``logged``: counters in the log, by name.
    """

    counters: Mapping[int, TrafficCounters] = field(default_factory=dict)
    next_s: float = 0.0
    before: tuple[float, Mapping[int, TrafficCounters]] | None = None
    stages: frozenset[Stage | None] = frozenset()
    worker: float = 0.0
    measures: int = 0
    logged: Mapping[str, TrafficCounters] = field(default_factory=dict)


@dataclass(frozen=True)
class HostWork:
    """Work of a host's workers in one iteration, summed up: seconds computed and waited, steps, and clocks; how many
    grains it had, and how many of them workers of which hosts did for it, by name."""

    compute_s: float = 0.0
    waited_s: float = 0.0
    steps: int = 0
    clocks: int = 0
    grains: int = 0
    helped: Mapping[str, int] = field(default_factory=dict)

    def plus(self, done: ClockDone, helped: Mapping[str, int]) -> "HostWork":
        """Return it with one more clock of one worker, of which workers of hosts did so many grains for it."""
        return HostWork(
            self.compute_s + done.compute_s,
            self.waited_s + done.waited_s,
            self.steps + done.steps,
            self.clocks + 1,
            self.grains + done.grains,
            Counter(self.helped) + Counter(helped),
        )


@dataclass(frozen=True)
class ReportedWork:
    """Work by iteration and name of the host, which may have left by now; ``reached``: the latest clock that is
    reported, by worker."""

    iterations: Mapping[int, Mapping[str, HostWork]] = field(default_factory=dict)
    reached: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True)
class MeasuredSpeeds:
    """State of the measurement of speeds.

    ``seconds``: of a mini-batch of one shard, by host, an exponentially weighted mean. ``clock``: the latest that was
    looked at. ``uneven``: clocks in a row that other shares would have made shorter.
    """

    seconds: Mapping[int, float] = field(default_factory=dict)
    clock: int = 0
    uneven: int = 0
