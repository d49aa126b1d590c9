"""Choose the schedules by which the ranks of a job all-reduce (``plink launch --backend``).

Imported when a backend is asked for: it needs the solvers, and the runtime's document needs torch.
"""

import contextlib
import math
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from plink.errors import InputError, NoAnswer, UsageError, no_choice
from plink.features.advise.run import ALL_INTERFACES, SizedCost, bcube_of
from plink.features.cost.request import CostRequest
from plink.features.cost.run import cost
from plink.features.order.algorithms import fabric_from, options_of, order_from
from plink.features.order.hubs import Ranks, core_limits, hub_processes, hubs_limited_by_cores, sizes_for, with_hubs
from plink.features.order.interfaces import (
    BCUBE_ALGORITHMS,
    exchanges_on_switches,
    fabric_of_algorithm,
    interface_topology,
    own_options,
    rail_names,
)
from plink.features.plan.request import PlanRequest
from plink.features.plan.run import masters_of
from plink.features.plan.run import plan as make_plan
from plink.model.hosts import Hosts
from plink.model.network import Network, read_network
from plink.model.order import RankOrder
from plink.model.plan import PLAN, Plan, read_plan
from plink.model.schedule import Schedule
from plink.model.schedule_file import schedule_from_json
from plink.model.storage import name_of, read_document
from plink.model.subnetwork import subnetwork
from plink.model.units import format_bytes
from plink.records import workspace
from plink.runtime.allreduce.aggregation import (
    Aggregation,
    SizeClass,
    aggregation_for_plan,
    aggregation_for_rate,
    over_rails,
)
from plink.runtime.torch_backend import VARIABLE
from plink.terminal.inputs import last_groups
from plink.terminal.screen import say
from runners.autotune.daemon import schedule_for as schedule_of_masters
from runners.job.placement import process_name
from solvers.advice import PricedAlgorithm, fastest_lines, simulated_envelope
from solvers.autotune.observed import MasterAssignment
from solvers.costs.by_name import CONTENTION, model_for, pattern_for
from solvers.costs.fabric import Fabric
from solvers.costs.least_time import has_known_links, tier_tree
from solvers.ordering.interfaces import BCube, Rails
from solvers.planning import AllReduce, schedule_of, two_level_cost
from solvers.schedules.catalogue import ALGORITHMS, HUB_ALGORITHMS, HUBS, Options, schedule_for
from solvers.schedules.masters import equal_chunks
from solvers.schedules.verifier import verify
from solvers.simulation.cost import cost_by_model

AUTO, GLOO = "auto", "gloo"
# What `auto` chooses from: what differs in form. Gloo stands for itself.
_CANDIDATES = (GLOO, "ring", "flat", "halving-doubling", "bcube", "double-binary-tree")
_PLAN_SIZE_BYTES = 25e6
_MIN_SIZE_BYTES, _MAX_SIZE_BYTES = 4.0, 1e9
_SAMPLE_SIZES = (_MIN_SIZE_BYTES, 16e3, 256e3, 2e6, 25e6, _MAX_SIZE_BYTES)
_MIN_REPORT_INTERVAL_S = 0.1
_MASTER_ALGORITHMS = ("2lha", "flat")
# Chunks a rank where masters move: the parts of a rank that is half as fast, or a quarter, are whole chunks.
_TUNED_CHUNKS_PER_RANK = 4


@dataclass(frozen=True)
class Backend:
    """A job's backend. ``environment``: variables that select it in the ranks; ``masters``: where Autotune starts,
    None without Autotune. ``rails``: the interfaces that its channels use in turns; empty: that which leads to the
    other hosts. ``hubs``: the host of each hub process."""

    environment: dict[str, str]
    masters: MasterAssignment | None = None
    rails: tuple[str, ...] = ()
    hubs: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Job:
    """Job that is to run by a backend. ``hosts``: in rank order, and then hubs."""

    backend: str
    hosts: Hosts

    @property
    def ranks(self) -> int:
        """Number of ranks."""
        return sum(host.slots for host in self.hosts)

    @property
    def order(self) -> RankOrder:
        """Order of the ranks."""
        return RankOrder(algo="given", hosts=tuple(self.hosts.ranked().names))

    @cached_property
    def network(self) -> Network:
        """Network that was measured last, with the slots of the job: those of its file are from when it was measured.

        :raises NoAnswer: where there is none, or it lacks some of the hosts. :raises InputError: for a file that is
            none.
        """
        needs = f"--backend {self.backend}"
        network = read_network(workspace.NETWORK) if workspace.NETWORK.is_file() else None
        has_hosts = network is not None and set(self.hosts.names) <= set(network.hosts.names)
        if not has_hosts and len({(host.address, host.port) for host in self.hosts}) == 1:
            raise NoAnswer(
                f"{needs} goes by a measured network, and one machine has none; ring and flat need none, nor does phub "
                "with --runner local"
            )
        if network is None:
            raise NoAnswer(f"{needs} needs a measured network: run `plink probe` first, or give a plan: --order")
        if not has_hosts:
            raise NoAnswer(
                f"{needs}: {workspace.NETWORK} is of other hosts; `plink probe` these, or give a plan: --order"
            )
        return subnetwork(network, self.hosts)


