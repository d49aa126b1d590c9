"""All commands state the same time for the same order, network and size."""

from dataclasses import replace

import numpy as np
import pytest
from msgspec import structs

from benchmarks.clouds import network_of_cloud, three_tier
from plink.features.advise.request import AdviseRequest
from plink.features.advise.run import advise
from plink.features.cost.request import CostRequest
from plink.features.cost.run import cost
from plink.features.order.hubs import HUB_ALGORITHMS
from plink.features.order.request import OrderRequest
from plink.features.order.run import reorder
from plink.features.plan.request import PlanRequest
from plink.features.plan.run import plan
from plink.features.report.routes import route_of, work_of
from plink.model.document import UNSET
from plink.model.hosts import Host, Hosts
from plink.model.network import Network
from plink.model.network_file import HostCostsEntry, LibraryCostsEntry, SizeCosts
from plink.model.order import RankOrder
from solvers.costs.by_name import NAMES
from solvers.schedules.catalogue import ALGORITHMS, HUBS
from tests.networks import details_from

SIZE = 16e6
_QUICK = ("halving-doubling", "2lha", "nccl")


def calibrated(network: Network, overhead_us: float, byte_ns: float = 0.0) -> Network:
    """The network with fitted costs of its hosts."""
    costs = HostCostsEntry(
        overhead_us=overhead_us, overhead_interval_us=None, byte_ns=byte_ns, byte_interval_ns=None,
        algorithms=["ring"], timings=4, error=0.01, measured_at="2026-11-29T12:00:00Z",
    )  # fmt: skip
    return replace(network, details=structs.replace(network.details, host_costs=costs))


@pytest.fixture(scope="module", params=["measured", "assumed", "one slow", "pairs", "calibrated"])
def network(request: pytest.FixtureRequest) -> Network:
    """Return racks under pods, whose shared links were measured or not; hosts' own rates were."""
    made = network_of_cloud(three_tier(8, 3), 3, shared_links=True)
    if request.param == "measured":
        return made
    if request.param == "calibrated":
        return calibrated(made, 400.0, byte_ns=0.1)
    if request.param == "one slow":  # so that 2LHA's masters are not by sizes
        first, *others = made.hosts.members
        return replace(made, hosts=Hosts((replace(first, gbps=2.0), *others)))
    if request.param == "pairs":  # whose rates do not say what a host's pairs share
        rates = np.full((8, 8), 10.0)
        rates[0] = rates[:, 0] = 2.0
        halves = details_from({"halves_us": made.details.halves_us})
        return replace(made, bandwidth_gbps=rates, details=halves)
    return replace(made, details=structs.replace(made.details, shared_links=UNSET))


@pytest.mark.parametrize(
    "algo",
    [
        pytest.param(name, marks=() if name in _QUICK else pytest.mark.extended)
        for name in NAMES
        if name not in ("lightgbm", HUBS, *HUB_ALGORITHMS)
    ],
)
def test_every_command_states_the_same_time(network: Network, algo: str) -> None:
    """``reorder``, ``cost``, ``plan``, ``advise`` and ``report``; ``check`` has its test beside its options."""
    order = reorder(network, OrderRequest(algo, SIZE, max_moves=300, force=True))
    request = CostRequest(algo, SIZE, random=0)
    model = order.model
    stated, at_first = {"cost": cost(network, order, request).cost_us}, {"cost": cost(network, None, request).cost_us}
    stated["reorder"], at_first["reorder"] = order.cost, order.baseline["given"]
    assert cost(network, order, request).model == model
    if algo in ALGORITHMS:
        planned = plan(network, PlanRequest(algo, SIZE, order=order))
        stated["plan"] = planned.cost_us
        assert planned.model == model
    if algo in ALGORITHMS and model != "latency":
        lines = advise(network, AdviseRequest(SIZE, SIZE, algorithms=(algo,))).lines
        at_first["advise"] = next(line.at(SIZE) for line in lines if line.family == "given")
    bottleneck = route_of(network, order, work_of(network, order)).bottleneck
    if bottleneck is not None:
        stated["report"] = bottleneck.cost_us
    for costs in (stated, at_first):
        assert costs == pytest.approx(dict.fromkeys(costs, costs["cost"]), rel=1e-6, abs=2e-3)


@pytest.mark.parametrize("overhead_us", [0.0, 100.0, 2000.0])
def test_large_collectives_cost_the_same_time_everywhere(overhead_us: float) -> None:
    """Closed forms stand for simulations that would take too long, in slices as these."""
    made = calibrated(network_of_cloud(three_tier(160, 3), 3, shared_links=True), overhead_us)
    order = reorder(made, OrderRequest("flat", SIZE, max_moves=300, force=True))
    stated = {
        "cost": cost(made, order, CostRequest("flat", SIZE, random=0)).cost_us,
        "plan": plan(made, PlanRequest("flat", SIZE, order=order)).cost_us,
        "reorder": order.cost,
    }
    assert stated == pytest.approx(dict.fromkeys(stated, stated["cost"]), rel=1e-6, abs=2e-3)
    assert order.lower_bound is not None
    assert order.lower_bound <= order.cost + 2e-3


