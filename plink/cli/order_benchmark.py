"""Benchmark a collective in several rank orders on the hosts, in one job, alternating between orders (``plink check
--measure``).

Imported when that is asked for: it needs the solvers.
"""

import json
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

import plink.runtime
from plink.api.algorithms import fabric_from, options_of
from plink.api.interfaces import fabric_of_algorithm
from plink.errors import NoAnswer, PlinkError, UsageError, no_choice
from plink.features.order.request import OrderRequest
from plink.features.order.search import solve
from plink.features.plan.run import LIBRARY_ENVIRONMENT
from plink.model.benchmark_runs import BenchmarkRun, OrderTiming
from plink.model.hosts import Hosts
from plink.model.network import Network
from plink.model.request import parse_settings
from plink.model.units import format_bytes, format_us
from plink.terminal.screen import progress, say
from runners.job.job import Job
from runners.job.runner import RunContext, Runner, RunObserver
from solvers.checking.orders import Order, orders_between
from solvers.costs.by_name import cost_function_for, model_for, search_model_for
from solvers.schedules.catalogue import ALGORITHMS, schedule_for
from solvers.simulation.cost import cost_by_model

_SEARCH_MOVES = (
    20_000  # of the search for the cheapest order: with moves instead of seconds a seed gives the same orders
)
_WARM_UP_ROUNDS = 1
_MPI, _GLOO = "openmpi-", "gloo"
_FOLDER = Path(plink.runtime.__file__).parent
_MAX_ARGUMENT_CHARS = 100_000  # Linux: an argument of 128 KB is too long
_LAST_LINES = 5


@dataclass(frozen=True)
class BenchmarkConfig:
    """Configuration of a benchmark. ``env``: added to the ranks' environment."""

    size_bytes: int
    model: str
    orders: int
    repeats: int
    seed: int
    set_options: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    python: str | None = None
    interface: str | None = None
    timeout_s: float | None = None


@dataclass(frozen=True)
class PlannedBenchmark:
    """Benchmark of one collective before it runs.

    ``orders``: the host at each rank, and the predicted cost. ``sizes_bytes``: what each order reduces; empty: that of
    the configuration.
    """

    algo: str
    model: str
    orders: list[tuple[Order, float]]
    options: tuple[str, ...]
    groups: tuple[tuple[int, ...], ...] | None
    config: BenchmarkConfig
    sizes_bytes: tuple[int, ...] = ()


def check_runnable(algo: str) -> None:
    """Refuse an algorithm that cannot be run here.

    :raises UsageError: for what cannot be run, with what can.
    """
    runnable = [name for name in ALGORITHMS if not name.startswith("nccl-") and name != "lightgbm"]
    if algo not in runnable:
        raise no_choice("--algo", algo, runnable)


def plan_orders(network: Network, algo: str, config: BenchmarkConfig) -> PlannedBenchmark:
    """Choose orders at even steps of the predicted cost (for ``simulated`` that of the model that searches go by).
    None of them uses an unmeasured pair, whose cost is only a guess. Costs are by all samples, as in
    :func:`recompute_costs`.

    :raises PlinkError: as :func:`solve` and :func:`orders_between`.
    """
    options = parse_settings(config.set_options)
    solved = solve(
        network, OrderRequest(algo, config.size_bytes, config.model, options, max_moves=_SEARCH_MOVES, seed=config.seed)
    )
    task = solved.task
    ranks = len(task.baseline)
    fabric = fabric_of_algorithm(network, fabric_from(network), algo)
    model = model_for(config.model, fabric, algo=algo)
    search_model = search_model_for(model)
    cost_of = cost_function_for(algo, ranks, task.options, fabric, config.size_bytes, search_model)
    slots = np.bincount(task.baseline, minlength=len(network.hosts))
    orders = orders_between(solved.result.order, slots, cost_of, config.orders, config.seed)
    accurate_cost = cost_by_model(algo, ranks, task.options, fabric, config.size_bytes, model)
    orders = sorted(((order, accurate_cost(order)) for order, _ in orders), key=lambda entry: entry[1])
    groups = task.options.groups if "groups" in ALGORITHMS[algo].options else None
    return PlannedBenchmark(
        algo,
        model,
        orders,
        config.set_options,
        None if groups is None else tuple(tuple(group) for group in groups),
        config,
    )


