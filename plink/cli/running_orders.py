"""Run one collective by several orders on the hosts, in one job, orders taking turns (``plink check --measure``).

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
from plink.api.algorithms import fabric_from
from plink.api.ordering import OrderRequest, solve
from plink.api.planning import LIBRARY_ENVIRONMENT
from plink.cli.screen import progress, say
from plink.cli.set_options import options_from, parse_set_options
from plink.errors import NoAnswer, PlinkError, UsageError
from plink.model.hosts import Hosts
from plink.model.network import Network
from plink.model.trials import Series, Trial
from plink.model.units import format_bytes, format_us
from runners.job.job import Job
from runners.job.runner import Runner, Watch
from solvers.checking.orders import Order, orders_between
from solvers.costs.by_name import model_for, pricing_for
from solvers.schedules.catalogue import ALGORITHMS, schedule_for

_MOVES = 20_000  # of the search for the cheapest order: with moves instead of seconds a seed gives the same orders
_WARM_UP = 1
_MPI, _GLOO = "openmpi-", "gloo"
_FOLDER = Path(plink.runtime.__file__).parent
_MOST_WORD = 100_000  # Linux: an argument of 128 KB is too long
_LAST_LINES = 5


@dataclass(frozen=True)
class Trying:
    """What was typed. ``env``: added to the ranks' environment."""

    size_bytes: int
    model: str
    orders: int
    repeats: int
    seed: int
    typed: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    python: str | None = None
    interface: str | None = None
    timeout_s: float | None = None


@dataclass(frozen=True)
class Planned:
    """The orders of one collective, not run yet: ``orders``: the host at each rank, and the predicted cost."""

    algo: str
    model: str
    orders: list[tuple[Order, float]]
    options: tuple[str, ...]
    groups: tuple[tuple[int, ...], ...] | None
    trying: Trying


def known_way(algo: str) -> None:
    """:raises UsageError: for what cannot be run, with what can."""
    runnable = [name for name in ALGORITHMS if not name.startswith("nccl-") and name != "lightgbm"]
    if algo not in runnable:
        raise UsageError(f"--algo {algo}: what can be run here is {', '.join(runnable)}")


def plan_orders(network: Network, algo: str, trying: Trying) -> Planned:
    """Orders at even steps of the predicted cost, none that needs a pair that nobody knows: a search may guess what
    such a pair takes, the clock may not be held against that. Costs are by all samples, as in :func:`priced_again`.

    :raises PlinkError: as :func:`solve` and :func:`orders_between`.
    """
    options = parse_set_options(trying.typed)
    solved = solve(
        network, OrderRequest(algo, trying.size_bytes, trying.model, options, moves=_MOVES, seed=trying.seed)
    )
    task = solved.task
    ranks = len(task.baseline)
    fabric = fabric_from(network)
    model = model_for(trying.model, fabric)
    price = pricing_for(algo, ranks, task.options, fabric, trying.size_bytes, model)
    slots = np.bincount(task.baseline, minlength=len(network.hosts))
    orders = orders_between(solved.found.order, slots, price, trying.orders, trying.seed)
    groups = task.options.groups if "groups" in ALGORITHMS[algo].options else None
    return Planned(
        algo, model, orders, trying.typed, None if groups is None else tuple(tuple(group) for group in groups), trying
    )


def priced_again(series: Series, network: Network, by: str | None = None) -> tuple[str, list[float]]:
    """By which model, and what the trials of a series cost on this network by the cost models as they are now.

    :param by: the model; None: that of the series, or the one that suits the network.
    :raises UsageError, NoAnswer: where the series tells too little, or speaks of other hosts.
    """
    if series.algo is None or series.size_bytes is None or not all(trial.hosts for trial in series.trials):
        raise UsageError("--results: these runs do not tell algorithm, size and hosts; leave NETWORK away")
    place = {name: k for k, name in enumerate(network.hosts.names)}
    fabric = fabric_from(network)
    slots = np.array([host.slots for host in network.hosts], dtype=np.intp)
    model = model_for((series.model or "auto") if by is None else by, fabric)
    if series.ranks not in (None, slots.sum()):
        raise NoAnswer(
            f"--results: {series.algo} was run by {series.ranks} ranks, and the hosts in {network.where} have "
            f"{slots.sum()} slots"
        )
    groups = None if series.groups is None else [list(group) for group in series.groups]
    options = options_from(list(series.options), [series.algo], groups)
    price = None
    found = []
    for trial in series.trials:
        if set(trial.hosts) != set(place) or len(trial.hosts) != len(place):
            raise NoAnswer(f"--results: order {trial.order} is not one of the hosts in {network.where}")
        hosts = np.array([place[name] for name in trial.hosts], dtype=np.intp)
        order = np.repeat(hosts, slots[hosts])
        price = price or pricing_for(series.algo, len(order), options, fabric, series.size_bytes, model)
        found.append(float(price(order)))
    return model, found


def describe(planned: Planned) -> None:
    """What will be run, on standard error."""
    costs = [cost for _, cost in planned.orders]
    trying = planned.trying
    rounds = trying.repeats + _WARM_UP
    predicted = ""
    if planned.model != "latency":
        predicted = f", some {format_us(sum(costs) * rounds)} in all if the model is right"
    say(
        f"{planned.algo}: {len(costs)} orders, {rounds} all-reduces of {format_bytes(trying.size_bytes)} each, "
        f"{format_us(costs[0])} to {format_us(costs[-1])} by {planned.model}{predicted}"
    )