# Schedules of a job by size, the plan of two-level aggregation among them, and the host of each hub process.
_Choice = tuple[tuple[SizeClass, ...], Plan | None, tuple[str, ...]]


def backend_for(
    backend: str, hosts: Hosts, plan_file: Path | None, every_s: float | None = None, starts_hubs: bool = True
) -> Backend:
    """Return the backend that runs all-reduces by this algorithm, and say what was chosen.

    :param hosts: in rank order, and then hubs. :param plan_file: whose schedule it is, where a plan was given.
    :param every_s: how often ranks tell what they saw, so that masters can be moved (Autotune); None: never.
    :param starts_hubs: hubs among the hosts can be started; else ``auto`` takes none.
    :raises UsageError, NoAnswer: for an algorithm that there is none of, or one that needs a network nobody measured.
    """
    check_backend(backend, every_s)
    check_hosts(backend, hosts)
    job = _Job(backend, hosts)
    classes, plan, hubs = _choose(job, plan_file, takes_hubs=starts_hubs and every_s is None)
    ranks, rails, rate_gbps = job.ranks, tuple[str, ...](), math.inf if len(hosts) == 1 else None
    if len(hosts) > 1:
        with contextlib.suppress(InputError, NoAnswer):  # the algorithm needs no network
            rate_gbps = fabric_from(job.network).rate_gbps
            rails = rail_names(job.network)
    for entry in classes:
        if entry.schedule is not None and entry.schedule.ranks not in (ranks, ranks + len(hubs)):
            raise UsageError(
                f"--backend {backend}: a schedule of {entry.schedule.ranks} ranks, and the job has {ranks}"
            )
    aggregation = aggregation_for_rate(classes, rate_gbps) if plan is None else aggregation_for_plan(classes, plan)
    if rails:
        aggregation = over_rails(aggregation, len(rails))
        say(f"channels use {len(rails)} rails: {', '.join(rails)}")
    aggregation = replace(aggregation, hubs=tuple(f"{process_name(0, k)} on {host}" for k, host in enumerate(hubs)))
    masters = None
    if every_s is not None:
        aggregation, masters = _with_tunable_masters(aggregation, ranks, plan, plan_file is not None, every_s)
    environment = {VARIABLE: backend, **aggregation.to_environment()}
    for k, entry in enumerate(classes):
        lower = "" if k == 0 else f" from {format_bytes(classes[k - 1].up_to_bytes or 0)}"
        upper = "" if entry.up_to_bytes is None else f" up to {format_bytes(entry.up_to_bytes)}"
        say(f"all-reduces{lower}{upper or (' of any size' if k == 0 else ' on')}: {entry.algo}")
    if any(entry.schedule is not None for entry in classes):
        say("ranks time these against Gloo when they start, and take the faster")
    if masters is not None:
        say(f"autotune: ranks report throughput every {every_s:g} s")
    if hubs:
        say(f"hubs: {', '.join(aggregation.hubs)}")
    return Backend(environment, masters, rails, hubs)