@pytest.mark.parametrize("algo", ["halving-doubling", "ring"])
def test_proofs_state_the_same_time(network: Network, algo: str) -> None:
    order = reorder(network, OrderRequest(algo, SIZE, max_moves=300, force=True, prove=True))
    assert order.cost == pytest.approx(cost(network, order, CostRequest(algo, SIZE)).cost_us, abs=2e-3)
    assert order.lower_bound is not None
    assert order.lower_bound <= order.cost + 2e-3


def test_round_trips_alone_state_the_same_time() -> None:
    """Costs and bounds are by all samples, though one half of them finds the order that the other validates."""
    made = network_of_cloud(three_tier(8, 3), 3, shared_links=True)
    alone = replace(made, details=details_from({"halves_us": made.details.halves_us}))
    order = reorder(alone, OrderRequest("ring", SIZE, max_moves=300, force=True))
    assert (order.model, order.validation is not UNSET) == ("latency", True)
    assert order.cost == pytest.approx(cost(alone, order, CostRequest("ring", SIZE)).cost_us, abs=2e-3)
    assert order.proven
    assert order.lower_bound == pytest.approx(order.cost, abs=2e-3)


@pytest.mark.parametrize("racks", [1, 2])
@pytest.mark.parametrize("model", ["alpha-beta", "contention"])
def test_groups_of_two_levels_are_the_same_without_shared_links(racks: int, model: str) -> None:
    """Those that round trips show; where they show none, √N groups of hosts that follow each other."""
    rack = np.arange(9) % racks
    latency_us = np.where(rack[:, None] == rack, 20.0, 100.0)
    np.fill_diagonal(latency_us, np.nan)
    hosts = Hosts(tuple(Host(f"h{k}", f"h{k}") for k in range(9)))
    network = Network(hosts, latency_us, bandwidth_gbps=np.full((9, 9), 10.0))
    order = reorder(network, OrderRequest("2lha", SIZE, model=model, max_moves=300, force=True))
    for first in (None, order):
        groups = plan(network, PlanRequest("2lha", SIZE, model=model, order=first)).groups
        assert groups is not None
        assert sorted(map(len, groups)) == ([3, 3, 3] if racks == 1 else [4, 5])
    at_first = cost(network, None, CostRequest("2lha", SIZE, model=model)).cost_us
    planned = plan(network, PlanRequest("2lha", SIZE, model=model)).cost_us
    lines = advise(network, AdviseRequest(SIZE, SIZE, model=model, algorithms=("2lha",))).lines
    advised = next(line.at(SIZE) for line in lines if line.family == "given")
    assert at_first == pytest.approx(order.baseline["given"], abs=2e-3) == pytest.approx(advised, abs=2e-3)
    assert planned == pytest.approx(at_first, rel=1e-6 if racks == 1 else 0.2)  # its hosts are sorted by group


def test_plans_by_other_groups_say_what_the_network_s_own_take(caplog: pytest.LogCaptureFixture) -> None:
    """Two racks of four, in three balanced groups as `plink cluster` makes them, which part a rack."""
    made = network_of_cloud(three_tier(8, 3, rack_sizes="powers"), 3, shared_links=True)
    racks = np.arange(8) % 2
    latency_us = np.where(racks[:, None] == racks, 20.0, 100.0)
    np.fill_diagonal(latency_us, np.nan)
    links = [
        {"members": [f"host{k}" for k in range(8) if k % 2 == rack]}
        | {f"{way}_{key}": value for way in ("out", "in")
           for key, value in (("gbps", 10.0), ("one_flow_gbps", 10.0), ("limited_by", "link"))}
        for rack in range(2)
    ]  # fmt: skip
    network = replace(
        made, latency_us=latency_us, bandwidth_gbps=np.full((8, 8), 10.0),
        details=details_from({"shared_links": [{"groups": links}]}),
    )  # fmt: skip
    own = plan(network, PlanRequest("2lha", SIZE))
    assert "network_groups" not in own.baseline
    three = plan(network, PlanRequest("2lha", SIZE, groups=3))
    assert three.baseline["network_groups"] == pytest.approx(own.cost_us, rel=1e-3)
    assert own.cost_us < three.cost_us
    assert any("own links" in line.getMessage() for line in caplog.records)


def test_busiest_link_works_as_long_for_a_report_as_for_a_cost(network: Network) -> None:
    """A report counts bytes, a cost simulates; both say the share of the time."""
    for algo in ("ring", "nccl-tree", "2lha", "halving-doubling"):
        order = reorder(network, OrderRequest(algo, SIZE, max_moves=300, force=True))
        bottleneck = route_of(network, order, work_of(network, order)).bottleneck
        if order.model != "contention" or bottleneck is None or bottleneck.kind == "latency":
            continue
        (part,) = cost(network, order, CostRequest(algo, SIZE, model="simulated", random=0)).parts
        assert bottleneck.share == pytest.approx(part.busiest_share, abs=0.02)


