"""Balance of a training step and a network: figures by hand, hubs that gain and that do not, money."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from plink.errors import NoAnswer
from plink.features.advise.balance import Balance, balance
from plink.features.advise.request import BalanceRequest
from plink.features.cost.request import CostRequest
from plink.features.cost.run import cost
from plink.model.network import network_from_json, read_network
from solvers.balance_money import NetworkParts
from tests.cli.test_hubs import network

SIZE = 25e6


def of_step(step_s: float, folder: Path, hub_gbps: float = 0.9, hubs: int = 1, **request: Any) -> Balance:
    return balance(network(hub_gbps, folder, hubs), BalanceRequest(SIZE, step_s, **request))


def test_what_a_step_hides_by_hand(tmp_path: Path) -> None:
    """100 Mbit/s: 25 MB through a hub take 2 s and a 217th of it to fill and drain, 2 * 7/8 of that a ring."""
    result = of_step(2.5, tmp_path, overlap=0.9)
    hub, flat, central = (result.of(algo) for algo in ("phub", "flat", "ps"))
    assert hub is not None
    assert flat is not None
    assert central is not None
    assert result.forms[0] == hub
    assert (hub.name, hub.exposed_s, hub.workers) == ("phub on fat-0", 0, 8)
    assert hub.link.bytes == pytest.approx(SIZE)
    assert (hub.exchange_s, hub.need_gbps) == pytest.approx((2.0092, 2.0092 / 2.25 * 0.1), rel=1e-3)
    assert flat.link.bytes == pytest.approx(SIZE * 7 / 4)
    assert flat.exposed_s == pytest.approx(3.5 - 2.25, rel=1e-3)
    assert hub.work / flat.work == pytest.approx((2.5 + 1.25) / 2.5, rel=1e-3)
    assert central.link.bytes == pytest.approx(SIZE * 7)
    assert result.hub_gbps == pytest.approx(8 * SIZE * 8 / 2.25 / 1e9)


def test_a_narrow_hub_does_not_gain(tmp_path: Path) -> None:
    result = of_step(2.5, tmp_path, hub_gbps=0.1)
    hub = result.of("phub")
    assert hub is not None
    assert result.without_hubs is not None
    assert result.forms[0] == result.without_hubs
    assert hub.work < 0.3 * result.without_hubs.work


def test_as_many_hubs_as_hide_it(tmp_path: Path) -> None:
    """Eight workers of 100 Mbit/s want 800: of hubs of 300 three, and two to hide it in 4 s."""
    numbers = {step: of_step(step, tmp_path, 0.3, 4).of("phub") for step in (1.0, 4.0)}
    assert {step: len(form.servers) for step, form in numbers.items() if form} == {1.0: 3, 4.0: 2}


@pytest.mark.parametrize(("step_s", "reached"), [(0.0004, {"flat", "phub", "ps", "halving-doubling"}), (8e-5, set())])
def test_what_links_need_counts_round_trips(step_s: float, reached: set[str], tmp_path: Path) -> None:
    """With links so much faster an exchange takes as long as the step, by its own price; else no rate is enough."""
    document = network(0.9, tmp_path).to_json()
    request = BalanceRequest(1e5, step_s)
    forms = {form.algo: form for form in balance(network_from_json(document, "n"), request).forms}
    assert {algo for algo, form in forms.items() if math.isfinite(form.need_gbps)} == reached
    for algo in reached:
        factor = forms[algo].need_gbps / forms[algo].link.gbps
        faster = json.loads(json.dumps(document))
        for each in (*faster["hosts"][8:], *faster["host_flows"]):
            each["gbps"] *= factor
        again = balance(network_from_json(faster, "n"), request).of(algo)
        assert again is not None
        assert again.exchange_s == pytest.approx(step_s, rel=1e-3)


@pytest.mark.parametrize("second_gbps", [0.9, 0.2])
@pytest.mark.parametrize(("uplink_gbps", "flat_s", "by_rack_s"), [(0.05, 16.0, 4.0), (0.2, 4.0, 2.0), (0.8, 2.0, 2.0)])
def test_times_by_rack_are_of_hubs_that_are_alike(
    uplink_gbps: float, flat_s: float, by_rack_s: float, second_gbps: float, tmp_path: Path
) -> None:
    """Two racks of four workers and a hub: the uplink carries half of four vectors and of the sums for four each way,
    rack by rack half a vector there and one back; a worker takes 2 s. Hubs of both racks cost the same."""
    document = network(0.9, tmp_path, 2).to_json()
    document["hosts"][9]["gbps"] = second_gbps
    names = [host["name"] for host in document["hosts"]]
    rates = {"out_gbps": uplink_gbps, "in_gbps": uplink_gbps}
    document["shared_links"] = [{"groups": [{"members": names[k::2], **rates} for k in (0, 1)]}]
    measured = network_from_json(document, "racks")
    result = balance(measured, BalanceRequest(SIZE, 1.0))
    if second_gbps == 0.9:
        assert result.by_rack is not None
        times = {"phub": result.by_rack.flat_s, "phub-2l": result.by_rack.streamed_s}
        assert times == pytest.approx({"phub": flat_s, "phub-2l": by_rack_s})
        priced = {algo: cost(measured, request=CostRequest(algo, SIZE, random=0)).cost_us / 1e6 for algo in times}
        assert priced == pytest.approx(times, rel=0.15)
    else:
        assert result.by_rack is None


def test_nothing_overlaps(tmp_path: Path) -> None:
    result = of_step(2.5, tmp_path, overlap=0.0)
    assert all(form.exposed_s == form.exchange_s for form in result.forms)
    assert {entry["need_gbps"] for entry in result.stated().to_json()["balance"]["forms"]} == {None}


def test_a_wide_host_that_takes_ranks_may_become_a_hub(tmp_path: Path) -> None:
    """Two hosts have 1 Gbit/s with each other; as hubs they take no ranks, so they must gain more than that."""
    document = network(0.9, tmp_path, 2).to_json()
    document["hosts"] = [{"name": host["name"]} for host in document["hosts"]]
    wide = {8, 9}
    document["bandwidth_gbps"] = [
        [None if i == j else 1.0 if {i, j} == wide else 0.1 for j in range(10)] for i in range(10)
    ]
    measured = network_from_json(document, "wide.json")
    slow, fast = (balance(measured, BalanceRequest(SIZE, step_s)) for step_s in (0.1, 2.5))
    assert (slow.candidates, slow.hubs_stated) == (("fat-0", "fat-1"), False)
    # A rank of a wide host that adds up for all, in slices, is as fast as a hub, and works, too.
    hub, flat = slow.of("phub"), slow.of("flat")
    assert hub is not None
    assert flat is not None
    assert (hub.workers, hub.servers) == (9, ("fat-0",))
    assert slow.hub_gbps == pytest.approx(9 * SIZE * 8e-9 / 0.1)
    assert hub.exchange_s < 0.6 * flat.exchange_s
    assert (slow.forms[0].algo, slow.forms[0].workers) == ("ps", 10)
    assert fast.without_hubs is not None
    assert fast.of("phub") is not None


def test_rates_have_to_be_measured(tmp_path: Path) -> None:
    document = json.loads(json.dumps(network(0.9, tmp_path).to_json()))
    del document["host_flows"]
    with pytest.raises(NoAnswer, match="plink probe") as raised:
        balance(network_from_json(document, "bare.json"), BalanceRequest(SIZE, 1.0))
    assert raised.value.exit_code == 4


def test_money_by_the_hour_and_by_parts(tmp_path: Path) -> None:
    """A ring does without the hub's price; what is missing leaves no money."""
    network(0.9, tmp_path)
    path = tmp_path / ".plink/network.json"
    document = json.loads(path.read_text())
    assert "money" not in of_step(2.5, tmp_path).stated().to_json()
    for host in document["hosts"]:
        host["price"] = 0.5
    path.write_text(json.dumps(document))
    result = balance(read_network(path), BalanceRequest(SIZE, 2.5))
    hub, flat = result.of("phub"), result.of("flat")
    assert hub is not None
    assert flat is not None
    assert result.money(hub) == pytest.approx((4.5, 3600 * 8 / 2.5 / 4.5))
    assert result.money(flat) == pytest.approx((4.0, 3600 * 8 / 3.5 / 4.0), rel=1e-3)
    parts = NetworkParts(4117, 2796, 260, 164.66, 31.25, 8407, 162.5, 20)
    bought = balance(read_network(path), BalanceRequest(SIZE, 2.5, parts=parts)).stated().to_json()
    assert bought["money"] == "bought"
    first = bought["balance"]["forms"][0]
    assert (first["form"], first["cost"]) == ("phub on fat-0", pytest.approx(parts.total(8, 1)))
    assert first["work_per_money"] == pytest.approx(1000 * 3600 * 8 / 2.5 / parts.total(8, 1))
