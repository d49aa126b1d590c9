"""Checks that a provider is the one that holds a run's instances: another would not list them."""

from pathlib import Path

from plink.errors import UsageError
from plink.model.spot.journal import JournalOpened
from plink.model.spot.market_file import MarketFile, read_market_file
from plink.records.spot_journal import FOLDER, MARKET_COPY
from runners.spot.choice import provider_name, scope_of
from runners.spot.provider import Provider, ProviderError
from solvers.spot.ledger import Ledger


def check_same_provider(folder: Path, ledger: Ledger, market_file: MarketFile) -> None:
    """Refuse a provider that would not list what is held. :raises UsageError: saying how they differ."""
    if ledger.opened is None or market_file.provider is None:
        return
    if (ledger.opened.provider, ledger.opened.billing) != (provider_name(market_file), market_file.billing):
        raise UsageError(
            f"the journal of this run is of the provider {ledger.opened.provider}, billed {ledger.opened.billing}; "
            "give a market file with the same"
        )
    if not ledger.held and not ledger.open_requests:
        return
    scope, held_in = scope_of(market_file), scope_of(read_market_file(folder / FOLDER / MARKET_COPY))
    for key in sorted(held_in):
        if scope.get(key) != held_in[key]:
            raise UsageError(
                f"{market_file.path}: provider.{key} is {scope.get(key)}, and instances of this run are held with "
                f"{held_in[key]}; give the same, or release them first: plink spot release {folder.name}"
            )


def checked_account(opened: JournalOpened | None, provider: Provider) -> str:
    """Return whose instances the provider lists: without it, instances could be rented where no later driver finds
    them. :raises UsageError: when what is held is of another account. :raises ProviderError: when it does not say."""
    try:
        name = provider.account()
    except ProviderError as error:
        message = f"whose account is it? The provider does not say: {error}; nothing was done, try again"
        raise ProviderError(error.failure, message) from None
    before = opened.account if opened is not None else ""
    if before and name and name != before:
        raise UsageError(f"the instances of this run are of the account {before}, and the credentials of {name}")
    return name