def _library_costs() -> list[LibraryCostsEntry]:
    costs = [SizeCosts(from_bytes=0, fixed_us=5000.0, byte_ns=0.0)]
    return [
        LibraryCostsEntry(algo=name, pieces=costs, timings=4, error=0.01, measured_at="2026-11-29T12:00:00Z")
        for name in ("nccl-ring", "nccl-tree")
    ]


def test_other_rates_are_another_measurement() -> None:
    made = network_of_cloud(three_tier(8, 3), 3, shared_links=True)
    alone = replace(made, details=structs.replace(made.details, shared_links=UNSET))
    assert len({made.fingerprint(), alone.fingerprint()}) == 2
    fitted = structs.replace(made.details, library_costs=_library_costs())
    assert made.fingerprint() == replace(made, details=fitted).fingerprint()  # the same measurement


def test_parts_of_a_cost_add_up_with_what_the_library_takes() -> None:
    made = network_of_cloud(three_tier(8, 3), 3, shared_links=True)
    slow = replace(made, details=structs.replace(made.details, library_costs=_library_costs()))
    for model in ("contention", "simulated", "alpha-beta"):
        stated = cost(slow, None, CostRequest("nccl", 4e6, model=model, random=0))
        assert len(stated.parts) == 2
        assert sum(part.weight * part.cost_us for part in stated.parts) == pytest.approx(stated.cost_us, rel=1e-3)


def test_least_time_is_below_what_nccl_takes() -> None:
    """Advice's least time is the least of the algorithms asked for: NCCL's ranks lack the hosts' own costs."""
    made = network_of_cloud(three_tier(8, 3), 3, shared_links=True)
    fitted = calibrated(made, 5.0, byte_ns=2.0)
    requests = [AdviseRequest(SIZE, SIZE, algorithms=algos) for algos in (("ring",), ("ring", "nccl-ring"))]
    advised = [advise(fitted, request) for request in requests]
    least = [advice.least.us_per_byte * SIZE for advice in advised if advice.least is not None]
    assert least[1] < 0.8 * least[0]
    for advice, stated in zip(advised, least, strict=True):
        assert stated <= min(line.at(SIZE) for line in advice.lines)


def test_a_missing_pair_leaves_rings_without_it() -> None:
    """Advice has a ring past the pair; what needs the pair is left out, and the reason names both hosts."""
    made = network_of_cloud(three_tier(8, 3), 3, shared_links=True)
    latency_us = made.latency_us.copy()
    latency_us[0, 1] = latency_us[1, 0] = np.nan
    gap = replace(made, latency_us=latency_us, details=details_from({"shared_links": made.details.shared_links}))
    advice = advise(gap, AdviseRequest(SIZE, SIZE, algorithms=("ring", "flat")))
    assert {line.algo for line in advice.lines} == {"ring"}
    assert "host0" in advice.left_out["flat"]
    assert "host1" in advice.left_out["flat"]


def test_median_of_random_orders_is_the_same(network: Network) -> None:
    order = reorder(network, OrderRequest("halving-doubling", SIZE, max_moves=300))
    drawn = cost(network, None, CostRequest("halving-doubling", SIZE, random=201)).random
    assert drawn is not None
    assert order.baseline["random_median"] == pytest.approx(drawn.median_us, abs=1e-3)


def test_masters_go_by_links_where_that_gains() -> None:
    """The host with the slow link masters nothing by default; its masters by sizes take longer. A host with ranks in
    two groups has no link of a group: by sizes."""
    made = network_of_cloud(three_tier(8, 3), 3, shared_links=True)
    first, *others = made.hosts.members
    slow = replace(made, hosts=Hosts((replace(first, gbps=2.0), *others)))
    even, uneven = (plan(network, PlanRequest("2lha", SIZE)) for network in (made, slow))
    assert even.masters is not None
    assert uneven.masters is not None
    assert (even.masters.weights, uneven.masters.weights) == ("sizes", "least-time")
    assert uneven.order.hosts.index(first.name) not in uneven.masters.global_masters
    assert uneven.cost_us < uneven.baseline["masters_by_sizes"]
    names = [host.name for host in slow.hosts]
    twice = replace(slow, hosts=Hosts(tuple(replace(host, slots=2) for host in slow.hosts)))
    parted = RankOrder(algo="2lha", hosts=tuple(names), groups=tuple(tuple(range(k, 16, 2)) for k in range(2)))
    by_sizes = plan(twice, PlanRequest("2lha", SIZE, order=parted))
    assert by_sizes.masters is not None
    assert by_sizes.masters.weights == "sizes"
