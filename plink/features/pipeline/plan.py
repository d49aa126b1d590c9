"""Plan pipelines on measured networks and on hosts that are alike, and prove plans."""

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import SupportsIndex

import numpy as np
from msgspec import structs

from plink.errors import InputError, NoAnswer, UsageError
from plink.features.order.algorithms import fabric_from
from plink.features.pipeline.request import MAX_WORKERS, UNLIMITED_GBPS, PipelineRequest, PipelineSimulationRequest
from plink.model.hosts import Host, Hosts, read_hosts
from plink.model.network import Network
from plink.model.pipeline.actions import PipelineAction
from plink.model.pipeline.plan import PipelinePlan
from plink.model.pipeline.profile import ModelProfile
from plink.model.pipeline.results import (
    PipelineVerification,
    SimulatedLink,
    SimulatedPipeline,
    SimulatedRank,
    TimedAction,
)
from plink.model.pipeline.shape import minibatches_to_prove
from plink.model.subnetwork import check_measured
from solvers.costs.fabric import Fabric, alike_hosts
from solvers.pipeline.joint import plan_measured
from solvers.pipeline.joint_request import BYTES_PER_S_OF_GBPS, JointRequest, MeasuredHosts, requested_stages
from solvers.pipeline.joint_search import Watch
from solvers.pipeline.simulator import PipelineSimulation
from solvers.pipeline.simulator import simulate_pipeline as simulate_placed
from solvers.pipeline.stage_costs import costs_of_plan
from solvers.pipeline.thesis import NetworkLevel
from solvers.pipeline.training_job import PlacedPipeline
from solvers.pipeline.training_job import Watch as SimulationWatch
from solvers.pipeline.verifier import never_locks, verify_actions

_log = logging.getLogger("plink.pipeline")
_MAX_EXECUTED_ACTIONS = 2_000_000  # of plans whose depths only an execution proves


def plan_pipeline(
    profile: ModelProfile, request: PipelineRequest, network: Network | None = None, watch: Watch | None = None
) -> PipelinePlan:
    """Return the plan of least simulated seconds per minibatch, proven to end.

    :param network: measured; None: the request describes hosts that are alike. :param watch: called with how much is
        done, and of how much; returns whether to stop with what was found so far.
    :raises UsageError: when the request cannot be. :raises NoAnswer: for a network without rates, and when nothing
        fits in memory.
    """
    request.check_network(network is not None)
    measured = _even_hosts(request) if network is None else _measured_hosts(network, request)
    names = measured.fabric.names
    if unknown := [name for name in request.memory if name and name not in names]:
        raise UsageError(f"--memory {unknown[0]}=...: there is no such host")
    slots = {host.name: host.slots if measured.by_slot else 1 for host in measured.hosts}
    usual = request.memory.get("", math.inf)
    is_thesis = request.model == "thesis"
    joint = JointRequest(
        kind=request.planned_kind,
        model="thesis" if is_thesis else "contention",
        stages=None if request.stages is None else requested_stages(request.stages, profile, len(measured.workers)),
        depths=request.depths or ("noam" if is_thesis else None),
        accumulate=request.microbatches or 1,
        recompute=request.recompute,
        vertical_sync=request.vertical_sync,
        reduce=request.reduce,
        straight=request.straight,
        all_workers=request.all_workers,
        memory=tuple(request.memory.get(name, usual) / slots[name] for name in names) if request.memory else None,
        compare=request.compare,
        seed=request.seed or 0,
        moves=request.max_moves,
    )
    made = plan_measured(profile, measured, joint, watch)
    return made if network is None else structs.replace(made, network=network.fingerprint())


def _measured_hosts(network: Network, request: PipelineRequest) -> MeasuredHosts:
    hosts, usable = network.hosts, _read(request.hosts)
    fabric = rated_fabric(network, None if request.gbps is None else request.gbps[0])
    if not isinstance(usable, Hosts):
        return MeasuredHosts(hosts, fabric)
    check_measured(usable.names, network)
    slots = {host.name: host.slots for host in usable}
    hosts = Hosts(tuple(replace(host, slots=slots.get(host.name, host.slots)) for host in hosts), hosts.lab)
    return MeasuredHosts(hosts, fabric, frozenset(usable.names))


