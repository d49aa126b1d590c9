"""The provider ``skypilot``, by a stand-in for its module."""

import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from plink.errors import InputError, UsageError
from plink.model.spot import journal
from plink.model.spot.market_file import market_file_from
from plink.model.spot.prices import Market, on_demand_market
from runners.spot.choice import choose_provider
from runners.spot.provider import ProviderError, RentalOrder
from runners.spot.recorded_prices import RecordedPrices
from runners.spot.skypilot import SkyPilotProvider, SkyPilotSettings
from solvers.spot.ledger import Ledger, account
from tests.runners.spot import fake_sky
from tests.runners.spot.fake_cloud import START, Clock
from tests.runners.spot.fake_sky import FakeSky

EAST, WEST = "aws/us-east-1/us-east-1a", "gcp/us-west1/us-west1-b"
PRICES = {(EAST, "c5.xlarge", True): 0.07, (EAST, "c5.xlarge", False): 0.17, (WEST, "n2-standard-4", True): 0.05}
LEASE_S = 1800.0


@pytest.fixture
def sky() -> FakeSky:
    return FakeSky(Clock(), PRICES)


def provider(sky: FakeSky, run: str = "0aaa") -> SkyPilotProvider:
    settings = SkyPilotSettings((EAST, WEST), ("c5.xlarge", "n2-standard-4"), start_up="echo hello\n")
    return SkyPilotProvider(run, settings, sky.module(), sky.clock, timeout_s=30.0)


def order(token: str = "0aaa-1", count: int = 2, market: Market | None = None) -> RentalOrder:
    return RentalOrder(token, market or Market(EAST, "c5.xlarge"), count, 0.17, START + LEASE_S)


def test_prices_are_those_of_markets_that_exist(sky: FakeSky) -> None:
    points = provider(sky).prices(START - 3600)
    assert [(point.market.zone, point.price) for point in points] == [(EAST, 0.07), (WEST, 0.05)]
    assert {point.since_s for point in points} == {START}  # of earlier ones nothing is certain


def test_instances_from_request_to_release(sky: FakeSky) -> None:
    mine = provider(sky)
    granted = mine.acquire(order())
    assert [each.token for each in mine.listing()] == ["0aaa-1", "0aaa-1"]
    assert [each.address for each in mine.listing()] == [None, None]
    sky.come_up()
    assert [each.address for each in mine.listing()] == ["10.0.0.1", "10.0.0.2"]
    assert {each.id for each in mine.listing()} == {each.id for each in granted}
    mine.release([granted[0].id])
    assert [each.id for each in mine.listing()] == [granted[1].id]


@pytest.mark.parametrize("is_spot", [True, False])
def test_request_says_market_lease_and_start_up(sky: FakeSky, is_spot: bool) -> None:
    market = Market(EAST, "c5.xlarge") if is_spot else on_demand_market(EAST, "c5.xlarge")
    provider(sky).acquire(order(count=1, market=market))
    resources = sky.tasks[0].resources
    assert (resources.infra, resources.instance_type, resources.use_spot) == (EAST, "c5.xlarge", is_spot)  # type: ignore[attr-defined]
    assert sky.tasks[0].setup == "echo hello\n"
    [row] = sky.clusters.values()
    assert (row["autostop"], row["to_down"]) == (30, True)


def test_launch_is_never_repeated(sky: FakeSky) -> None:
    mine = provider(sky)
    first = mine.acquire(order())
    assert {each.id for each in mine.acquire(order())} == {each.id for each in first}
    assert len(sky.launched) == 2


@pytest.mark.parametrize("has_ssh_sessions", [False, True])
def test_lease_is_not_longer_for_older_instances(sky: FakeSky, has_ssh_sessions: bool) -> None:
    sky.has_ssh_sessions = has_ssh_sessions
    mine = provider(sky)
    granted = mine.acquire(order())
    mine.listing()
    mine.renew([each.id for each in granted], START + LEASE_S)  # not up: the lease of its launch stands
    sky.come_up()
    for _ in range(60):
        sky.clock.now += 600  # type: ignore[attr-defined]
        assert len(mine.listing()) == 2
        mine.renew([each.id for each in granted], sky.clock() + LEASE_S)
    sky.clock.now += LEASE_S - 60  # type: ignore[attr-defined]
    assert len(mine.listing()) == 2
    sky.clock.now += 120  # type: ignore[attr-defined]
    assert mine.listing() == []


