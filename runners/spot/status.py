"""What is held for a run, and what it costs, by its journal; the provider is not asked."""

import math
from pathlib import Path
from typing import Literal

from plink.errors import InputError, UsageError
from plink.model.spot.market_file import MarketFile, read_market_file
from plink.model.spot.results import HeldInstance, OpenRequest, SpotCost, SpotStatus
from plink.records.elastic_history import history_of
from plink.records.elastic_log import NAME as LOG
from plink.records.elastic_log import read_elastic_log
from runners.spot.choice import choose_provider
from runners.spot.journal import FOLDER, MARKET_COPY, NAME, driver_of, read_journal
from solvers.spot.ledger import Ledger, RentedInstance, account, instance_money


def spot_status(folder: Path) -> SpotStatus:
    """Return what the journal of a run's folder says.

    :raises UsageError: when the run has none. :raises InputError: when it cannot be read.
    """
    folder = Path(folder).absolute()
    entries = read_journal(folder / FOLDER)
    if not entries:
        raise UsageError(f"the run {folder.name} has no instances: `plink spot drive` was not started for it")
    market_file = read_market_file(folder / FOLDER / MARKET_COPY)
    clock = choose_provider(market_file, folder.name, folder / FOLDER, "status").clock
    return status_of(folder, Ledger.of(entries), market_file, clock(), _iterations(folder))


def status_if_rented(folder: Path) -> SpotStatus | None:
    """Return what is held for a run, None where nothing was ever rented for it. :raises PlinkError: as
    :func:`spot_status`."""
    journal = folder / FOLDER / NAME
    if not journal.exists() or journal.stat().st_size == 0 or not (folder / FOLDER / MARKET_COPY).exists():
        return None
    return spot_status(folder)


def status_of(folder: Path, ledger: Ledger, market_file: MarketFile, now: float, iterations: int = 0) -> SpotStatus:
    """Return what a ledger says at a time of the provider's clock. ``iterations``: of the job that count."""
    assert ledger.opened is not None
    at_s = max(now, ledger.at_s)
    cost = account(ledger, at_s, {each.name: each.on_demand for each in market_file.types})
    ends = [each.end for each in ledger.instances.values()]
    return SpotStatus(
        run=folder.name,
        provider=ledger.opened.provider,
        at_s=round(at_s, 3),
        driver=driver_of(folder / FOLDER),
        job_ended=ledger.job_ended,
        held=tuple(_held(ledger, each, at_s) for each in ledger.held),
        open_requests=tuple(
            OpenRequest(token=each.token, zone=each.zone, type=each.type, count=each.count, bid=each.bid)
            for each in (request.entry for request in ledger.open_requests)
        ),
        ended={"interrupted": ends.count("interrupted"), "released": ends.count("released")},
        cost=SpotCost(
            total=round(cost.total, 6),
            transient=round(cost.transient, 6),
            anchors=round(cost.anchors, 6),
            refunded=round(cost.refunded, 6),
            on_demand=round(cost.on_demand, 6),
            per_iteration=round(cost.total / iterations, 6) if iterations else None,
            budget=_budget(ledger, market_file),
        ),
    )


def _held(ledger: Ledger, each: RentedInstance, at_s: float) -> HeldInstance:
    state: Literal["starting", "working", "draining", "releasing"] = "starting" if each.host is None else "working"
    if each.is_leaving:
        state = "draining" if each.released_at_s is None else "releasing"
    return HeldInstance(
        instance=each.id,
        host=each.host,
        zone=each.market.zone,
        type=each.market.type,
        on_demand=each.market.is_on_demand,
        bid=each.bid,
        since_s=each.since_s,
        state=state,
        reason=each.reason or ledger.requests[each.token].entry.reason,
        cost=round(instance_money(ledger, each, at_s), 6),
    )


def _budget(ledger: Ledger, market_file: MarketFile) -> float | None:
    """Return what may be spent in all, by the latest driver's limits."""
    if ledger.limits is not None:
        return ledger.limits.budget
    budget = market_file.limits.budget  # of a journal before there were limits in it
    return budget if math.isfinite(budget) else None


def _iterations(folder: Path) -> int:
    """Return how many iterations of the job count."""
    try:
        return len(history_of(read_elastic_log(folder / LOG)).completed)
    except InputError:
        return 0


def doubt_of(ledger: Ledger, now: float) -> str:
    """Return which requests may have been granted unseen, and what to type."""
    assert ledger.opened is not None
    names = ", ".join(f"{each.entry.count} x {each.entry.market}" for each in ledger.doubtful_requests(now))
    run = ledger.opened.run
    return f"{names}: never answered; instances may still appear: type `plink spot release {run}` again within the hour"


def runs_with_instances(runs: Path) -> list[Path]:
    """Return the folders of the runs of a workspace that have a journal of instances, or only its market file left."""
    return sorted({path.parent.parent for name in (NAME, MARKET_COPY) for path in runs.glob(f"*/{FOLDER}/{name}")})
