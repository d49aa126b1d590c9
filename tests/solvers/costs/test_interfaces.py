"""Costs by interface: of hosts with one each as without, of hosts with several by what each of them carries."""

import itertools
import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from benchmarks.bcube import bcube_interfaces
from plink.model.hosts import Host, Hosts
from plink.model.network import Network
from plink.model.network_file import InterfacesEntry
from solvers.costs.by_name import cost_function_for, pattern_for
from solvers.costs.closed_forms import closed_form
from solvers.costs.evaluator import MODELS, evaluate, with_host_costs
from solvers.costs.fabric import BYTES_PER_US, Fabric, fabric_of
from solvers.costs.interfaces import InterfacePaths, interface_paths
from solvers.costs.loads import bottleneck_of
from solvers.ordering.annealing import Annealer
from solvers.ordering.bounds import pattern_bound
from solvers.ordering.constraints import FeasibleOrders, PlacementConstraints, moves_of
from solvers.ordering.objectives import CoolingSchedule
from solvers.ordering.smt_windows import Window, longest_loads
from solvers.schedules.catalogue import ALGORITHMS, Options, schedule_for
from solvers.simulation.collective import PreparedCollective
from solvers.simulation.cost import cost_by_model
from tests.networks import details_from
from tests.solvers.costs.test_cost_models import fabric
from tests.solvers.ordering.test_interfaces import made

SIZE = 1e6
GBPS = 8.0  # 1,000 bytes a microsecond