def _choose(job: _Job, plan_file: Path | None, takes_hubs: bool) -> _Choice:
    """Return the schedules that the backend names: a file's, a plan's, the cheapest ones or an algorithm's."""
    if _is_file(job.backend):
        schedule = _user_schedule(job.backend, job.ranks)
        if errors := verify(schedule):
            raise InputError(job.backend, f"{errors[0]} (`plink schedule verify {job.backend}` lists all)")
        return (SizeClass(None, schedule.algo, schedule),), None, ()
    if plan_file is None and job.backend == AUTO:
        return _cheapest_by_size(job, takes_hubs)
    if plan_file is None and job.backend in HUB_ALGORITHMS:
        return _hub_schedule(job)
    if plan_file is None and job.backend != "2lha":
        schedule = schedule_for(job.backend, job.ranks, _options_for(job))
        return (SizeClass(None, job.backend, schedule),), None, ()
    plan = _two_level_plan(job) if plan_file is None else read_plan(plan_file)
    if job.backend != plan.algo:
        raise UsageError(f"--backend {job.backend}: {plan_file} is a plan for {plan.algo}")
    return (SizeClass(None, job.backend, schedule_of(plan)),), plan, ()


def check_backend(backend: str, every_s: float | None = None) -> None:
    """Refuse what is no backend, whatever the job. ``every_s`` as of :func:`backend_for`.

    :raises UsageError: for an algorithm that there is none of. :raises InputError: for a file that cannot be read.
    """
    if backend == GLOO:
        raise UsageError("--backend gloo: PyTorch's own does that; omit --backend")
    if _is_file(backend):
        read_document(backend)
    elif backend not in (AUTO, *ALGORITHMS):
        names = [name for name in ALGORITHMS if name != GLOO]
        raise no_choice("--backend", backend, (AUTO, *names), ", or a schedule's file")
    if every_s is not None:
        _check_tuning(backend, every_s)


def check_hosts(backend: str, hosts: Hosts) -> None:
    """Refuse what cannot be for the job's hosts, hubs among them, whatever their network.

    :raises UsageError: for too few ranks, no hub, or a schedule of other ranks. :raises InputError: for a file that is
        no schedule.
    """
    ranks = sum(host.slots for host in hosts)
    if ranks < 2:
        raise UsageError("--backend needs two ranks or more")
    if backend in HUB_ALGORITHMS and not hosts.hubs:
        raise UsageError(f"--backend {backend} needs a host with role=hub in the hosts file")
    if _is_file(backend):
        _user_schedule(backend, ranks)


def _is_file(backend: str) -> bool:
    return backend.endswith((".json", ".json.gz"))


def _check_tuning(backend: str, every_s: float) -> None:
    """:raises UsageError: for what Autotune cannot do, whatever the network."""
    if every_s < _MIN_REPORT_INTERVAL_S:
        raise UsageError(
            f"--set autotune-every={every_s:g}s: {_MIN_REPORT_INTERVAL_S:g}s at least, all ranks pause to report"
        )
    if backend not in (AUTO, *_MASTER_ALGORITHMS):
        raise UsageError(
            f"--autotune moves masters between ranks: it needs --backend {' or '.join(_MASTER_ALGORITHMS)}"
        )


def _with_tunable_masters(
    aggregation: Aggregation, ranks: int, plan: Plan | None, keeps_chunks: bool, every_s: float
) -> tuple[Aggregation, MasterAssignment]:
    """Return the aggregation with masters that Autotune can move: the plan's own, or finer chunks.

    :param plan: what two-level aggregation goes by. :param keeps_chunks: it is the user's.
    :raises UsageError: where nothing has masters.
    """
    tunable = [k for k, entry in enumerate(aggregation.classes) if entry.algo in _MASTER_ALGORITHMS]
    if not tunable:
        raise UsageError(
            f"--autotune needs --backend {' or '.join(_MASTER_ALGORITHMS)}; auto found others cheaper here"
        )
    algo = aggregation.classes[tunable[-1]].algo
    if algo == "flat":
        one_group = (tuple(range(ranks)),)
        local, group = equal_chunks(one_group, _TUNED_CHUNKS_PER_RANK * ranks)
        masters = MasterAssignment(one_group, local, group)
    else:
        if plan is None or plan.groups is None or plan.masters is None:
            raise UsageError("--autotune: the plan has no groups and masters")
        chunk_masters = masters_of(plan) if keeps_chunks else equal_chunks(plan.groups, _TUNED_CHUNKS_PER_RANK * ranks)
        masters = MasterAssignment(plan.groups, *chunk_masters)
    classes = list(aggregation.classes)
    classes[tunable[-1]] = replace(classes[tunable[-1]], schedule=schedule_of_masters(masters))
    return replace(aggregation, classes=tuple(classes), tuned=tunable[-1], every_s=every_s), masters


