"""Benchmark a collective in several rank orders on the hosts, in one job, alternating between orders."""

import json
import logging
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import structs

import plink.runtime.order_timing as program
from plink.errors import NoAnswer, PlinkError, UsageError
from plink.features.check.request import CheckRequest
from plink.features.order.algorithms import fabric_from, options_of
from plink.features.order.interfaces import fabric_of_algorithm, own_options
from plink.features.order.request import OrderRequest
from plink.features.order.search import solve
from plink.features.plan.run import LIBRARY_ENVIRONMENT
from plink.model.check import BenchmarkRun, OrderTiming
from plink.model.document import UNSET
from plink.model.hosts import Hosts
from plink.model.network import Network
from plink.model.request import parse_settings
from plink.model.units import format_bytes, format_us
from plink.records.scratch import scratch_folder
from plink.transport.fleet import Connector, Progress
from runners.choice import runner_named
from runners.job.runner import Job, RunContext, RunObserver
from solvers.checking import MIN_SIZES, CollectiveTiming, orders_between, too_few_rankings
from solvers.costs.by_name import cost_function_for, model_for, search_model_for
from solvers.costs.closed_forms import Order
from solvers.schedules.catalogue import ALGORITHMS, Options, schedule_for
from solvers.simulation.cost import cost_by_model

_log = logging.getLogger("plink.check")
# Of the search for the cheapest order: with moves instead of seconds a seed gives the same orders.
_SEARCH_MOVES = 20_000
_WARM_UP_ROUNDS = 1
_MPI, _GLOO, _NCCL = "openmpi-", "gloo", "nccl"
_NCCL_ALGO = "NCCL_ALGO"
_MAX_ARGUMENT_CHARS = 100_000  # Linux: an argument of 128 KB is too long
_LAST_LINES = 5
_SIZE_STEP, _SMALLEST_BYTES, _MAX_SIZES, _ELEMENT_BYTES = 4, 1000, 7, 4
_NCCL_SIZES, _OTHER_ORDERS_STEP = 11, 16  # slow orders take long with the largest sizes
_MIN_REPEATS = 10  # small collectives are noisy, and take no time
PHASES = ("connecting", "copying", "repetitions")  # of which progress is reported


@dataclass(frozen=True)
class PlannedBenchmark:
    """Benchmark of one collective on the hosts of a network, before it runs.

    ``orders``: the host at each rank, and the predicted cost. ``sizes_bytes``, shape (orders,): what each reduces, and
    ``repeats`` how often. ``for_costs``: it is of one order at several sizes, for what hosts take.
    """

    network: Network
    request: CheckRequest
    algo: str
    model: str
    orders: list[tuple[Order, float]]
    options: Options
    sizes_bytes: tuple[int, ...]
    repeats: int
    for_costs: bool = False

    @property
    def text(self) -> str:
        """What will be run, and how long it takes, in a line."""
        smallest, largest = (format_bytes(of(self.sizes_bytes)) for of in (min, max))
        if self.for_costs:
            whose = "NCCL's" if _kind(self.algo) == _NCCL else "the hosts'"
            return (
                f"{self.algo}: {len(set(self.sizes_bytes))} sizes, {smallest} to {largest}, {self.repeats} times each, "
                f"for {whose} own costs"
            )
        costs = [cost for _, cost in self.orders]
        rounds = self.repeats + _WARM_UP_ROUNDS
        in_all = f", some {format_us(sum(costs) * rounds)} in all if the model is right"
        return (
            f"{self.algo}: {len(costs)} orders, {rounds} all-reduces of {largest} each, {format_us(costs[0])} to "
            f"{format_us(costs[-1])} by {self.model}{'' if self.model == 'latency' else in_all}"
        )

    def timings(self, run: BenchmarkRun) -> list[CollectiveTiming]:
        """Return what its run measured."""
        return [
            CollectiveTiming(self.algo, self.options, order, size, timing.achieved_s)
            for (order, _), size, timing in zip(self.orders, self.sizes_bytes, run.runs, strict=True)
        ]

    def hosts_of(self, order: Order) -> tuple[str, ...]:
        """Return the names of the hosts in an order, first rank first."""
        names = self.network.hosts.names
        return tuple(names[host] for host in dict.fromkeys(order.tolist()))