def test_odd_record_of_others_does_not_stop_listings(sky: FakeSky) -> None:
    mine = provider(sky)
    mine.acquire(order(count=1))
    sky.clusters["other"] = {"name": "other", "launched_at": None, "status": None, "handle": None}
    assert len(mine.listing()) == 1


class PricedRun:
    """The prices of a driver with one instance, and its journal."""

    def __init__(self, sky: FakeSky) -> None:
        self.sky, self.ledger, self.market = sky, Ledger(), Market(EAST, "c5.xlarge")
        self.ledger.apply(journal.JournalOpened(START, "0aaa", "skypilot", "per-second"))
        self.restart()
        self.prices.record(self.market, *self.prices.latest[self.market], START)
        words = (EAST, "c5.xlarge", self.market.product)
        self.ledger.apply(journal.InstancesRequested(START, "0aaa-1", *words, 1, 0.17))
        self.ledger.apply(journal.InstanceGranted(START, "0aaa-1", "i1", START))
        self.ledger.apply(journal.RequestClosed(START, "0aaa-1", "granted"))

    def restart(self) -> None:
        self.prices = RecordedPrices(self.ledger, self.ledger.apply, lambda market, since_s, price: None)
        self.provider = provider(self.sky)
        self.fetch()

    def fetch(self) -> None:
        now = self.sky.clock()
        since = self.prices.due(now, 60.0)
        if since is not None:
            self.prices.add(self.provider.prices(since), now)

    def hold(self, hours: float) -> None:
        for _ in range(round(60 * hours)):
            self.sky.clock.now += 60  # type: ignore[attr-defined]
            self.fetch()

    def cost(self) -> float:
        return account(self.ledger, self.sky.clock()).transient


def test_price_change_while_held_is_paid_and_quoted() -> None:
    clock, prices = Clock(), dict(PRICES)
    run = PricedRun(FakeSky(clock, prices))
    run.hold(0.5)
    prices[EAST, "c5.xlarge", True] = 0.16
    run.hold(5.5)
    assert run.cost() == pytest.approx(0.07 + 5 * 0.16, abs=0.01)  # an hour is billed by its first price
    assert run.prices.quotes(clock.now)[run.market].price == 0.16


def test_restart_does_not_price_past_hours_anew() -> None:
    clock, prices = Clock(), dict(PRICES)
    run = PricedRun(FakeSky(clock, prices))
    run.hold(4)
    prices[EAST, "c5.xlarge", True] = 0.16
    run.restart()
    assert run.cost() == pytest.approx(4 * 0.07, abs=0.01)
    run.hold(1)
    assert run.cost() == pytest.approx(4 * 0.07 + 0.16, abs=0.01)
    run.prices.want_history(run.ledger.instances["i1"])  # it was not listed for a while
    run.fetch()
    assert run.cost() == pytest.approx(4 * 0.07 + 0.16, abs=0.01)


def test_clusters_of_others_are_left_alone(sky: FakeSky) -> None:
    mine, other = provider(sky), provider(sky, "0bbb")
    mine.acquire(order())
    other.acquire(order("0bbb-1", 1))
    assert {each.token for each in mine.listing()} == {"0aaa-1"}
    assert {each.token for each in other.listing()} == {"0bbb-1"}


def test_stopped_cluster_was_interrupted(sky: FakeSky) -> None:
    mine = provider(sky)
    mine.acquire(order(count=1))
    next(iter(sky.clusters.values()))["status"] = fake_sky.ClusterStatus.STOPPED
    assert [each.end for each in mine.listing()] == ["interrupted"]


def test_release_of_what_is_gone_releases_the_others(sky: FakeSky) -> None:
    mine = provider(sky)
    granted = mine.acquire(order())
    del sky.clusters[granted[0].id]
    mine.release([each.id for each in granted])
    assert sky.clusters == {}