def _user_schedule(path: str, ranks: int) -> Schedule:
    """Read a user's schedule.

    :raises InputError: for a file that is none. :raises UsageError: for one of other ranks.
    """
    if (document := read_document(path)).get("schema") == PLAN:
        algo = document.get("algo")
        backend = f" --backend {algo}" if algo in [name for name in ALGORITHMS if name != GLOO] else ""
        raise UsageError(f"--backend {path}: that is a plan; write --order {path}{backend}")
    schedule = schedule_from_json(document, name_of(path))
    if schedule.collective != "all-reduce":
        raise InputError(path, f"{schedule.collective} was found, an all-reduce was expected")
    if schedule.ranks != ranks:
        raise UsageError(f"--backend {path}: a schedule of {schedule.ranks} ranks, and the job has {ranks}")
    return schedule


def _hub_schedule(job: _Job) -> _Choice:
    """Return the schedule of the ranks and hub processes, and the host of each of these.

    :raises UsageError: without a hub in each group of hosts. :raises NoAnswer: for groups that nobody
        measured.
    """
    backend, ranks = job.backend, job.ranks
    try:
        network = job.network
    except NoAnswer:
        if backend == "phub-2l":
            raise
        rates, cores = [host.gbps for host in job.hosts.hubs], [None] * len(job.hosts.hubs)
        for line in core_limits([host.name for host in job.hosts.hubs], rates, cores):
            say(f"warning: {line}")
        places, weights = hub_processes(rates, cores)
        names = tuple(job.hosts.hubs[place].name for place in places)
        schedule = schedule_for(backend, ranks + len(names), Options(servers=len(names), weights=weights))
        return (SizeClass(None, backend, schedule),), None, names
    fabric = fabric_from(network)
    joined = with_hubs(network, fabric, backend, order_from(network, job.order), Options())
    for line in hubs_limited_by_cores(network, fabric):
        say(f"warning: {line}")
    with contextlib.suppress(NoAnswer):
        of_hubs, of_ring = (
            cost(network, job.order, CostRequest(algo, _PLAN_SIZE_BYTES, "contention", random=0)).cost_us
            for algo in (backend, GLOO)
        )
        gain = f"by the measured rates {of_ring / of_hubs:.2g} times as fast as Gloo's ring at 25 MB"
        say(f"{backend}: {gain}" if of_hubs < of_ring else f"warning: {backend} is {gain}: omit --backend {backend}")
    schedule = schedule_for(backend, len(joined.order), joined.options)
    names = tuple(fabric.names[host] for host in joined.order[ranks:])
    return (SizeClass(None, backend, schedule),), None, names


def _options_for(job: _Job) -> Options:
    """Return the algorithm's options: the base of the BCube that interfaces form, else one that fits the ranks."""
    backend, ranks = job.backend, job.ranks
    if backend == HUBS:
        network = job.network
        fabric = fabric_of_algorithm(network, fabric_from(network), HUBS)
        return Options(tree=tier_tree(fabric, order_from(network, job.order)))
    if backend not in BCUBE_ALGORITHMS:
        slots = sorted({host.slots for host in job.hosts if host.slots})
        if backend == "nccl-tree" and len(slots) > 1:
            say(f"hosts have {slots[0]} to {slots[-1]} slots: nccl-tree is trees of ranks, not of hosts")
        return Options(slots=slots[0] if len(slots) == 1 else 1)
    # Each channel has a rail of its own: rings on all rails are one ring.
    fitting = Options(base=ranks if backend == "multi-ring" else _fitting_base(ranks))
    with contextlib.suppress(NoAnswer):  # it runs without a measured network
        topology = interface_topology(job.network)
        shape = None if topology is None else topology.shape
        if isinstance(shape, BCube) and len(shape.digits) == ranks:
            names = job.network.hosts.names
            if not exchanges_on_switches(shape, [names.index(name) for name in job.hosts.names]):
                advice = f"`plink reorder --algo {backend}` makes it"
                say(f"{backend}: ranks are not in the order of the interfaces; {advice}")
            return Options(base=shape.base)
        if isinstance(shape, Rails):
            return fitting
    if backend == "bml":
        say("bml gains by interfaces that form a BCube of one rank a host, and none was measured here (`plink probe`)")
    return fitting


def _fitting_base(ranks: int) -> int:
    """Return the least base of which a number of ranks is a power, 2 where there is none."""
    fitting = (base for base in range(2, math.isqrt(ranks) + 1) if base ** round(math.log(ranks, base)) == ranks)
    return next(fitting, 2)