def plan_orders(network: Network, request: CheckRequest, algo: str) -> PlannedBenchmark:
    """Choose orders at even steps of the predicted cost (for ``simulated`` that of the model that searches go by).
    None of them uses an unmeasured pair, whose cost is only a guess. Costs are by all samples, as in
    :func:`with_costs_on`. The cheapest order alone where none can be ranked nor has to be.

    :raises NoAnswer: where orders cannot be ranked, or not well enough for a limit. :raises PlinkError: as
        :func:`solve`.
    """
    size_bytes = int(request.size_bytes)
    fabric = fabric_of_algorithm(network, fabric_from(network), algo)
    model = model_for("auto" if request.model is None else request.model, fabric, timed=True, algo=algo)
    solved = solve(
        network, OrderRequest(algo, size_bytes, model, request.options, max_moves=_SEARCH_MOVES, seed=request.seed)
    )
    task = solved.task
    ranks = len(task.baseline)
    cost_of = cost_function_for(algo, ranks, task.options, fabric, size_bytes, search_model_for(model, fabric))
    slots = np.bincount(task.baseline, minlength=len(network.hosts))
    accurate_cost = cost_by_model(algo, ranks, task.options, fabric, size_bytes, model)
    try:
        orders = orders_between(solved.result.order, slots, cost_of, request.orders, request.seed)
    except NoAnswer as error:
        if request.has_to_rank:
            raise
        _log.warning("%s: %s; one order is timed for --calibrate", algo, error)
        orders = [(solved.result.order, solved.result.cost)]
    orders = sorted(((order, accurate_cost(order)) for order, _ in orders), key=lambda entry: entry[1])
    if request.min_spearman is not None and (reason := too_few_rankings([cost for _, cost in orders])) is not None:
        raise NoAnswer(f"--min-spearman {request.min_spearman:g} needs more: {reason}")
    sizes = (size_bytes,) * len(orders)
    return PlannedBenchmark(network, request, algo, model, orders, task.options, sizes, request.repeats)