def recompute_costs(series: BenchmarkRun, network: Network, model_name: str | None = None) -> tuple[str, list[float]]:
    """Return the model, and the cost of each order of a run on this network by today's cost models.

    :param model_name: the model; None: that of the series, or the one that suits the network.
    :raises UsageError, NoAnswer: where the series tells too little, or speaks of other hosts.
    """
    if series.algo is None or series.size_bytes is None or not all(timing.hosts for timing in series.orders):
        raise UsageError("--results: these runs lack algorithm, size or hosts; omit NETWORK")
    index_of = {name: k for k, name in enumerate(network.hosts.names)}
    fabric = fabric_of_algorithm(network, fabric_from(network), series.algo)
    slots = np.array([host.slots for host in network.hosts], dtype=np.intp)
    model = model_for((series.model or "auto") if model_name is None else model_name, fabric, algo=series.algo)
    if series.ranks not in (None, slots.sum()):
        raise NoAnswer(
            f"--results: {series.algo} was run by {series.ranks} ranks, and the hosts in {network.location} have "
            f"{slots.sum()} slots"
        )
    groups = None if series.groups is None else [list(group) for group in series.groups]
    options = options_of(parse_settings(series.options), [series.algo], groups)
    cost_of = None
    costs = []
    for timing in series.orders:
        if set(timing.hosts) != set(index_of) or len(timing.hosts) != len(index_of):
            raise NoAnswer(f"--results: order {timing.order} is not one of the hosts in {network.location}")
        hosts = np.array([index_of[name] for name in timing.hosts], dtype=np.intp)
        order = np.repeat(hosts, slots[hosts])
        cost_of = cost_of or cost_by_model(series.algo, len(order), options, fabric, series.size_bytes, model)
        costs.append(float(cost_of(order)))
    return model, costs


def describe(planned: PlannedBenchmark) -> None:
    """Say what will be run."""
    costs = [cost for _, cost in planned.orders]
    config = planned.config
    rounds = config.repeats + _WARM_UP_ROUNDS
    predicted = ""
    if planned.model != "latency":
        predicted = f", some {format_us(sum(costs) * rounds)} in all if the model is right"
    say(
        f"{planned.algo}: {len(costs)} orders, {rounds} all-reduces of {format_bytes(config.size_bytes)} each, "
        f"{format_us(costs[0])} to {format_us(costs[-1])} by {planned.model}{predicted}"
    )


def run_orders(
    network: Network, planned: PlannedBenchmark, runner_for: Callable[[str], Runner],
    identities: dict[str, dict[str, Any]],
    folder: Path,
) -> BenchmarkRun:  # fmt: skip
    """Run all orders in one job.

    :param runner_for: the runner of that name. :param folder: for what a launcher reads; it is ours.
    :raises PlinkError: when the job fails or tells no times.
    """
    config, hosts = planned.config, network.hosts
    timing_request = {
        "kind": "gloo" if planned.algo == _GLOO else "plink",
        "places": [_positions(order, hosts) for order, _ in planned.orders],
        "sizes_bytes": planned.sizes_bytes or [config.size_bytes] * len(planned.orders),
        "warm_up": _WARM_UP_ROUNDS,
        "repeats": config.repeats,
    }
    from plink.runtime.order_timing import pack_config

    argument = pack_config(timing_request)
    if len(argument) > _MAX_ARGUMENT_CHARS:
        raise UsageError(f"--orders {config.orders}: too many for the number of ranks to send with the job; use fewer")
    name, job = _job(planned, network, argument, folder)
    lines: dict[int | None, list[str]] = {}
    with progress("connecting", "copying", "repetitions") as bars:

        def sink(rank: int | None, stream: str, line: str) -> None:
            if stream == "out":
                lines.setdefault(rank, []).append(line)
                if rank == 0:
                    bars["repetitions"](len(lines[0]), config.repeats)
            elif not line.startswith("plink: "):
                lines.setdefault(rank, []).append(line)

        observer = RunObserver(sink, progress=lambda phase, done, total: bars[phase](done, total))
        result = runner_for(name).run(job, hosts, RunContext(observer, time.monotonic, folder, identities))
    if result.failure is not None:
        failure = result.failure
        last_output = " / ".join(line.strip() for line in failure.last_lines[-_LAST_LINES:]) or "it printed nothing"
        failed_process = "the launcher" if failure.rank is None else f"rank {failure.rank} on {failure.host}"
        timeout_text = f" after {result.seconds:.0f} s (--timeout)" if result.timed_out else ""
        raise PlinkError(f"{planned.algo}: {failed_process} failed{timeout_text}: {last_output}")
    samples = _samples(lines.get(0, []), len(planned.orders), config.repeats, planned.algo)
    names = hosts.names
    timings = []
    for k, (order, cost) in enumerate(planned.orders):
        members = tuple(names[host] for host in dict.fromkeys(order.tolist()))
        timings.append(OrderTiming(f"{k + 1} of {len(planned.orders)}", cost, tuple(samples[:, k].tolist()), members))
    ranks = len(planned.orders[0][0])
    return BenchmarkRun(
        tuple(timings), planned.algo, config.size_bytes, planned.model, planned.options, planned.groups, ranks
    )  # fmt: skip


