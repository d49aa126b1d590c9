"""Orders of meshes of ranks: against brute force, sorted racks, random orders and bounds; simulated.

``--part NAME`` runs one of small, simulated, bounds, spread, times and keeps the figures of the others; ``--quick``
runs few cases and records nothing. Set OMP_NUM_THREADS=1.
"""

import itertools
import json
import resource
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.clouds import Cloud, fabric_of_cloud, orders_of, rank_correlation, three_tier
from benchmarks.record import Bar, record
from benchmarks.results import RECORDS
from plink.model.mesh import make_mesh
from plink.model.network import Matrix
from solvers.costs.by_name import SIMULATED, cost_function_for, pattern_for
from solvers.costs.fabric import Fabric
from solvers.costs.mesh_patterns import axis_sequences
from solvers.ordering.annealing import Annealer, initial_orders, sorted_by_group
from solvers.ordering.bounds import link_bound
from solvers.ordering.constraints import moves_of
from solvers.ordering.mesh_bounds import assignment_bound
from solvers.ordering.problem import Order, OrderingProblem, SearchBudget
from solvers.ordering.search import search
from solvers.ordering.simulated_choice import candidate_orders, choose_by_simulation, improved_candidates
from solvers.schedules.catalogue import Options
from solvers.simulation.cost import SimulatedCost

Words = tuple[str, ...]  # axes, then traffic
LARGE: dict[int, tuple[Words, ...]] = {
    32: (
        ("pp=4,dp=8", "pp=p2p:8MB*32", "dp=all-reduce:1GB"),
        ("pp=4,dp=8", "pp=p2p:64MB*32", "dp=all-reduce:300MB"),
        ("pp=2,dp=4,ep=4", "pp=p2p:16MB*32", "dp=all-reduce:600MB", "ep=all-to-all:64MB*16"),
        ("pp=4,dp=2,cp=4", "pp=p2p:16MB*32", "dp=all-reduce:1GB", "cp=ring:128MB*4"),
    ),
    64: (
        ("pp=4,dp=16", "pp=p2p:16MB*32", "dp=all-reduce:1GB"),
        ("pp=8,dp=8", "pp=p2p:32MB*32", "dp=reduce-scatter:600MB,all-gather:600MB*2"),
        ("pp=2,edp=4,ep=8", "pp=p2p:16MB*32", "ep=all-to-all:64MB*16", "edp+ep=all-reduce:400MB"),
        ("pp=4,dp=4,cp=4", "pp=p2p:16MB*32", "dp=all-reduce:1GB", "cp=ring:64MB*4"),
    ),
}
CLOUDS = 3  # of each mesh: seeds that nothing was chosen on
FIRST_SEED = 1000
SMALL: tuple[Words, ...] = (
    ("pp=2,dp=4", "pp=p2p:16MB*32", "dp=all-reduce:1GB"),
    ("pp=2,dp=4", "pp=p2p:64MB*32", "dp=all-reduce:300MB"),
    ("pp=4,dp=2", "pp=p2p:8MB*32", "dp=all-reduce:1GB"),
    ("pp=4,dp=2", "pp=p2p:64MB*32", "dp=all-reduce:300MB"),
    ("pp=2,dp=2,ep=2", "pp=p2p:16MB*32", "dp=all-reduce:600MB", "ep=all-to-all:64MB*16"),
    ("pp=2,dp=2,cp=2", "pp=p2p:16MB*32", "dp=all-reduce:1GB", "cp=ring:128MB*4"),
    ("edp=2,ep=4", "ep=all-to-all:64MB*16", "edp+ep=reduce-scatter:600MB,all-gather:600MB*2"),
)
RACKS = ((4, 4), (3, 5), (2, 3, 3), (2, 2, 2, 2), (1, 3, 4))
MIDDLE: tuple[tuple[tuple[int, ...], Words], ...] = (
    ((4, 4, 4), ("pp=3,dp=4", "pp=p2p:16MB*32", "dp=all-reduce:1GB")),
    ((3, 4, 5), ("pp=3,dp=2,ep=2", "pp=p2p:16MB*32", "dp=all-reduce:600MB", "ep=all-to-all:64MB*16")),
    ((4, 4, 4, 4), ("pp=4,dp=4", "pp=p2p:64MB*32", "dp=all-reduce:300MB")),
    ((3, 5, 4, 4), ("pp=4,dp=4", "pp=p2p:16MB*32", "dp=all-reduce:1GB")),
    ((5, 7, 4), ("pp=2,dp=2,ep=4", "pp=p2p:16MB*32", "dp=all-reduce:600MB", "ep=all-to-all:64MB*16")),
)
SPREAD: dict[str, Words] = {  # by the axis that sends most
    "dp": ("pp=8,dp=12", "pp=p2p:16MB*32", "dp=all-reduce:4GB"),
    "pp": ("pp=8,dp=12", "pp=p2p:64MB*32", "dp=all-reduce:500MB"),
}
MINIPODS, SPREAD_HOSTS = 8, 96
TIMED: dict[int, Words] = {
    128: ("pp=8,dp=16,tp=8", "pp=p2p:32MB*32", "dp=all-reduce:1GB", "tp=all-reduce:64MB*64"),
    512: ("pp=8,dp=64", "pp=p2p:32MB*32", "dp=all-reduce:1GB"),
}
ORDERS, RANDOM_ORDERS, MOVES = 26, 11, 24_000
PROOF_S = 20.0  # the bar has 60
Figures = dict[str, Any]