def _even_hosts(request: PipelineRequest) -> MeasuredHosts:
    """Return the hosts, with the levels that they make up.

    :raises UsageError: when these do not fit together.
    """
    assert request.gbps is not None
    read = _read(request.hosts)
    hosts = read if isinstance(read, Hosts) else _named_hosts(read or 0)
    slots = {host.slots for host in hosts}
    workers = sum(host.slots for host in hosts)
    if workers > MAX_WORKERS:
        raise UsageError(f"{workers} workers are more than can be planned for ({MAX_WORKERS})")
    rates, sizes = list(request.gbps), [workers]
    if request.levels is not None:
        sizes = list(request.levels)
    elif request.local_gbps is not None and max(slots) == 1:
        raise UsageError("--local-gbps is of slots that share a host; here every host has one slot")
    elif len(slots) == 1 and max(slots) > 1:
        sizes = [max(slots), len(hosts)]
        rates = [request.local_gbps or UNLIMITED_GBPS, *rates]
    if len(rates) != len(sizes):
        shown = ",".join(f"{rate:g}" for rate in request.gbps)
        raise UsageError(f"--gbps {shown}: one rate for each of {len(sizes)} levels, innermost first")
    if (product := math.prod(sizes)) != workers:
        shown = "x".join(map(str, sizes))
        raise UsageError(f"--levels {shown} are {product} workers, but the hosts have {workers}")
    levels = tuple(NetworkLevel(size, rate * BYTES_PER_S_OF_GBPS) for size, rate in zip(sizes, rates, strict=True))
    by_slot = request.levels is not None or request.local_gbps is not None
    return MeasuredHosts.even(hosts, levels, request.rtt_s or 0.0, by_slot)


def _read(hosts: int | str | Path | Hosts | None) -> int | Hosts | None:
    return read_hosts(hosts).ranked() if isinstance(hosts, str | Path) else hosts


def _named_hosts(number: int) -> Hosts:
    width = len(str(number - 1))
    return Hosts(tuple(Host(name, name) for name in (f"node-{k:0{width}d}" for k in range(number))))


def rated_fabric(network: Network, gbps: float | None) -> Fabric:
    """Return the fabric of a network, whose hosts have ``gbps`` where no rates were measured.

    :raises NoAnswer: when there are no rates at all, with the command that measures them.
    """
    fabric = fabric_from(network)
    if fabric.rate_gbps is not None:
        if gbps is not None:
            _log.warning("%s has measured rates: --gbps %g is not used", network.location, gbps)
        return fabric
    if gbps is None:
        raise NoAnswer(
            f"{network.location} has no rates; `plink probe HOSTS --bandwidth` measures them, --gbps R assumes one"
        )
    rates = np.full(len(fabric.names), gbps)
    # Capacities of groups were guessed for hosts of another rate.
    scale = gbps / float(np.median(fabric.host_out_gbps))
    return replace(
        fabric,
        host_out_gbps=rates,
        host_in_gbps=rates,
        group_out_gbps=fabric.group_out_gbps * scale,
        group_in_gbps=fabric.group_in_gbps * scale,
        capacities=f"assumed: {gbps:g} Gbit/s a host, groups inferred from the latency tiers",
    )


def check_profile(plan: PipelinePlan, profile: ModelProfile, location: str) -> None:
    """Refuse a plan that was made for another profile.

    :raises InputError: naming both digests, the layer that is not there, or the bytes that differ.
    """
    if plan.stages[-1].last != (last := len(profile.layers) - 1):
        reason = f"the plan ends with layer {plan.stages[-1].last}, the profile with {last}"
        raise InputError(f"{location}: stages", reason)
    if plan.profile is not None and plan.profile != profile.digest():
        reason = f"the plan was made for {plan.profile[:19]}, this profile is {profile.digest()[:19]}"
        raise InputError(f"{location}: profile", reason)
    for number, boundary in enumerate(plan.boundaries):
        layer = profile.layers[boundary.after]
        sizes = (layer.crossing_bytes, layer.crossing_back_bytes)
        if (boundary.forward_bytes, boundary.backward_bytes) != sizes:
            reason = (
                f"{boundary.forward_bytes} and {boundary.backward_bytes} bytes cross forward and back, in the profile"
            )
            raise InputError(f"{location}: boundaries[{number}]", f"{reason} {sizes[0]} and {sizes[1]}")


