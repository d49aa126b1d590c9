"""Requests about transient machines."""

import math
from dataclasses import dataclass
from functools import partial
from typing import Annotated

from plink.errors import UsageError
from plink.model.request import FeatureRequest, Option, OptionalDuration, Text
from plink.model.units import parse_moment, typed_hours

BASELINE = "on-demand"
DEFAULT_STRATEGIES = (BASELINE, "young-checkpoint", "standard-agile", "bidbrain-replacing")
_HOUR_S = 3600.0
RENTAL_PANEL = "Machines rented for the job"
_rental = partial(Option, panel=RENTAL_PANEL)
PRICES_HELP = "Price or availability histories; once for each file."


OptionalMoment = Annotated[float | None, Text("TIME", parse_moment)]
Files = Annotated[tuple[str, ...], Text("FILE", tuple, repeated=True)]


def _strategies(text: str) -> tuple[str, ...]:
    from solvers.spot.strategies import NAMES

    return NAMES if text == "all" else tuple(name.strip() for name in text.split(",") if name.strip())


Strategies = Annotated[tuple[str, ...], Text("NAMES", _strategies, ", ".join)]


@dataclass(frozen=True)
class MadePricesRequest(FeatureRequest):
    """Request for price histories that are made from a seed."""

    days: Annotated[
        int | None, Option("Make prices instead of reading any.", ("--made",), least=1, most=1000, metavar="DAYS")
    ] = None
    seed: Annotated[int, Option("Draws the prices of --made.", least=0)] = 0


@dataclass(frozen=True)
class SpotOddsRequest(FeatureRequest):
    """Request for the odds of evictions. Times are seconds since 1970."""

    type: Annotated[str | None, Option("Only this instance type.", metavar="TYPE")] = None
    zone: Annotated[str | None, Option("Only this zone.", metavar="ZONE")] = None
    until_s: Annotated[
        OptionalMoment, Option("Only prices before this (2016-06-11): what was known then.", ("--until",))
    ] = None
    bucket: Annotated[
        int | None, Option("Spot Instance Advisor: 0 (< 5 % a month) to 4 (> 20 %); prior of rates.", least=0, most=4)
    ] = None


@dataclass(frozen=True)
class SpotAdviceRequest(FeatureRequest):
    """Request for one decision. Times are seconds since 1970."""

    at_s: Annotated[OptionalMoment, Option("Decide as at this time; default: the end of the histories.", ("--at",))] = (
        None
    )


@dataclass(frozen=True)
class SpotSimulationRequest(FeatureRequest):
    """Request to compare strategies by the same jobs, in each zone by itself."""

    hours: Annotated[float, Option("What a job takes on the reference machines.", least=0.01, most=1000)] = 2.0
    starts: Annotated[int, Option("Jobs in each zone, at random times.", least=1)] = 1000
    seed: Annotated[int, Option("Draws those times.", least=0)] = 0
    strategies: Annotated[Strategies, Option("Which to compare, separated by commas, or all.")] = DEFAULT_STRATEGIES
    train_until_s: Annotated[
        OptionalMoment,
        Option(
            "Odds are from before it, and jobs start after it; default: three fifths of the histories.",
            ("--train-until",),
        ),
    ] = None
    deadline_s: Annotated[
        OptionalDuration, Option("Jobs are to be over so long after their start, like 6h.", ("--deadline",))
    ] = None

    def __post_init__(self) -> None:
        from solvers.spot.strategies import NAMES, ROOM

        super().__post_init__()
        unknown = [name for name in self.strategies if name not in NAMES]
        if unknown or not self.strategies:
            raise UsageError(f"--strategies {','.join(unknown)}: choose some of {', '.join(NAMES)}, or all")
        if self.deadline_s is not None and not 0 < self.deadline_s <= ROOM * self.hours * _HOUR_S:
            raise UsageError(
                f"--deadline {typed_hours(self.deadline_s)}: give a time above 0, at most {ROOM:g} times --hours"
            )


@dataclass(frozen=True)
class SpotDriveRequest(FeatureRequest):
    """Request to rent instances for an elastic job, as the ``market`` file says; None: rent nothing."""

    market: str | None = None
    prices: Annotated[Files, _rental("Histories for odds; once for each file. Default: 30 days of the provider.")] = ()
    budget: Annotated[
        float | None,
        _rental("The most that the run's machines may cost; default: the market file's.", least=0, metavar="MONEY"),
    ] = None
    max_hourly: Annotated[
        float | None,
        _rental(
            "What all bids together may come to; default: the market file's.", ("--per-hour",), least=0, metavar="MONEY"
        ),
    ] = None
    deadline_s: Annotated[
        OptionalDuration,
        _rental(
            "Rent the market file's reference machines on demand when the job would not be over this long after the "
            "first driver's start (6h) otherwise; with --iterations.",
            ("--deadline",),
        ),
    ] = None
    iterations: Annotated[int | None, _rental("How many the job does in all; with --deadline.", least=1)] = None
    fallback: Annotated[
        bool,
        _rental(
            "Rent machines of the market file's reference type on demand while they cost less per core-hour than every "
            "market."
        ),
    ] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.deadline_s is not None and not 0 < self.deadline_s < math.inf:
            raise UsageError(f"--deadline {self.deadline_s:g}s: give a time above 0")
        if (self.deadline_s is None) != (self.iterations is None):
            raise UsageError("--deadline TIME and --iterations N go together: how much there is to do, and until when")
        if self.deadline_s is not None and self.fallback:
            raise UsageError("choose --deadline or --fallback: a deadline rents on-demand machines when it has to")

    @property
    def needs_on_demand(self) -> bool:
        """Whether on-demand machines may be requested."""
        return self.fallback or self.deadline_s is not None