def racks_of(sizes: tuple[int, ...], seed: int) -> Cloud:
    """Return hosts in racks of these sizes, in two pods, in a random sequence; no two round trips are alike."""
    rng, n = np.random.default_rng(seed), sum(sizes)
    place = rng.permutation(n)
    rack_of = np.repeat(np.arange(len(sizes)), sizes)[place]
    pod_of = rack_of // max(1, -(-len(sizes) // 2))
    same_rack, same_pod = (labels[:, None] == labels[None, :] for labels in (rack_of, pod_of))
    tier: Matrix = np.where(same_rack, 30.0, np.where(same_pod, 60.0, 150.0))
    upper = np.triu(tier * rng.lognormal(0.0, 0.05, (n, n)), 1)
    return Cloud(upper + upper.T, rack_of, pod_of, 0.0)


def problem_of(words: Words, fabric: Fabric, model: str = "contention") -> OrderingProblem:
    """Return the problem of a mesh on hosts that are given in a random order."""
    n = len(fabric.names)
    baseline = np.random.default_rng(1).permutation(n)
    options = Options(mesh=make_mesh(words[0], words[1:]))
    return OrderingProblem(fabric, baseline, "mesh", options, 1.0, model)


def simulation_of(problem: OrderingProblem) -> SimulatedCost:
    """Return the simulated cost, as ``plink reorder`` states it under ``contention``."""
    return SimulatedCost.of(
        problem.algo, len(problem.baseline), problem.options, problem.fabric, problem.size_bytes, "contention"
    )


def chosen_order(problem: OrderingProblem) -> tuple[Order, Order]:
    """Return the order of the search, and the one that is then chosen by simulation, as ``plink reorder`` does."""
    budget, cost_of = SearchBudget(MOVES), simulation_of(problem)
    result = search(problem, 0, budget)
    orders = candidate_orders(problem, result, 0, budget)
    if not cost_of.is_closed_form:
        orders = improved_candidates(problem, orders, cost_of, 0, lambda: True)
    choice = choose_by_simulation(problem, result, orders, (cost_of, cost_of), 0, lambda: True)
    return result.order, choice.result.order


def annealed(problem: OrderingProblem) -> Order:
    """Return the order of annealing alone, which searches of up to ten hosts do without: they try all orders."""
    fabric, n = problem.fabric, len(problem.baseline)
    mesh = problem.options.mesh
    assert mesh is not None
    sorted_hosts = sorted_by_group(fabric, problem.baseline)
    starts = [*initial_orders(fabric, problem.baseline)]
    starts += [sorted_hosts[np.argsort(sequence)] for sequence in axis_sequences(mesh, n)]
    annealer = Annealer(pattern_for("mesh", n, problem.options), fabric, 1.0, problem.model)
    moves = moves_of(problem.feasible.exchange_classes(starts[0]), n)
    return annealer.search(starts, moves, 0, SearchBudget(MOVES)).order