def verify_pipeline(plan: PipelinePlan, minibatches: int | None = None) -> PipelineVerification:
    """Return what is wrong with a plan's actions, and for how many minibatches that was looked at.

    A plan's own actions are of as many minibatches as they have forward passes of the first stage.

    :param minibatches: of the job; None: any number where that is proven, else two cycles.
    :raises UsageError: for what is no number of minibatches.
    """
    if minibatches is not None and not (isinstance(minibatches, SupportsIndex) and minibatches >= 1):
        raise UsageError(f"--minibatches {minibatches!r}: a whole number is needed, at least 1")
    shape, count = plan.shape, minibatches
    ranks = [stage.ranks for stage in plan.stages]
    own: dict[tuple[int, int], Sequence[PipelineAction]] | None = None
    if plan.actions is not None:
        own = {plan.place_of(rank): actions for rank, actions in enumerate(plan.actions)}
        count = max(1, sum(action.kind == "F" for rank in plan.stages[0].ranks for action in plan.actions[rank]))
    elif minibatches is None and not never_locks(shape):
        count = min(minibatches_to_prove(shape), _MAX_EXECUTED_ACTIONS // (4 * shape.stages))
    errors = tuple(verify_actions(shape, count, own, ranks))
    return PipelineVerification(valid=not errors, errors=errors, minibatches=count)


@dataclass(frozen=True)
class SimulatedPlan:
    """A plan's simulation; ``timeline``: when each action begins and ends, where that was asked for."""

    document: SimulatedPipeline
    timeline: tuple[TimedAction, ...]


def simulate_pipeline(
    plan: PipelinePlan,
    profile: ModelProfile,
    network: Network | None = None,
    request: PipelineSimulationRequest = PipelineSimulationRequest(),
    with_timeline: bool = False,
    watch: SimulationWatch | None = None,
    location: str = "the plan",
) -> SimulatedPlan:
    """Simulate a plan.

    :param network: measured; None: all hosts have the request's ``gbps``. :param watch: called with how much is done,
        and how much there is to do. :param location: names the plan in errors.
    :raises UsageError: for hosts that the network does not have, and for a job that would take many minutes.
    :raises NoAnswer: as :func:`rated_fabric`, and for round trips that were not measured. :raises InputError: when the
        plan's own actions were edited, or it was made for another profile.
    """
    check_profile(plan, profile, location)
    if plan.actions is not None:
        raise InputError(f"{location}: actions", "a plan with actions of its own cannot be simulated; leave them out")
    hosts = plan.host_names()
    names = list(dict.fromkeys(hosts))
    if network is not None:
        check_measured(names, network)
        fabric = rated_fabric(network, request.gbps)
    elif request.gbps is not None:
        what = f"assumed: {request.gbps:g} Gbit/s a host, no latency, no shared links"
        fabric = alike_hosts(names, request.gbps, what)
    else:
        raise UsageError("a network, or --gbps R for hosts that are alike, is needed")
    slowness = [profile.slowness.get(name, 1.0) for name in fabric.names]
    placed = PlacedPipeline.of(plan, costs_of_plan(plan, profile), fabric, slowness)
    result = simulate_placed(placed, request.minibatches, with_timeline, watch)
    document = SimulatedPipeline(
        network=None if network is None else network.fingerprint(),
        capacities=fabric.capacities,
        kind=plan.kind,
        replicas=plan.replicas,
        minibatches=result.minibatches,
        minibatch_s=result.minibatch_s,
        items_per_s=plan.minibatch / result.minibatch_s,
        periodic=result.is_periodic,
        fill_s=result.fill_s,
        job_s=result.makespan_s,
        limited_by=result.limit(lambda stage, replica: hosts[plan.stages[stage].ranks[replica]]),
        ranks=_ranks(plan, result),
        links=tuple(SimulatedLink(name=name, used=used) for name, used in result.links),
    )
    return SimulatedPlan(document, result.timeline)


def _ranks(plan: PipelinePlan, result: PipelineSimulation) -> tuple[SimulatedRank, ...]:
    names, ranks = plan.host_names(), []
    for stage, replicas in enumerate(result.shares):
        for rank, shares in zip(plan.stages[stage].ranks, replicas, strict=True):
            values = (shares.busy, shares.activations, shares.gradients, shares.all_reduce)
            busy, activations, gradients, all_reduce = (min(1.0, round(value, 6)) for value in values)
            ranks.append(
                SimulatedRank(
                    rank=rank,
                    host=names[rank],
                    stage=stage,
                    busy=busy,
                    waits_for_activations=activations,
                    waits_for_gradients=gradients,
                    waits_for_all_reduce=all_reduce,
                )
            )
    return tuple(sorted(ranks, key=lambda entry: entry.rank))
