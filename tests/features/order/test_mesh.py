"""Orders for meshes: what is asked, what is refused, what an order says of its traffic."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.clouds import alike, network_of_cloud, three_tier
from plink.errors import InputError, NoAnswer, UsageError
from plink.features.order.request import MeshRequest, OrderRequest
from plink.features.order.run import reorder
from plink.model.hosts import Hosts
from plink.model.mesh import make_mesh, read_mesh
from plink.model.network import Network
from plink.model.order import order_from_json

TRAFFIC = ["pp=p2p:64MB*32", "dp=all-reduce:300MB"]
MOVES = 4000


def cloud(hosts: int, slots: int = 1, seed: int = 3, shared_links: bool = True) -> Network:
    """Return racks under pods, with so many slots a host."""
    made = network_of_cloud(three_tier(hosts, seed), seed, shared_links)
    return replace(made, hosts=Hosts(tuple(replace(host, slots=slots) for host in made.hosts.members)))


@pytest.fixture(scope="module")
def network() -> Network:
    """Return 16 hosts of one slot."""
    return cloud(16)


def test_order_says_what_each_traffic_costs(network: Network) -> None:
    mesh = make_mesh("pp=4,dp=4", TRAFFIC)
    order = reorder(network, OrderRequest(mesh=mesh, max_moves=MOVES, force=True))
    assert sorted(order.hosts) == sorted(network.hosts.names)
    rows = order.cost_by_traffic
    assert rows
    assert [row.traffic for row in rows] == ["pp p2p", "dp all-reduce"]
    assert sum(row.cost for row in rows) == pytest.approx(order.cost, rel=1e-6)
    assert sum(row.baseline for row in rows) == pytest.approx(order.baseline["given"], rel=1e-6)
    assert sum(row.sorted_by_group for row in rows) == pytest.approx(order.baseline["sorted_by_group"], rel=1e-6)
    assert order.mesh == mesh.file()
    assert order.cost is not None
    assert order.cost <= min(filter(None, order.baseline.values()))
    assert order_from_json(order.to_json(), "order") == order


@pytest.mark.parametrize("model", ["alpha-beta", "contention"])
def test_costs_add_up_where_a_host_was_not_measured(network: Network, model: str) -> None:
    """What the search takes unknown pairs for is stated nowhere."""
    latency = network.latency_us.copy()
    latency[5], latency[:, 5] = np.nan, np.nan
    mesh = make_mesh("pp=4,dp=4", TRAFFIC)
    unmeasured = replace(network, latency_us=latency)
    order = reorder(unmeasured, OrderRequest(mesh=mesh, model=model, max_moves=MOVES, force=True))
    rows = order.cost_by_traffic
    assert rows
    assert order.baseline
    assert sum(row.cost for row in rows) == pytest.approx(order.cost, rel=1e-6)
    assert sum(row.baseline for row in rows) == pytest.approx(order.baseline["given"], rel=1e-6)
    measured = reorder(network, OrderRequest(mesh=mesh, model=model, max_moves=MOVES, force=True))
    assert measured.baseline
    for name in ("given", "sorted_by_group"):
        assert order.baseline[name] == pytest.approx(measured.baseline[name], rel=0.05), name


def test_slots_hold_the_inner_axis(network: Network) -> None:
    """Four ranks a host: tensor groups are inside, the others send the bytes of four side by side."""
    several = reorder(
        cloud(16, slots=4),
        OrderRequest(mesh=make_mesh("pp=4,dp=4,tp=4", [*TRAFFIC, "tp=all-reduce:1GB*99"]), max_moves=MOVES, force=True),
    )
    single = reorder(
        network,
        OrderRequest(
            mesh=make_mesh("pp=4,dp=4", ["pp=p2p:256MB*32", "dp=all-reduce:1200MB"]), max_moves=MOVES, force=True
        ),
    )
    assert several.hosts == single.hosts
    assert several.cost == pytest.approx(single.cost)
    assert several.cost_by_traffic
    assert [row.traffic for row in several.cost_by_traffic] == ["pp p2p", "dp all-reduce"]


def test_heavy_pipelines_are_not_sorted_by_rack() -> None:
    """Where boundaries between stages are heavy, hosts sorted by rack put all of them across uplinks."""
    order = reorder(cloud(32), OrderRequest(mesh=make_mesh("pp=4,dp=8", TRAFFIC), max_moves=20_000, force=True))
    sorted_cost = order.baseline["sorted_by_group"]
    assert order.cost is not None
    assert sorted_cost is not None
    assert order.cost < 0.6 * sorted_cost


def test_pins_are_ranks() -> None:
    network, mesh = cloud(8, slots=2), make_mesh("dp=8,tp=2", ["dp=1GB"])
    name = network.hosts.names[5]
    order = reorder(network, OrderRequest(mesh=mesh, pins={name: 6}, max_moves=100, force=True))
    assert order.hosts[3] == name
    assert order.pins == {name: 6}
    with pytest.raises(UsageError, match="multiple"):
        reorder(network, OrderRequest(mesh=mesh, pins={name: 5}, max_moves=100))


def test_ranks_are_those_of_the_hosts(network: Network) -> None:
    with pytest.raises(UsageError, match=r"= 32 ranks.*16 slots"):
        reorder(network, OrderRequest(mesh=make_mesh("pp=4,dp=8", TRAFFIC)))


def test_unequal_slots_have_no_answer(network: Network) -> None:
    first, *others = network.hosts.members
    unequal = replace(network, hosts=Hosts((replace(first, slots=2), *others)))
    with pytest.raises(NoAnswer, match="equal slots"):
        reorder(unequal, OrderRequest(mesh=make_mesh("dp=17", ["dp=1GB"])))


def test_without_rates_bytes_are_not_weighed() -> None:
    """Hosts in one group without any rate: round trips say nothing of bytes."""
    network = alike(4, 0).network(np.random.default_rng(0))
    mesh = make_mesh("pp=2,dp=2", TRAFFIC)
    with pytest.raises(NoAnswer, match="latency"):
        reorder(network, OrderRequest(mesh=mesh, max_moves=100))
    assert reorder(network, OrderRequest(mesh=mesh, model="latency", max_moves=100)).model == "latency"


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"algo": "tree"}, "--algo"),
        ({"size_bytes": 1e6}, "--size"),
        ({"objective": "sum"}, "--objective"),
        ({"options": {"base": 4}}, "--set"),
    ],
)
def test_options_of_one_collective_are_refused(options: dict[str, object], problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        OrderRequest(mesh=make_mesh("dp=4", ["dp=1GB"]), **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "request_of",
    [
        lambda folder: MeshRequest(traffic=("dp=1GB",)),
        lambda folder: MeshRequest(axes="dp=4", mesh_file=folder / "job.toml"),
        lambda folder: MeshRequest(mesh_file=folder / "job.toml", traffic=("dp=1GB",)),
        lambda folder: MeshRequest(axes="dp=4"),
        lambda folder: MeshRequest(axes="dp=4", parameters=8e9),
        lambda folder: MeshRequest(axes="dp=4,tp=2", traffic=("dp=1GB",), megatron_order="dp"),
        lambda folder: MeshRequest(axes="dp=4,xyz=2", parameters=8e9, layers=2, hidden=8, tokens=8),
    ],
)
def test_options_that_do_not_fit_are_refused(request_of: Callable[[Path], MeshRequest], tmp_path: Path) -> None:
    (tmp_path / "job.toml").write_text('schema = "plink.mesh/1"\nmesh = "dp=4"\ntraffic = ["dp=1GB"]\n')
    with pytest.raises(UsageError):
        request_of(tmp_path).mesh()


@pytest.mark.parametrize("text", ["mesh = [", 'schema = "plink.mesh/1"\nmesh = "dp=4"\ntraffic = ["pp=1GB"]\n', ""])
def test_a_wrong_file_is_named(text: str, tmp_path: Path) -> None:
    (tmp_path / "job.toml").write_text(text)
    with pytest.raises(InputError, match=r"job\.toml"):
        read_mesh(tmp_path / "job.toml")


def test_a_model_says_what_its_groups_send() -> None:
    """One pipeline stage of two has half of the parameters; a layer's tensor groups reduce four times a microbatch."""
    request = MeshRequest(
        axes="pp=2,dp=4,tp=8", parameters=8e9, layers=32, hidden=4096, tokens=8192, microbatches=16, dtype_bytes=2
    )
    mesh = request.mesh()
    assert mesh is not None
    by_axis = {each.axes: each for each in mesh.traffic}
    activations = 2 * 8192 * 4096
    assert by_axis[("dp",)].sizes == (2 * 8e9 / 16,)
    assert by_axis[("pp",)].sizes == (activations,)
    assert by_axis[("pp",)].times == 16
    assert by_axis[("tp",)].sizes == (activations,)
    assert by_axis[("tp",)].times == 4 * 16 * 16