def _positions(order: Order, hosts: Hosts) -> list[int]:
    """Return the position of each rank of the job (hosts as in the network file) in an order."""
    positions_of: dict[int, list[int]] = {}
    for place, host in enumerate(order.tolist()):
        positions_of.setdefault(host, []).append(place)
    return [place for host in range(len(hosts)) for place in positions_of.get(host, [])]


def _job(planned: PlannedBenchmark, network: Network, argument: str, folder: Path) -> tuple[str, Job]:
    """Return the runner's name and the job."""
    config, hosts = planned.config, network.hosts
    env = dict(LIBRARY_ENVIRONMENT.get(planned.algo, {}))
    if hosts.lab is not None:  # every lab host believes it has the machine's cores to itself
        env |= {"OMP_NUM_THREADS": "1", "OMPI_MCA_mpi_yield_when_idle": "1"}
    limits: dict[str, Any] = {"timeout_s": config.timeout_s, "interface": config.interface}
    if planned.algo.startswith(_MPI):  # no agent of ours is there to copy the program: it travels as a word
        python = config.python or (sys.executable if hosts.lab is not None else "python3")
        text = (_FOLDER / "order_timing_mpi.py").read_text()
        return "mpirun", Job(python, ("-c", text, argument), ("/",), env=env | dict(config.env), **limits)
    if planned.algo != _GLOO:
        from plink.runtime.allreduce.aggregation import FILE, MAX_TEXT_BYTES, TEXT, SizeClass, aggregation_for_rate

        groups = None if planned.groups is None else [list(group) for group in planned.groups]
        ranks = len(planned.orders[0][0])
        schedule = schedule_for(
            planned.algo, ranks, options_of(parse_settings(planned.options), [planned.algo], groups)
        )
        aggregation_by_rate = aggregation_for_rate(
            (SizeClass(None, planned.algo, schedule),), fabric_from(network).rate_gbps
        )
        aggregation = replace(aggregation_by_rate, smallest_bytes=0)  # Gloo does none of it
        if len(text := aggregation.to_text()) > MAX_TEXT_BYTES:
            raise UsageError(
                f"--algo {planned.algo}: the schedule for {ranks} ranks is too large to travel with the job"
            )
        env |= {TEXT: text, FILE: ""}
    programs = folder / "program"
    programs.mkdir()
    (programs / "order_timing.py").write_text((_FOLDER / "order_timing.py").read_text())
    pythons = (config.python,) if config.python else (sys.executable, "python3")
    job = Job(
        "order_timing.py", (argument,), (str(programs),), pythons, env | dict(config.env), sync=programs, **limits
    )
    return "ssh", job


def _samples(lines: list[str], orders: int, repeats: int, algo: str) -> Any:
    """Return the measured seconds, shape (repeats, orders)."""
    rows = []
    for line in lines:
        try:
            row = json.loads(line)["seconds"]
        except (ValueError, KeyError, TypeError):
            continue  # a library's own word
        rows.append(row)
    if len(rows) != repeats or not all(isinstance(row, list) and len(row) == orders for row in rows):
        raise PlinkError(f"{algo}: {repeats} repetitions of {orders} orders were run, and the job reported {len(rows)}")
    samples = np.array(rows, dtype=np.float64)
    if not (samples > 0).all():
        raise PlinkError(f"{algo}: an all-reduce took no time by the hosts' clocks; use a larger --size")
    return samples