def small(quick: bool) -> tuple[Figures, list[Bar]]:
    """Compare searches and bounds with all 40,320 orders of eight hosts."""
    cases = list(itertools.product(SMALL, RACKS, ("contention", "alpha-beta")))[:: 10 if quick else 1]
    rows = []
    for number, (words, racks, model) in enumerate(cases):
        fabric = fabric_of_cloud(racks_of(racks, number), number)
        problem = problem_of(words, fabric, model)
        cost_of = cost_function_for("mesh", 8, problem.options, fabric, 1.0, model)
        best = min(cost_of(np.array(order)) for order in itertools.permutations(range(8)))
        bounds = [link_bound(problem) or 0.0]
        if model == "contention":
            bounds.append(assignment_bound(problem, best, PROOF_S, lambda: True))
        rows.append({
            "mesh": words[0], "racks": list(racks), "model": model,
            "search": round(search(problem, 0, SearchBudget(MOVES)).cost / best, 6),
            "annealed": round(cost_of(annealed(problem)) / best, 6),
            "bounds": [round(bound / best, 6) for bound in bounds],
        })  # fmt: skip
    bars = [
        Bar("small cases that are not optimal, of 70", sum(row["search"] > 1 + 1e-6 for row in rows), at_most=2),
        Bar("small cases, annealing alone, over the optimum", max(row["annealed"] for row in rows), at_most=1.01),
        Bar("small cases, greatest bound over the optimum", max(max(row["bounds"]) for row in rows), at_most=1.0),
    ]
    return {"cases": rows}, bars


def simulated(quick: bool) -> tuple[Figures, list[Bar]]:
    """Simulate the orders of 32 and 64 hosts, and compare the closed form with the simulator."""
    rows = []
    for words_of, seed in itertools.product(
        [(n, words) for n, meshes in LARGE.items() for words in meshes][:: 5 if quick else 1],
        range(FIRST_SEED, FIRST_SEED + (1 if quick else CLOUDS)),
    ):
        n, words = words_of
        cloud = three_tier(n, seed, ("powers", "uneven")[seed % 2])
        fabric = fabric_of_cloud(cloud, seed)
        problem, rng = problem_of(words, fabric), np.random.default_rng((seed, 6))
        cost_of, closed = (
            simulation_of(problem),
            cost_function_for("mesh", n, problem.options, fabric, 1.0, "contention"),
        )
        searched, chosen = chosen_order(problem)
        times = {
            "searched": cost_of(searched), "chosen": cost_of(chosen),
            "sorted": cost_of(sorted_by_group(fabric, problem.baseline)),
            "random": float(np.median([cost_of(rng.permutation(n)) for _ in range(RANDOM_ORDERS)])),
        }  # fmt: skip
        orders = orders_of(cloud, ORDERS, rng)
        ours, theirs = ([price(order) for order in orders] for price in (closed, cost_of))
        bound = link_bound(replace(problem, model=SIMULATED)) or 0.0
        rows.append({
            "hosts": n, "mesh": words[0], "seed": seed, "racks": np.bincount(cloud.rack_of).tolist(),
            **{name: round(us / 1e6, 4) for name, us in times.items()},
            "bound": round(bound / 1e6, 4), "spearman": rank_correlation(ours, theirs),
            "error": round(max(abs(a / b - 1) for a, b in zip(ours, theirs, strict=True)), 4),
        })  # fmt: skip
        print(rows[-1], flush=True)
    over_sorted, over_random = ([round(row["chosen"] / row[name], 4) for row in rows] for name in ("sorted", "random"))
    bars = [
        Bar("simulated over sorted by rack, worst", max(over_sorted), at_most=1.0),
        Bar("simulated over sorted by rack, median", round(float(np.median(over_sorted)), 4), at_most=0.80),
        Bar("simulated over random, median", round(float(np.median(over_random)), 4), at_most=0.5),
        Bar("rank correlation of predictions, least", min(row["spearman"] for row in rows), at_least=0.95),
        Bar("error of predictions, greatest", max(row["error"] for row in rows), at_most=0.15),
    ]
    return {"cases": rows}, bars