@pytest.mark.parametrize("seed", [3, 5, 7])
def test_found_order_beats_random_ones_without_measured_links(seed: int) -> None:
    """Capacities are assumed, rounds hardly tell orders apart, and the stated time is simulated."""
    network = cloud(8, seed=seed, shared_links=False)
    mesh = make_mesh("pp=2,dp=4", ["pp=p2p:8MB*4", "dp=100MB"])
    order = reorder(network, OrderRequest(mesh=mesh, model="contention", max_moves=MOVES, force=True))
    others = [order.baseline["random_median"], order.baseline["sorted_by_group"], order.baseline["given"]]
    assert order.cost is not None
    assert order.cost <= min(cost for cost in others if cost is not None) * (1 + 1e-9)


def test_traffic_of_equal_axes_has_labels_of_its_own(network: Network) -> None:
    mesh = make_mesh("pp=4,dp=4", ["dp=100MB", "dp=5MB"])
    rows = reorder(network, OrderRequest(mesh=mesh, max_moves=100, force=True)).cost_by_traffic
    assert rows
    assert len({row.traffic for row in rows}) == 2
    assert rows[0].cost > 10 * rows[1].cost


def test_one_host_keeps_the_mesh() -> None:
    network, mesh = cloud(1, slots=4), make_mesh("dp=4", ["dp=1MB"])
    assert reorder(network, OrderRequest(mesh=mesh)).mesh == mesh.file()
    with pytest.raises(UsageError, match="= 3 ranks"):
        reorder(network, OrderRequest(mesh=make_mesh("dp=3", ["dp=1MB"])))
