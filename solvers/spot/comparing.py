"""Compare strategies on the same jobs: random starts, every strategy from each of them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from plink.errors import NoAnswer
from plink.model.spot.prices import HOUR_S, PriceTrace
from solvers.spot.simulating import DeadlineFallback, SimulationOutcome, Start, Strategy, simulate_job, work_of
from solvers.spot.strategies import Comparison

FALLBACK_SLACK_S = 360.0
"""So much earlier than they have to the machines for a deadline are requested, as by `plink spot drive`: it decides
every two minutes, and a request may stay without an answer for four."""
_EPSILON_S = 1e-3
ROOM = 4.0  # so many times the reference's hours, and two more, are known of prices after each start


@dataclass(frozen=True)
class StrategyResult:
    """The outcomes of one strategy, one for each start."""

    name: str
    outcomes: tuple[SimulationOutcome, ...]

    @property
    def unfinished(self) -> int:
        """How many jobs were not done when prices ended."""
        return sum(not outcome.finished for outcome in self.outcomes)

    @property
    def money(self) -> float:
        """What a job cost, mean."""
        return float(np.mean([outcome.money for outcome in self.outcomes]))

    @property
    def seconds(self) -> float:
        """What a job took, mean."""
        return float(np.mean([outcome.seconds for outcome in self.outcomes]))

    @property
    def evictions(self) -> float:
        """Allocations that a job lost, mean."""
        return float(np.mean([outcome.evictions for outcome in self.outcomes]))

    def missed(self, deadline_s: float) -> int:
        """Return how many jobs were not done in so many seconds."""
        late = [not each.finished or each.seconds > deadline_s + _EPSILON_S for each in self.outcomes]
        return int(np.count_nonzero(late))

    @property
    def fell_back(self) -> float:
        """The share of the jobs that needed on-demand machines for the deadline."""
        return float(np.mean([outcome.fell_back for outcome in self.outcomes]))

    def share(self, kind: str) -> float:
        """Return the share of machine hours that were ``anchor`` (on demand), ``paid`` or ``free``."""
        hours = {k: sum(getattr(each, f"{k}_s") for each in self.outcomes) for k in ("anchor", "paid", "free")}
        return float(hours[kind] / sum(hours.values()))


def draw_starts(traces: Sequence[PriceTrace], hours: float, count: int, seed: int) -> list[Start]:
    """Return random starts of jobs, evenly over the time in which all markets have prices for long enough after it.

    :raises NoAnswer: when no such time exists.
    """
    room = (ROOM * hours + 2) * HOUR_S
    common = [(begin, end) for begin, end in _common([trace.stretches for trace in traces]) if end - begin > room]
    if not common:
        raise NoAnswer(
            f"no time with {room / HOUR_S:g} h of prices in all markets, which jobs of {hours:g} h need; "
            "give longer histories, or fewer --hours"
        )
    lengths = np.array([end - begin - room for begin, end in common])
    edges = np.concatenate([[0.0], np.cumsum(lengths)])
    places = np.random.default_rng(seed).uniform(0, edges[-1], count)
    which = np.searchsorted(edges, places, side="right") - 1
    return [Start(common[w][0] + p - edges[w], common[w][1]) for w, p in zip(which, places, strict=True)]


def _common(stretches: Sequence[Sequence[tuple[float, float]]]) -> list[tuple[float, float]]:
    """Return the times that are inside of a stretch of each market."""
    result = list(stretches[0])
    for other in stretches[1:]:
        result = [(max(a, c), min(b, d)) for a, b in result for c, d in other if max(a, c) < min(b, d)]
    return result


def fallback_of(comparison: Comparison, deadline_s: float | None) -> DeadlineFallback | None:
    """Return the reference machines as those that a deadline falls back to; None without a deadline."""
    reference = comparison.reference
    if deadline_s is None:
        return None
    return DeadlineFallback(deadline_s, reference.count, reference.price, reference.cores, FALLBACK_SLACK_S)


def compare(
    strategies: Mapping[str, Strategy],
    comparison: Comparison,
    hours: float,
    starts: Sequence[Start],
    progress: Callable[[int, int], None] = lambda done, total: None,
    deadline_s: float | None = None,
) -> list[StrategyResult]:
    """Return how jobs of so many hours on the reference machines go by each strategy.

    :param strategies: by name; with a deadline those of :func:`solvers.spot.strategies.strategy_for` with one.
    :param deadline_s: from each start: the reference machines are requested on demand when they have to be.
    """
    work = work_of(hours, comparison.reference.total_cores, comparison.application)
    fallback = fallback_of(comparison, deadline_s)
    results: list[StrategyResult] = []
    for place, (name, strategy) in enumerate(strategies.items()):
        net = fallback if name != "on-demand" else None
        outcomes = []
        for number, start in enumerate(starts):
            outcomes.append(simulate_job(comparison.markets, strategy, comparison.application, start, work, net))
            progress(place * len(starts) + number + 1, len(strategies) * len(starts))
        results.append(StrategyResult(name, tuple(outcomes)))
    return results