def _two_level_plan(job: _Job) -> Plan:
    """Return a plan for its masters; its costs, by any model, are not used."""
    groups = last_groups(job.network, job.order)
    request = PlanRequest(
        "2lha", _PLAN_SIZE_BYTES, "latency", job.order, groups=groups, groups_source=str(workspace.GROUPS)
    )
    return make_plan(job.network, request)


def _cheapest_by_size(job: _Job, takes_hubs: bool) -> _Choice:
    """Return the cheapest algorithm at each size (by shared links, else latency and bandwidth)."""
    network, hosts, ranks = job.network, job.hosts, job.ranks
    fabric = fabric_from(network)
    model = model_for("auto", fabric, timed=True)
    if model == "latency":
        raise NoAnswer(
            "--backend auto chooses by size and needs rates; `plink probe` measures those of hosts, or of their "
            "interfaces (omit --no-host-rates), or of every pair (--bandwidth)"
        )
    order = order_from(network, job.order)
    fitting: dict[str, tuple[Options, Ranks]] = {}  # and the host of each rank and hub
    # Where interfaces form a BCube, also what uses all of them at once.
    for algo in _CANDIDATES if bcube_of(network) is None else (*_CANDIDATES, *ALL_INTERFACES):
        options = options_of(own_options(network, algo, ranks), [algo])
        with contextlib.suppress(UsageError):  # ranks that do not fit
            pattern_for(algo, ranks, options)
            fitting[algo] = options, order
    if has_known_links(of_hubs := fabric_of_algorithm(network, fabric, HUBS)):
        fitting[HUBS] = Options(tree=tier_tree(of_hubs, order)), order
    hubs: tuple[str, ...] = ()
    for algo in HUB_ALGORITHMS if takes_hubs and hosts.hubs else ():
        with contextlib.suppress(UsageError):  # no hub in each group
            joined = with_hubs(network, fabric, algo, order, Options())
            fitting[algo] = joined.options, joined.order
            hubs = tuple(fabric.names[host] for host in joined.order[ranks:])
    candidates = [
        _candidate(model, algo, options, fabric_of_algorithm(network, fabric, algo), hosts_of_ranks)
        for algo, (options, hosts_of_ranks) in fitting.items()
    ]
    schedules: dict[str, Schedule | None] = {GLOO: None}
    plan = _two_level_plan(job)
    if plan.groups is not None and plan.masters is not None and len(plan.groups) > 1:
        groups, masters, by_masters = plan.groups, masters_of(plan), fabric_of_algorithm(network, fabric, "2lha")

        def cost_of_plan(size_bytes: float) -> float:
            return two_level_cost(groups, masters, AllReduce(by_masters, order, size_bytes, model))

        candidates.append(PricedAlgorithm("2lha", "job", cost_of_plan))
        schedules["2lha"] = schedule_of(plan)
    classes: list[SizeClass] = []
    lines = fastest_lines(candidates, sizes_for(fitting, _SAMPLE_SIZES, fabric.rate_gbps))
    for stretch in simulated_envelope(lines, _MIN_SIZE_BYTES, _MAX_SIZE_BYTES):
        algo = stretch.line.algo
        limit = None if stretch.to_bytes >= _MAX_SIZE_BYTES else int(stretch.to_bytes)
        if limit is not None and classes and limit == classes[-1].up_to_bytes:
            continue  # no size is between two crossings
        if algo not in schedules:
            options, hosts_of_ranks = fitting[algo]
            schedules[algo] = schedule_for(algo, len(hosts_of_ranks), options)
        classes.append(SizeClass(limit, algo, schedules[algo]))
    return tuple(classes), plan, hubs if any(entry.algo in HUB_ALGORITHMS for entry in classes) else ()


def _candidate(model: str, algo: str, options: Options, fabric: Fabric, order: Ranks) -> PricedAlgorithm:
    if model == CONTENTION:
        sized = SizedCost(model, algo, options, fabric, order)
        busiest_us = sized.prepared(_MAX_SIZE_BYTES).busiest_us(order)
        return PricedAlgorithm(algo, "job", sized, busiest_us / _MAX_SIZE_BYTES)
    return PricedAlgorithm(
        algo, "job", lambda size: cost_by_model(algo, len(order), options, fabric, size, model)(order)
    )