def test_release_that_fails_is_an_error_and_the_others_are_released(sky: FakeSky) -> None:
    mine = provider(sky)
    granted = mine.acquire(order())
    sky.fails["down"] = [RuntimeError("failed to tear down")]
    with pytest.raises(ProviderError):
        mine.release([each.id for each in granted])
    assert [*sky.clusters] == [granted[0].id]


def test_release_of_a_queued_launch_cancels_it(sky: FakeSky) -> None:
    sky.is_queueing = True
    mine = provider(sky)
    granted = [each.id for each in mine.acquire(order())]
    sky.fails["api_cancel"] = [ConnectionError("reset")]
    with pytest.raises(ProviderError):
        mine.release(granted)
    mine.release(granted)
    assert sky.queue == []


@pytest.mark.parametrize("method", ["launch", "down", "api_info"])
def test_request_that_cannot_be_submitted_in_time_is_an_error(sky: FakeSky, method: str) -> None:
    never = threading.Event()
    mine = replace(provider(sky), timeout_s=0.05)
    setattr(mine.sky, method, lambda *words, **options: never.wait(30))
    calls = {"launch": lambda: mine.acquire(order()), "down": lambda: mine.release(["a"]), "api_info": mine.account}
    with pytest.raises(ProviderError, match="no answer") as caught:
        calls[method]()
    assert not caught.value.has_no_effect
    never.set()


@pytest.mark.parametrize(("error", "failure", "has_no_effect"), [
    (ValueError("no such image"), "invalid", True), (ConnectionError("reset"), "unavailable", False),
    (fake_sky.NoCloudAccessError("aws is disabled"), "credentials", False),
])  # fmt: skip
def test_failed_launch(sky: FakeSky, error: Exception, failure: str, has_no_effect: bool) -> None:
    sky.fails["launch"], sky.at_submit = [error], True
    with pytest.raises(ProviderError) as caught:
        provider(sky).acquire(order())
    assert (caught.value.failure, caught.value.has_no_effect) == (failure, has_no_effect)
    assert sky.launched == []


def test_launch_that_fails_in_the_middle_grants_the_first(sky: FakeSky) -> None:
    mine = provider(sky)
    launch = sky.launch

    def second_fails(*words: object, **options: object) -> object:
        if sky.launched:
            raise ConnectionError("reset")
        return launch(*words, **options)  # type: ignore[arg-type]

    mine.sky.launch = second_fails
    assert len(mine.acquire(order())) == 1


def test_server_that_does_not_answer_is_an_error(sky: FakeSky) -> None:
    mine, never = provider(sky), threading.Event()
    mine.sky.get = lambda request_id: never.wait()
    with pytest.raises(ProviderError, match="no answer"):
        replace(mine, timeout_s=0.05).listing()
    never.set()


def test_account_is_the_user_of_the_server(sky: FakeSky) -> None:
    assert provider(sky).account() == ""
    sky.user = {"name": "someone", "id": "12345abcd"}
    assert provider(sky).account() == "12345abcd"


MARKET = {
    "billing": "per-second", "zones": [EAST], "types": [{"name": "c5.xlarge", "cores": 4, "on_demand": 0.17}],
    "reference": {"type": "c5.xlarge", "count": 1}, "limits": {"max_cores": 16}, "provider": {"kind": "skypilot"},
}  # fmt: skip


def test_market_file_makes_the_provider(sky: FakeSky, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "sky", sky.module())
    chosen = choose_provider(market_file_from(MARKET, "market.toml"), "0aaa", tmp_path)
    assert [point.price for point in chosen.provider.prices(START)] == [0.07]


def test_missing_package_is_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "sky", None)
    market_file = market_file_from(MARKET, "market.toml")
    with pytest.raises(UsageError, match="pip install") as caught:
        choose_provider(market_file, "0aaa", tmp_path)
    assert "\n" not in str(caught.value)
    choose_provider(market_file, "0aaa", tmp_path, "status")  # a journal is read without it


@pytest.mark.parametrize("change", [{"billing": "hourly-2016"}, {"zones": []}])
def test_market_file_that_does_not_fit(
    change: dict[str, object], sky: FakeSky, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "sky", sky.module())
    with pytest.raises(InputError):
        choose_provider(market_file_from(MARKET | change, "market.toml"), "0aaa", tmp_path)