def bounds(quick: bool) -> tuple[Figures, list[Bar]]:
    """Compare orders of 12 to 32 hosts with their bounds: by rounds as searched, and as simulated."""
    cases = [(words, racks_of(racks, number), number) for number, (racks, words) in enumerate(MIDDLE)]
    cases += [(words, three_tier(32, FIRST_SEED + k, "powers"), FIRST_SEED + k) for k, words in enumerate(LARGE[32])]
    rows = []
    for words, cloud, seed in cases[:: 6 if quick else 1]:
        problem = problem_of(words, fabric_of_cloud(cloud, seed))
        searched, chosen = chosen_order(problem)
        closed = cost_function_for("mesh", len(cloud), problem.options, problem.fabric, 1.0, "contention")
        row: Figures = {"hosts": len(cloud), "mesh": words[0], "racks": np.bincount(cloud.rack_of).tolist()}
        for model, cost in (("contention", closed(searched)), (SIMULATED, simulation_of(problem)(chosen))):
            task, began = replace(problem, model=model), time.monotonic()
            cuts = link_bound(task) or 0.0
            proven = max(cuts, assignment_bound(task, cost, PROOF_S, lambda: True))
            row[model] = {
                "cuts_gap": round(cost / cuts - 1, 4), "gap": round(cost / proven - 1, 4),
                "seconds": round(time.monotonic() - began, 1),
            }  # fmt: skip
        rows.append(row)
        print(row, flush=True)
    bars = [
        Bar(f"gap of {name}, {model}, median", median_gap(rows, sizes, model), at_most=most)
        for name, sizes, most in (("12 and 16 hosts", (12, 16), 0.05), ("32 hosts", (32,), 0.12))
        for model in ("contention", SIMULATED)
    ]
    return {"cases": rows}, bars


def median_gap(rows: list[Figures], sizes: tuple[int, ...], model: str) -> float:
    """Return the median gap of the cases of these numbers of hosts; NaN without any."""
    gaps = [row[model]["gap"] for row in rows if row["hosts"] in sizes]
    return round(float(np.median(gaps)), 4) if gaps else float("nan")