def plan_sizes(planned: PlannedBenchmark) -> PlannedBenchmark:
    """Return a benchmark of the cheapest order at several sizes, each a quarter of the next, for what hosts take.

    NCCL's sizes are each half of the next, and the smaller ones are timed in two other orders, too, which tell what it
    does while the network works (:mod:`solvers.library_costs`).

    :raises UsageError: when there are too few of them.
    """
    largest = planned.sizes_bytes[0]
    # NCCL's protocols change within a factor of four.
    step, most = (2, _NCCL_SIZES) if _kind(planned.algo) == _NCCL else (_SIZE_STEP, _MAX_SIZES)
    sizes = [largest // step**k // _ELEMENT_BYTES * _ELEMENT_BYTES for k in range(most)]
    sizes = [size for size in reversed(sizes) if size >= _SMALLEST_BYTES]
    if len(sizes) < MIN_SIZES:
        least = _SMALLEST_BYTES * _SIZE_STEP ** (MIN_SIZES - 1)
        raise UsageError(
            f"--size {format_bytes(largest)}: --calibrate times {MIN_SIZES} sizes or more down to "
            f"{format_bytes(_SMALLEST_BYTES)}; give {format_bytes(least)} or more"
        )
    chosen = [(planned.orders[0], size) for size in sizes]
    if _kind(planned.algo) == _NCCL:
        others = [planned.orders[k] for k in sorted({len(planned.orders) // 2, len(planned.orders) - 1} - {0})]
        chosen += [(order, size) for order in others for size in sizes if size * _OTHER_ORDERS_STEP <= largest]
    repeats = max(planned.repeats, _MIN_REPEATS)
    orders, sizes_bytes = [order for order, _ in chosen], tuple(size for _, size in chosen)
    return replace(planned, orders=orders, sizes_bytes=sizes_bytes, repeats=repeats, for_costs=True)


def recorded_orders(run: BenchmarkRun, network: Network) -> tuple[Options, list[Order]]:
    """Return the options of a recorded run's algorithm, and the host (its index in the network) at each rank of its
    orders.

    :raises NoAnswer: where the run is of other hosts.
    """
    index_of = {name: k for k, name in enumerate(network.hosts.names)}
    slots = np.array([host.slots for host in network.hosts], dtype=np.intp)
    if run.ranks and run.ranks != slots.sum():
        raise NoAnswer(
            f"--results: {run.algo} was run by {run.ranks} ranks, and the hosts in {network.location} have "
            f"{slots.sum()} slots"
        )
    orders, ranked = [], sorted(network.hosts.ranked().names)
    for timing in run.runs:
        names = timing.hosts or ()
        if sorted(names) != ranked:
            raise NoAnswer(f"--results: order {timing.order} is not one of the hosts in {network.location}")
        hosts = np.array([index_of[name] for name in names], dtype=np.intp)
        orders.append(np.repeat(hosts, slots[hosts]))
    algo, groups = run.algo or "", [list(group) for group in run.groups or ()] or None
    values = {**own_options(network, algo, int(slots.sum())), **parse_settings(run.options)}
    return options_of(values, [algo], groups, ranks=orders[0] if orders else None), orders


def with_costs_on(run: BenchmarkRun, network: Network, model_name: str | None = None) -> BenchmarkRun:
    """Return a recorded run with costs by this network and today's cost models.

    :param model_name: the model; None: that of the run, or the one that suits the network.
    :raises UsageError, NoAnswer: where the run tells too little, or speaks of other hosts.
    """
    if run.algo is None or run.size_bytes is None or not all(timing.hosts for timing in run.runs):
        raise UsageError("--results: these runs lack algorithm, size or hosts; omit NETWORK")
    fabric = fabric_of_algorithm(network, fabric_from(network), run.algo)
    model = model_for(model_name or run.model or "auto", fabric, timed=True, algo=run.algo)
    options, orders = recorded_orders(run, network)
    cost_of = cost_by_model(run.algo, len(orders[0]), options, fabric, run.size_bytes, model)
    timings = (
        structs.replace(timing, predicted_us=float(cost_of(order)))
        for timing, order in zip(run.runs, orders, strict=True)
    )
    return structs.replace(run, model=model, runs=tuple(timings))


def time_orders(planned: PlannedBenchmark, connector: Connector, progress: Progress) -> BenchmarkRun:
    """Run all orders in one job.

    :raises PlinkError: when the job fails or reports no times.
    """
    hosts, orders = planned.network.hosts, planned.orders
    kind = _kind(planned.algo)
    argument = program.pack_config(
        {
            "kind": kind,
            "places": [_positions(order, hosts) for order, _ in orders],
            "sizes_bytes": planned.sizes_bytes,
            "warm_up": _WARM_UP_ROUNDS,
            "repeats": planned.repeats,
        }
    )
    if len(argument) > _MAX_ARGUMENT_CHARS:
        raise UsageError(f"--orders {len(orders)}: too many for the number of ranks to send with the job; use fewer")
    lines: list[str] = []  # of rank 0

    def sink(rank: int | None, stream: str, line: str) -> None:
        if rank == 0 and stream == "out":
            lines.append(line)
            progress(PHASES[-1], len(lines), planned.repeats)

    with scratch_folder() as folder:
        job = _job(planned, argument, folder)
        context = RunContext(
            RunObserver(sink, progress=progress), time.monotonic, folder, planned.network.host_identities
        )
        result = runner_named("mpirun" if kind == "mpi" else "ssh", lambda: connector).run(job, hosts, context)
    if (failure := result.failure) is not None:
        last_output = " / ".join(line.strip() for line in failure.last_lines[-_LAST_LINES:])
        failed_process = "the launcher" if failure.rank is None else f"rank {failure.rank} on {failure.host}"
        timeout_text = ", as it ran longer than its --timeout" if result.timed_out else ""
        cause = failure.cause or f"{failed_process} failed{timeout_text}"
        if not last_output and failure.cause is None:
            last_output = "it printed nothing"
        raise PlinkError(": ".join(filter(None, (planned.algo, cause, last_output))))
    samples = _samples(lines, planned)
    timings = (
        OrderTiming(
            order=f"{k + 1} of {len(orders)}",
            hosts=planned.hosts_of(order),
            predicted_us=cost,
            achieved_s=tuple(samples[:, k].tolist()),
        )
        for k, (order, cost) in enumerate(orders)
    )
    takes_groups = planned.algo in ALGORITHMS and "groups" in ALGORITHMS[planned.algo].options  # a mix takes none
    groups = planned.options.groups if takes_groups else None
    return BenchmarkRun(
        algo=planned.algo,
        model=planned.model,
        size_bytes=max(planned.sizes_bytes),
        ranks=len(orders[0][0]),
        options=tuple(_typed(name, value) for name, value in planned.request.options.items()),
        groups=UNSET if groups is None else tuple(map(tuple, groups)),
        runs=tuple(timings),
    )


def _kind(algo: str) -> str:
    """Return what runs an algorithm, in :func:`plink.runtime.order_timing.pack_config`'s words."""
    if algo.startswith(_MPI):
        return "mpi"
    return _GLOO if algo == _GLOO else _NCCL if algo.startswith(_NCCL) else "plink"


def _typed(name: str, value: int | bool) -> str:
    """Return an option as it is typed after ``--set``."""
    return f"{name.replace('_', '-')}={('yes' if value else 'no') if isinstance(value, bool) else value}"


def _positions(order: Order, hosts: Hosts) -> list[int]:
    """Return the position of each rank of the job (hosts as in the network file) in an order."""
    positions_of: dict[int, list[int]] = {}
    for place, host in enumerate(order.tolist()):
        positions_of.setdefault(host, []).append(place)
    return [place for host in range(len(hosts)) for place in positions_of.get(host, [])]


def _job(planned: PlannedBenchmark, argument: str, folder: Path) -> Job:
    """Return the job; its files are in the folder."""
    request, hosts = planned.request, planned.network.hosts
    env, kind = dict(LIBRARY_ENVIRONMENT.get(planned.algo, {})), _kind(planned.algo)
    if hosts.lab is not None:  # every lab host believes it has the machine's cores to itself
        env |= {"OMP_NUM_THREADS": "1", "OMPI_MCA_mpi_yield_when_idle": "1"}
    if kind == "plink":
        env |= _schedule_environment(planned)
    chosen = request.env.get(_NCCL_ALGO)
    if kind == _NCCL and chosen not in (None, env.get(_NCCL_ALGO)):
        _log.warning("--env %s=%s is kept: what is timed may not be %s", _NCCL_ALGO, chosen, planned.algo)
    env |= request.env
    text = Path(program.__file__).read_text()
    limits: dict[str, Any] = {"timeout_s": request.timeout_s, "interface": request.interface}
    if kind == "mpi":  # no agent of ours is there to copy the program: it travels as a word
        python = request.python or (sys.executable if hosts.lab is not None else "python3")
        return Job(python, ("-c", text, argument), ("/",), env=env, **limits)
    programs = folder / "program"
    programs.mkdir()
    (programs / "order_timing.py").write_text(text)
    pythons = (request.python,) if request.python else (sys.executable, "python3")
    return Job("order_timing.py", (argument,), (str(programs),), pythons, env, sync=programs, **limits)


def _schedule_environment(planned: PlannedBenchmark) -> dict[str, str]:
    """Return the variables by which plink's backend gets the algorithm's schedule."""
    from plink.runtime.allreduce.aggregation import SizeClass, aggregation_for_rate

    ranks = len(planned.orders[0][0])
    schedule = schedule_for(planned.algo, ranks, planned.options)
    rate_gbps = fabric_from(planned.network).rate_gbps
    aggregation = aggregation_for_rate((SizeClass(None, planned.algo, schedule),), rate_gbps)
    return replace(aggregation, smallest_bytes=0).to_environment()  # Gloo does none of it


def _samples(lines: Sequence[str], planned: PlannedBenchmark) -> Any:
    """Return the measured seconds, shape (repeats, orders), of the lines of rank 0, among them words of libraries."""
    rows = [json.loads(line)["seconds"] for line in lines if line.startswith('{"seconds"')]
    if len(rows) != planned.repeats:
        raise PlinkError(f"{planned.algo}: {planned.repeats} repetitions were run, and the job reported {len(rows)}")
    samples = np.array(rows, dtype=np.float64)
    if not (samples > 0).all():
        raise PlinkError(f"{planned.algo}: an all-reduce took no time by the hosts' clocks; use a larger --size")
    return samples