def bcube(base: int, levels: int, **changes: Any) -> Fabric:
    """A BCube of interfaces of 8 Gbit/s each, whose hosts are 10 us apart for each hop."""
    n = base**levels
    entry = bcube_interfaces(base, levels) | {key: [[GBPS] * levels] * n for key in ("out_gbps", "in_gbps")} | changes
    apart = np.array([[bin(0).count("1") + sum(a // base**k % base != b // base**k % base for k in range(levels))
                       for b in range(n)] for a in range(n)])  # fmt: skip
    hosts = Hosts(tuple(Host(f"h{k}", f"10.0.0.{k}") for k in range(n)))
    return fabric_of(Network(hosts, 10.0 * apart, None, details_from({"interfaces": entry})))


def one_each(result: Fabric) -> Fabric:
    """The same hosts, with one interface each that is written down."""
    n = len(result.names)
    direct = np.broadcast_to(np.arange(n, dtype=np.int32), (1, n, n))
    into, out = (np.where(np.eye(n, dtype=bool), -1, ends) for ends in (direct, direct.transpose(0, 2, 1)))
    paths = InterfacePaths(result.names, np.arange(n), result.host_out_gbps, result.host_in_gbps, out, into)
    return replace(result, paths=paths)


@pytest.mark.parametrize("algo", ALGORITHMS)
@pytest.mark.parametrize("seed", range(4))
def test_one_interface_each_costs_the_same_to_the_last_bit(algo: str, seed: int) -> None:
    """In every model, by the formulas, the schedule, the simulator, annealing and the bound."""
    n = (4, 8, 16)[seed % 3]
    rng = np.random.default_rng(seed)
    plain = fabric(n, seed, pairs=seed == 3)
    plain = with_host_costs(plain, 3.0, 0.2) if seed == 2 else plain
    several = one_each(plain)
    options = Options(groups=[list(range(n // 2)), list(range(n // 2, n))])
    if algo == "phub-2l":
        options = Options(groups=[list(range(0, n, 2)), list(range(1, n, 2))], servers=2)
    pattern, schedule = pattern_for(algo, n, options), schedule_for(algo, n, options)
    orders = [rng.permutation(n), np.sort(rng.integers(0, n, n))]
    prepared = PreparedCollective.of(schedule)
    for order, model in itertools.product(orders, MODELS):
        expected, actual = (
            (closed_form(pattern, which, SIZE, model)(order), evaluate(schedule, which, order, SIZE, model).cost_us)
            for which in (plain, several)
        )
        if pattern.all_to_all_share:  # summed up in another sequence
            assert actual == pytest.approx(expected, rel=1e-12)
            continue
        assert actual == expected
        if len(set(order.tolist())) == n:
            bounds = [pattern_bound(pattern, which, SIZE, model, order) for which in (plain, several)]
            assert bounds[0] == bounds[1]
    for order in orders:
        times = [prepared.run(of, order, SIZE).makespan_us for of in (plain, several)]
        assert times[0] == times[1]


def seconds_of_vector(share: float) -> float:
    """Microseconds in which one interface sends this share of the vector."""
    return share * SIZE / (GBPS * BYTES_PER_US)


@pytest.mark.parametrize(("base", "levels"), [(2, 2), (3, 2), (4, 2), (2, 3), (8, 2), (4, 3)])
@pytest.mark.parametrize("model", ["contention", "simulated", "by rounds"])
def test_figure_5_of_bml(base: int, levels: int, model: str) -> None:
    """BML takes 2(N-1)/(kN) of the vector's time on one link; PS over the BCube's shortest paths 2(n-1)/n."""
    n, result = base**levels, bcube(base, levels)
    result = replace(result, rtt_us=result.rtt_us * 1e-6)
    order = np.arange(n)
    for algo, share in (("bml", 2 * (n - 1) / (levels * n)), ("flat", 2 * (base - 1) / base)):
        options = Options(base=base)
        cost = (
            cost_function_for(algo, n, options, result, SIZE, "contention")
            if model == "by rounds"
            else cost_by_model(algo, n, options, result, SIZE, model)
        )
        assert cost(order) == pytest.approx(seconds_of_vector(share), rel=0.01)


@pytest.mark.parametrize("model", ["alpha-beta", "contention"])
@pytest.mark.parametrize("algo", ["bml", "halving-doubling", "ring", "flat", "2lha"])
def test_formula_and_schedule_agree_on_several_interfaces(algo: str, model: str) -> None:
    """In orders of one rank a host and of several; annealing keeps the same cost, and no order beats the bound."""
    result = bcube(2, 3, out_gbps=[[1.0 + host, 2.0 + host, None] for host in range(8)])
    options = Options(groups=[list(range(4)), list(range(4, 8))])
    pattern, schedule, rng = pattern_for(algo, 8, options), schedule_for(algo, 8, options), np.random.default_rng(2)
    for order in (rng.permutation(8), rng.integers(0, 8, 8)):
        cost = closed_form(pattern, result, SIZE, model)(order)
        assert cost == pytest.approx(evaluate(schedule, result, order, SIZE, model).cost_us, rel=1e-9)
        if pattern.all_to_all_share:
            continue
        assert len(set(order.tolist())) < 8 or cost >= pattern_bound(pattern, result, SIZE, model, order) * (1 - 1e-9)
        annealer = Annealer(pattern, result, SIZE, model)
        moves = moves_of(FeasibleOrders(order, result.names, PlacementConstraints()).exchange_classes(order), 8)
        best, annealed, _ = annealer.run(order, moves, 3000, CoolingSchedule(1e3, 1.0), 5)
        assert annealed == pytest.approx(closed_form(pattern, result, SIZE, model)(best), rel=1e-9)
        assert annealed <= cost


@pytest.mark.parametrize("model", ["alpha-beta", "contention"])
def test_tables_of_a_window_say_what_interfaces_cost(model: str) -> None:
    """Three ranks are exchanged in all ways: each round's busiest interface never says more than the cost."""
    result = bcube(2, 2)
    result = replace(result, rtt_us=np.zeros((4, 4)))
    pattern, order = pattern_for("bml", 4, Options(base=2)), np.array([2, 0, 3, 1])
    cost = closed_form(pattern, result, SIZE, model)
    window = Window(order, [[0], [1], [3]], 1e5)
    parts = longest_loads(window, pattern, result, SIZE, model)
    for contents in itertools.permutations(range(3)):
        values = [max(load.value(list(contents)) for load in part.loads) for part in parts]
        shown = sum(values) / window.scale
        assert shown <= cost(window.materialise(contents)) * (1 + 1e-6)
        assert shown == pytest.approx(cost(window.materialise(contents)), rel=0.01)


def test_the_busiest_interface_is_named_with_its_host() -> None:
    slow = [[GBPS, GBPS] for _ in range(9)]
    slow[4][1] = 1.0
    result = bcube(3, 2, out_gbps=slow)
    pattern = pattern_for("bml", 9, Options(base=3))
    bottleneck = bottleneck_of([(1.0, pattern)], result, np.arange(9), SIZE, "contention")
    assert bottleneck is not None
    assert bottleneck.kind == "hosts"
    assert bottleneck.resources == ("h4/eth1, out",)
    assert bottleneck.hosts == (4,)


def interfaces_of(entry: dict[str, Any]) -> InterfacesEntry:
    """Return a file's entry of interfaces."""
    entries = details_from({"interfaces": entry}).interfaces
    assert isinstance(entries, InterfacesEntry)
    return entries


def test_paths_of_strange_files() -> None:
    """A circle of relays and an unknown interface do not stop anything; a host without interfaces counts as one."""
    entry = bcube_interfaces(2, 2)
    entry["relays"][0][3], entry["relays"][1][3] = 1, 0
    entry["used"][1][3] = 0
    entry["used"][2][0] = None
    entry["names"] = [*entry["names"][:3], []]
    entry["used"][3] = [None] * 4
    entry["relays"][3] = [None] * 4
    entry["switches"] = [[port for port in switch if port[0] != 3] for switch in entry["switches"]]
    rates = np.full(4, GBPS), np.full(4, GBPS)
    paths = interface_paths(interfaces_of(entry), tuple("abcd"), rates)
    assert paths is not None
    assert paths.names == ("a/eth0", "a/eth1", "b/eth0", "b/eth1", "c/eth0", "c/eth1", "d")
    assert paths.out[:, 0, 3].tolist()[0] == 0
    assert (paths.pair_gbps()[~np.eye(4, dtype=bool)] == GBPS).all()
    single = {"names": [["eth0"]] * 2, "used": [[None, 0], [0, None]], "relays": [[None] * 2] * 2, "switches": []}
    assert interface_paths(interfaces_of(single), tuple("ab"), (rates[0][:2], rates[1][:2])) is None


def test_rates_of_interfaces_are_measured_ones_else_those_of_pairs_else_of_hosts() -> None:
    entry = bcube_interfaces(2, 2) | {"out_gbps": [[3.0, None]] * 4, "in_gbps": [[None, None]] * 4}
    pair = np.full((4, 4), np.nan)
    pair[0, 2], pair[0, 3] = 5.0, 7.0  # by eth1 directly; by a relay
    rates = np.full(4, 1.0), np.full(4, 2.0)
    paths = interface_paths(interfaces_of(entry), tuple("abcd"), rates, pair)
    assert paths is not None
    assert paths.out_gbps.tolist() == [3.0, 5.0, 3.0, 1.0, 3.0, 1.0, 3.0, 1.0]
    assert paths.in_gbps.tolist() == [2.0, 2.0, 2.0, 2.0, 2.0, 5.0, 2.0, 2.0]
    stated = paths.with_host_gbps(np.array([np.nan, 8.0, np.nan, np.nan]))
    assert stated.out_gbps.tolist() == [3.0, 5.0, 6.0, 2.0, 3.0, 1.0, 3.0, 1.0]  # shared as what was measured
    assert stated.in_gbps.tolist() == [2.0, 2.0, 4.0, 4.0, 2.0, 5.0, 2.0, 2.0]


def test_paths_of_a_shuffled_bcube() -> None:
    """Interfaces numbered at random: each hop arrives on the interface that is on the sender's switch."""
    switches = made(3, 2, random.Random(4))
    of = {port: number for number, switch in enumerate(switches) for port in switch}
    used: list[list[int | None]] = [[None] * 9 for _ in range(9)]
    relays: list[list[int | None]] = [[None] * 9 for _ in range(9)]
    for (i, j), (a, b) in itertools.product(itertools.permutations(range(9), 2), itertools.product(range(2), repeat=2)):
        if of[i, a] == of[j, b]:
            used[i][j] = a
    for i, j in itertools.permutations(range(9), 2):
        if used[i][j] is None:
            relays[i][j] = next(k for k in range(9) if k not in (i, j) and used[i][k] is not None and
                                relays[i][k] is None and used[k][j] is not None and relays[k][j] is None)  # fmt: skip
            used[i][j] = used[i][relays[i][j] or 0]
    entry: Any = {"names": [["a", "b"]] * 9, "used": used, "relays": relays, "switches": switches}
    paths = interface_paths(interfaces_of(entry), [f"h{k}" for k in range(9)], (np.ones(9), np.ones(9)))
    assert paths is not None
    for i, j in itertools.permutations(range(9), 2):
        for leaves, arrives in zip(paths.out[:, i, j].tolist(), paths.into[:, i, j].tolist(), strict=True):
            if leaves >= 0:
                assert of[leaves // 2, leaves % 2] == of[arrives // 2, arrives % 2]