def run_orders(
    network: Network, planned: Planned, runner_for: Callable[[str], Runner], machines: dict[str, dict[str, Any]],
    folder: Path,
) -> Series:  # fmt: skip
    """Run them, one job for all.

    :param runner_for: the runner of that name. :param folder: for what a launcher reads; it is ours.
    :raises PlinkError: when the job fails or tells no times.
    """
    trying, hosts = planned.trying, network.hosts
    asked = {
        "kind": "gloo" if planned.algo == _GLOO else "plink",
        "places": [_places(order, hosts) for order, _ in planned.orders],
        "size_bytes": trying.size_bytes,
        "warm_up": _WARM_UP,
        "repeats": trying.repeats,
    }
    from plink.runtime.order_timing import pack_config

    word = pack_config(asked)
    if len(word) > _MOST_WORD:
        raise UsageError(f"--orders {trying.orders}: too many for so many ranks to travel with the job; ask for fewer")
    name, job = _job(planned, network, word, folder)
    lines: dict[int | None, list[str]] = {}
    with progress("connecting", "copying", "repetitions") as bars:

        def sink(rank: int | None, stream: str, line: str) -> None:
            if stream == "out":
                lines.setdefault(rank, []).append(line)
                if rank == 0:
                    bars["repetitions"](len(lines[0]), trying.repeats)
            elif not line.startswith("plink: "):
                lines.setdefault(rank, []).append(line)

        watch = Watch(
            sink, lambda findings: None, time.monotonic, folder, bars["connecting"], bars["copying"], machines
        )
        result = runner_for(name).run(job, hosts, watch)
    if result.failure is not None:
        failure = result.failure
        said = " / ".join(line.strip() for line in failure.last_lines[-_LAST_LINES:]) or "it printed nothing"
        who = "the launcher" if failure.rank is None else f"rank {failure.rank} on {failure.host}"
        late = f" after {result.seconds:.0f} s (--timeout)" if result.timed_out else ""
        raise PlinkError(f"{planned.algo}: {who} failed{late}: {said}")
    samples = _samples(lines.get(0, []), len(planned.orders), trying.repeats, planned.algo)
    names = hosts.names
    trials = []
    for k, (order, cost) in enumerate(planned.orders):
        members = tuple(names[host] for host in dict.fromkeys(order.tolist()))
        trials.append(Trial(f"{k + 1} of {len(planned.orders)}", cost, tuple(samples[:, k].tolist()), members))
    ranks = len(planned.orders[0][0])
    return Series(
        tuple(trials), planned.algo, trying.size_bytes, planned.model, planned.options, planned.groups, ranks
    )  # fmt: skip


def _places(order: Order, hosts: Hosts) -> list[int]:
    """Where each rank of the job, whose hosts stand as in the network's file, stands in an order."""
    seats: dict[int, list[int]] = {}
    for place, host in enumerate(order.tolist()):
        seats.setdefault(host, []).append(place)
    return [place for host in range(len(hosts)) for place in seats.get(host, [])]


def _job(planned: Planned, network: Network, word: str, folder: Path) -> tuple[str, Job]:
    """The runner's name, and the job."""
    trying, hosts = planned.trying, network.hosts
    env = dict(LIBRARY_ENVIRONMENT.get(planned.algo, {}))
    if hosts.lab is not None:  # every lab host believes it has the machine's cores to itself
        env |= {"OMP_NUM_THREADS": "1", "OMPI_MCA_mpi_yield_when_idle": "1"}
    common: dict[str, Any] = {"timeout_s": trying.timeout_s, "interface": trying.interface}
    if planned.algo.startswith(_MPI):  # no agent of ours is there to copy the program: it travels as a word
        python = trying.python or (sys.executable if hosts.lab is not None else "python3")
        text = (_FOLDER / "order_timing_mpi.py").read_text()
        return "mpirun", Job(python, ("-c", text, word), ("/",), env=env | dict(trying.env), **common)
    if planned.algo != _GLOO:
        from plink.runtime.aggengine.aggregation import FILE, MAX_TEXT_BYTES, TEXT, SizeClass, aggregation_for_rate

        groups = None if planned.groups is None else [list(group) for group in planned.groups]
        ranks = len(planned.orders[0][0])
        schedule = schedule_for(planned.algo, ranks, options_from(list(planned.options), [planned.algo], groups))
        paced = aggregation_for_rate((SizeClass(None, planned.algo, schedule),), fabric_from(network).rate_gbps)
        aggregation = replace(paced, smallest_bytes=0)  # Gloo does none of it
        if len(told := aggregation.to_text()) > MAX_TEXT_BYTES:
            raise UsageError(
                f"--algo {planned.algo}: the schedule for {ranks} ranks is too large to travel with the job"
            )
        env |= {TEXT: told, FILE: ""}
    programs = folder / "program"
    programs.mkdir()
    (programs / "order_timing.py").write_text((_FOLDER / "order_timing.py").read_text())
    pythons = (trying.python,) if trying.python else (sys.executable, "python3")
    job = Job("order_timing.py", (word,), (str(programs),), pythons, env | dict(trying.env), sync=programs, **common)
    return "ssh", job


def _samples(lines: list[str], orders: int, repeats: int, algo: str) -> Any:
    """Seconds, shape (repeats, orders)."""
    rows = []
    for line in lines:
        try:
            row = json.loads(line)["seconds"]
        except (ValueError, KeyError, TypeError):
            continue  # a library's own word
        rows.append(row)
    if len(rows) != repeats or not all(isinstance(row, list) and len(row) == orders for row in rows):
        raise PlinkError(f"{algo}: {repeats} repetitions of {orders} orders were run, and the job told {len(rows)}")
    found = np.array(rows, dtype=np.float64)
    if not (found > 0).all():
        raise PlinkError(f"{algo}: an all-reduce took no time by the hosts' clocks; ask for more than --size gives now")
    return found
