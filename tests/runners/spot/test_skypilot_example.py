"""The commands of examples/spot_skypilot.py under the provider ``command``, with a stand-in for SkyPilot's module."""

import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from plink.model.spot.market_file import market_file_from
from plink.model.spot.prices import Market, on_demand_market
from runners.spot.choice import choose_provider
from runners.spot.provider import Provider, ProviderError, RentalOrder

pytestmark = pytest.mark.extended  # each command is a process

ROOT = Path(__file__).parents[3]
EAST, WEST = "aws/us-east-1/us-east-1a", "gcp/us-west1/us-west1-b"
SMALL, LARGE = f"c5.xlarge@{EAST}", f"n2-standard-4@{WEST}"
LEASE_S = 1800.0


class Sky:
    """The file of the stand-in, and the providers of runs that share it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.file = folder, folder / "sky.json"
        (folder / "start.sh").write_text("echo hello\n")
        self.file.write_text(json.dumps({
            "catalog": {SMALL: 0.07, LARGE: 0.05}, "clusters": {}, "queue": {}, "is_queueing": False, "fails": {},
            "launched": [],
        }))  # fmt: skip

    def read(self) -> dict[str, Any]:
        state: dict[str, Any] = json.loads(self.file.read_text())
        return state

    def change(self, **values: Any) -> None:
        self.file.write_text(json.dumps(self.read() | values))

    def come_up(self, status: str = "UP") -> None:
        clusters = self.read()["clusters"]
        self.change(clusters={name: row | {"status": status} for name, row in clusters.items()})

    def provider(self, run: str = "0aaa", *markets: str) -> Provider:
        words = [sys.executable, str(ROOT / "examples" / "spot_skypilot.py")]
        document = {
            "types": [{"name": "c5.xlarge", "cores": 4, "on_demand": 0.17}], "limits": {"max_cores": 16},
            "reference": {"type": "c5.xlarge", "count": 1},
            "provider": {
                "kind": "command", "prices": [*words, "prices", *(markets or (SMALL, LARGE))],
                "acquire": [*words, "acquire", "--setup", str(self.folder / "start.sh")],
                "listing": [*words, "listing"], "release": [*words, "release"], "renew": [*words, "renew"],
            },
        }  # fmt: skip
        return choose_provider(market_file_from(document, "market.toml"), run, self.folder).provider


@pytest.fixture
def sky(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sky:
    state = Sky(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("FAKE_SKY", str(state.file))
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent / "stand_in"))
    return state


def order(token: str = "0aaa-1", count: int = 2, market: Market | None = None) -> RentalOrder:
    return RentalOrder(token, market or Market(EAST, "c5.xlarge"), count, 0.17, time.time() + LEASE_S)


@pytest.mark.quick
def test_instances_from_request_to_release(sky: Sky) -> None:
    mine = sky.provider()
    granted = mine.acquire(order())
    assert [(each.token, each.address) for each in mine.listing()] == [("0aaa-1", None)] * 2
    assert {row["setup"] for row in sky.read()["clusters"].values()} == {"echo hello\n"}
    sky.come_up()
    assert {each.id for each in mine.listing() if each.address == "10.0.0.1"} == {each.id for each in granted}
    mine.release([granted[0].id])
    assert [each.id for each in mine.listing()] == [granted[1].id]


def test_prices_count_from_when_they_were_first_seen(sky: Sky) -> None:
    begin = time.time()
    first = sky.provider().prices(begin)
    assert [(point.market.zone, point.price) for point in first] == [(EAST, 0.07), (WEST, 0.05)]
    assert {point.since_s for point in first} == {begin}
    sky.change(catalog={SMALL: 0.16, LARGE: 0.05})
    later = [point for point in sky.provider().prices(begin) if point.market.zone == EAST]
    assert [point.price for point in later] == [0.07, 0.16]
    assert later[0].since_s == begin < later[1].since_s
    assert sky.provider("0bbb").prices(begin - 3600)[0].since_s >= begin  # of earlier ones nothing is certain


def test_market_that_the_catalog_lacks_is_an_error(sky: Sky) -> None:
    with pytest.raises(ProviderError, match=r"c5\.huge"):
        sky.provider("0aaa", SMALL, f"c5.huge@{EAST}").prices(time.time())


@pytest.mark.parametrize("is_spot", [True, False])
def test_launch_has_the_market_and_the_lease(sky: Sky, is_spot: bool) -> None:
    market = Market(EAST, "c5.xlarge") if is_spot else on_demand_market(EAST, "c5.xlarge")
    sky.provider().acquire(order(count=1, market=market))
    [row] = sky.read()["clusters"].values()
    assert (row["infra"], row["is_spot"], row["minutes"], row["unconditional"]) == (EAST, is_spot, 30, True)


@pytest.mark.parametrize("is_queueing", [False, True])
def test_launch_is_never_repeated(sky: Sky, is_queueing: bool) -> None:
    sky.change(is_queueing=is_queueing)
    mine = sky.provider()
    assert {each.id for each in mine.acquire(order())} == {each.id for each in mine.acquire(order())}
    assert len(sky.read()["launched"]) == 2


def test_renewal_sets_autodown_of_what_is_up(sky: Sky) -> None:
    mine = sky.provider()
    ids = [each.id for each in mine.acquire(order(count=1))]
    mine.renew(ids, time.time() + 3600)
    assert [row["minutes"] for row in sky.read()["clusters"].values()] == [30]
    sky.come_up()
    mine.renew(ids, time.time() + 3600)
    assert [(row["minutes"], row["unconditional"]) for row in sky.read()["clusters"].values()] == [(60, True)]


def test_clusters_of_others_are_left_alone(sky: Sky) -> None:
    mine, other = sky.provider(), sky.provider("0bbb")
    mine.acquire(order())
    other.acquire(order("0bbb-1", 1))
    sky.change(clusters=sky.read()["clusters"] | {"own": {"name": "own", "launched_at": None, "status": "UP"}})
    assert {each.token for each in mine.listing()} == {"0aaa-1"}
    assert {each.token for each in other.listing()} == {"0bbb-1"}


def test_stopped_cluster_was_interrupted(sky: Sky) -> None:
    mine = sky.provider()
    mine.acquire(order(count=1))
    sky.come_up("STOPPED")
    assert [each.end for each in mine.listing()] == ["interrupted"]


def test_release_goes_on_after_what_is_gone_and_what_fails(sky: Sky) -> None:
    mine = sky.provider()
    granted = [each.id for each in mine.acquire(order(count=3))]
    sky.change(clusters={name: row for name, row in sky.read()["clusters"].items() if name != granted[0]})
    sky.change(fails={"down": ["ConnectionError"]})
    with pytest.raises(ProviderError, match="ConnectionError"):
        mine.release(granted[1:] + granted[:1])
    assert [*sky.read()["clusters"]] == [granted[1]]
    mine.release(granted)
    assert sky.read()["clusters"] == {}


def test_release_of_a_queued_launch_cancels_it(sky: Sky) -> None:
    sky.change(is_queueing=True, fails={"api_cancel": ["ConnectionError"]})
    mine = sky.provider()
    granted = [each.id for each in mine.acquire(order(count=1))]
    with pytest.raises(ProviderError, match="ConnectionError"):
        mine.release(granted)
    mine.release(granted)
    assert sky.read()["queue"] == {}


@pytest.mark.parametrize(("error", "has_no_effect"), [("ValueError", True), ("ConnectionError", False)])
def test_failed_launch(sky: Sky, error: str, has_no_effect: bool) -> None:
    sky.change(fails={"launch": [error]})
    with pytest.raises(ProviderError) as caught:
        sky.provider().acquire(order())
    assert caught.value.has_no_effect == has_no_effect
    assert "\n" not in str(caught.value)


def test_launch_that_fails_in_the_middle_grants_the_first(sky: Sky) -> None:
    mine = sky.provider()
    first = mine.acquire(order(count=1))
    sky.change(fails={"launch": ["ConnectionError"]})
    assert [each.id for each in mine.acquire(order(count=2))] == [each.id for each in first]