def best_fit(pod_of: npt.NDArray[np.intp], group_hosts: int) -> Order:
    """Return the host at each rank where each group of consecutive ranks in turn goes to the minipod with the fewest
    free hosts that holds it whole, and else to those with the fewest, host by host."""
    free = {pod: list(np.flatnonzero(pod_of == pod)) for pod in range(pod_of.max() + 1)}
    order: list[int] = []
    for _ in range(len(pod_of) // group_hosts):
        missing = group_hosts
        while missing:
            left = {pod: len(hosts) for pod, hosts in free.items() if hosts}
            fitting = {pod: hosts for pod, hosts in left.items() if hosts >= missing} or left
            pod = min(fitting, key=fitting.__getitem__)
            taken = min(missing, left[pod])
            order += [free[pod].pop(0) for _ in range(taken)]
            missing -= taken
    return np.array(order)


def spread(quick: bool) -> tuple[Figures, list[Bar]]:
    """Count the minipods that groups have hosts in, beside best fit of hosts, of whole replicas' stages and of whole
    pipelines (96 nodes in minipods, in which other jobs left some free). He et al. (NeurIPS 2025) state the greatest
    ratio of their cases, "up to 1.67x", so that is what the bar compares; medians are figures."""
    rows = []
    for (heavy, words), seed in itertools.product(SPREAD.items(), range(FIRST_SEED, FIRST_SEED + (1 if quick else 6))):
        rng = np.random.default_rng((seed, 8))
        sizes = 2 + rng.multinomial(SPREAD_HOSTS - 2 * MINIPODS, rng.dirichlet(np.full(MINIPODS, 2.0)))
        cloud = racks_of(tuple(sizes.tolist()), seed)
        problem = problem_of(words, fabric_of_cloud(cloud, seed))
        mesh, cost_of = problem.options.mesh, simulation_of(problem)
        assert mesh is not None
        (_, stages), (_, replicas) = mesh.axes
        orders = {
            "plink": chosen_order(problem)[1],
            "best_fit": best_fit(cloud.rack_of, 1),
            "best_fit_of_stages": best_fit(cloud.rack_of, replicas),
            "best_fit_of_pipelines": best_fit(cloud.rack_of, stages).reshape(replicas, stages).T.ravel(),
        }
        row: Figures = {"mesh": words[0], "heavy": heavy, "seed": seed, "minipods": sizes.tolist()}
        for name, order in orders.items():
            pods = cloud.rack_of[order]
            row[name] = {
                **{axis: max(len(set(group)) for group in pods[mesh.groups([axis])].tolist()) for axis in ("pp", "dp")},
                "step_s": round(cost_of(order) / 1e6, 3),
            }
        rows.append(row)
        print(row, flush=True)
    ratios = {
        axis: [row["best_fit"][axis] / row["plink"][axis] for row in rows if row["heavy"] == axis] for axis in SPREAD
    }
    medians = {axis: round(float(np.median(of_cases)), 4) for axis, of_cases in ratios.items()}
    greatest = round(max(itertools.chain.from_iterable(ratios.values())), 4)
    packed = [
        row["plink"]["step_s"] / min(each["step_s"] for name, each in row.items() if name.startswith("best"))
        for row in rows
    ]
    return {"cases": rows, "best_fit_over_plink_median": medians}, [
        Bar("minipods of a group of the axis that sends most: best fit over plink, greatest", greatest, at_least=1.67),
        Bar("step over the best of three packings, worst", round(max(packed), 4), at_most=1),
    ]


def timed(hosts: int) -> Figures:
    """Return the seconds and MB of a process that searches, chooses and bounds one order."""
    cloud = three_tier(hosts, FIRST_SEED)
    problem = problem_of(TIMED[hosts], fabric_of_cloud(cloud, FIRST_SEED))
    began = time.monotonic()
    _, chosen = chosen_order(problem)
    seconds, cost_of = time.monotonic() - began, simulation_of(problem)
    ratio = cost_of(chosen) / cost_of(sorted_by_group(problem.fabric, problem.baseline))
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"hosts": hosts, "seconds": round(seconds, 1), "peak_mb": round(peak_mb), "over_sorted": round(ratio, 4)}


def times(quick: bool) -> tuple[Figures, list[Bar]]:
    """Time the orders of 1,024 ranks on 128 hosts, and of 512 hosts, each in a process of its own."""
    rows = []
    for hosts in [128] if quick else TIMED:
        with ProcessPoolExecutor(1) as pool:
            rows.append(pool.submit(timed, hosts).result())
        print(rows[-1], flush=True)
    bars = [
        Bar(f"{row['hosts']} hosts, seconds", row["seconds"], at_most=20 if row["hosts"] == 128 else 60) for row in rows
    ]
    return {"cases": rows}, [*bars, Bar("peak memory, MB", max(row["peak_mb"] for row in rows), at_most=2000)]


PARTS = {"small": small, "simulated": simulated, "bounds": bounds, "spread": spread, "times": times}


def main() -> int:
    """Run and record; the exit code."""
    quick = "--quick" in sys.argv
    wanted = [sys.argv[sys.argv.index("--part") + 1]] if "--part" in sys.argv else list(PARTS)
    path = RECORDS / "mesh-orders.json"
    recorded = json.loads(path.read_text())["figures"] if path.exists() else {}
    figures: dict[str, Any] = {}
    for name in PARTS:
        if name in wanted:
            part, bars = PARTS[name](quick)
            figures[name] = part | {"bars": [bar.to_json() for bar in bars]}
        elif name in recorded:
            figures[name] = recorded[name]
    if quick:
        print(json.dumps(figures, indent=1))
        return 0
    reached = [
        Bar(**{key: value for key, value in bar.items() if key != "met"})
        for part in figures.values()
        for bar in part["bars"]
    ]
    configuration = {"moves": MOVES, "first_seed": FIRST_SEED, "proof_s": PROOF_S, "random_orders": RANDOM_ORDERS}
    return record("mesh-orders", configuration, figures, reached, wanted)


if __name__ == "__main__":
    sys.exit(main())
