"""What a dry run and a release give a driver in place of a journal, a provider, a job and a brain: none of it acts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from plink.model.hosts import Host
from plink.model.spot.journal import JournalEntry
from plink.model.spot.prices import Market
from runners.spot.brain import RentalChoice
from runners.spot.elastic_job import ElasticJob, JobView
from runners.spot.provider import ListedInstance, PricePoint, Provider, ProviderError, RentalOrder
from solvers.spot.deciding import Quote
from solvers.spot.ledger import Ledger


class UnwrittenJournal:
    """A journal of nothing."""

    def add(self, entry: JournalEntry) -> None:
        """Keep nothing."""


@dataclass(frozen=True)
class ObservedProvider:
    """A provider of which only prices and the listing are asked."""

    provider: Provider

    def account(self) -> str:
        """As the provider."""
        return self.provider.account()

    def prices(self, since_s: float) -> Sequence[PricePoint]:
        """As the provider."""
        return self.provider.prices(since_s)

    def listing(self) -> Sequence[ListedInstance]:
        """As the provider."""
        return self.provider.listing()

    def acquire(self, order: RentalOrder) -> Sequence[ListedInstance]:
        """Acquire nothing."""
        raise ProviderError("invalid", "this is a dry run")

    def release(self, ids: Sequence[str]) -> None:
        """Release nothing."""

    def renew(self, ids: Sequence[str], until_s: float) -> None:
        """Renew nothing."""


class NoJob:
    """No job: nothing is added, and nobody is warned."""

    def view(self) -> JobView | None:
        """Return nothing."""
        return None

    def add(self, hosts: Sequence[Host]) -> None:
        """Add nothing."""

    def evict(self, names: Sequence[str], seconds: float) -> None:
        """Warn nobody."""

    def errors(self) -> Sequence[str]:
        """Return none."""
        return ()


@dataclass(frozen=True)
class ObservedJob(NoJob):
    """A job that is looked at, and left alone."""

    job: ElasticJob

    def view(self) -> JobView | None:
        """As the job."""
        return self.job.view()


class NoBrain:
    """No decisions."""

    def observe(self, market: Market, since_s: float, price: float) -> None:
        """Pass it over."""

    def choose(self, ledger: Ledger, quotes: Mapping[Market, Quote], now: float) -> RentalChoice:
        """Choose nothing."""
        return RentalChoice("everything is released")

    def reason_to_end(self, ledger: Ledger, token: str, quotes: Mapping[Market, Quote], now: float) -> str:
        """Return nothing."""
        return ""
