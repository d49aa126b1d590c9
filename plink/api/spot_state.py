"""What is held for a run, and what it costs, by its journal."""

import math
from dataclasses import dataclass
from pathlib import Path

from plink.errors import UsageError
from plink.model.spot.market_file import MarketFile, read_market_file
from plink.records.spot_journal import FOLDER, MARKET_COPY, NAME, driver_of, read_journal
from runners.spot.choice import choose_provider
from solvers.spot.ledger import Account, Ledger, account, instance_money


@dataclass(frozen=True)
class SpotState:
    """What is held, and what it costs. ``at_s``: on the provider's clock; ``driver``: the process that manages it."""

    run: str
    at_s: float
    driver: int | None
    market_file: MarketFile
    ledger: Ledger
    account: Account

    @property
    def budget(self) -> float | None:
        """What may be spent in all, by the latest driver's limits."""
        if self.ledger.limits is not None:
            return self.ledger.limits.budget
        budget = self.market_file.limits.budget  # of a journal before there were limits in it
        return budget if math.isfinite(budget) else None

    def money_of(self, instance: str) -> float:
        """Return what one instance has cost so far."""
        return instance_money(self.ledger, self.ledger.instances[instance], self.at_s)


def spot_state(folder: Path) -> SpotState:
    """Return what the journal of a run says; the provider is not asked.

    :raises UsageError: when the run has none.
    """
    entries = read_journal(folder / FOLDER)
    if not entries:
        raise UsageError(f"the run {folder.name} has no instances: `plink spot drive` was not started for it")
    market_file = read_market_file(folder / FOLDER / MARKET_COPY)
    ledger = Ledger.of(entries)
    clock = choose_provider(market_file, folder.name, folder / FOLDER, "status").clock
    return state_of(folder, ledger, market_file, clock())


def state_of(folder: Path, ledger: Ledger, market_file: MarketFile, now: float) -> SpotState:
    """Return what a ledger says at a time of the provider's clock."""
    at = max(now, ledger.at_s)
    prices = {each.name: each.on_demand for each in market_file.types}
    return SpotState(folder.name, at, driver_of(folder / FOLDER), market_file, ledger, account(ledger, at, prices))


def doubt_of(ledger: Ledger, now: float) -> str:
    """Return which requests may have been granted unseen, and what to type."""
    assert ledger.opened is not None
    names = ", ".join(f"{each.entry.count} x {each.entry.market}" for each in ledger.doubtful_requests(now))
    run = ledger.opened.run
    return f"{names}: never answered; instances may still appear: type `plink spot release {run}` again within the hour"


def runs_with_instances(runs: Path) -> list[Path]:
    """Return the folders of the runs of a workspace that have a journal of instances, or only its market file left."""
    return sorted({path.parent.parent for name in (NAME, MARKET_COPY) for path in runs.glob(f"*/{FOLDER}/{name}")})
