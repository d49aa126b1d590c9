"""Simulate a plan of a pipeline on a measured network, or on hosts that are alike."""

from dataclasses import dataclass

import numpy as np

from plink.errors import InputError, UsageError
from plink.features.pipeline.plan import check_hosts, rated_fabric
from plink.features.pipeline.request import PipelineSimulationRequest
from plink.model.network import Network
from plink.model.pipeline.plan import PipelinePlan
from plink.model.pipeline.profile import ModelProfile
from plink.model.pipeline.results import SimulatedLink, SimulatedPipeline, SimulatedRank
from plink.model.pipeline.timeline import TimedAction
from solvers.pipeline.simulator import PipelineSimulation
from solvers.pipeline.simulator import simulate_pipeline as simulate_placed
from solvers.pipeline.stage_costs import costs_of_plan
from solvers.pipeline.training_job import PlacedPipeline, Watch
from solvers.simulation.job import SimulatedNetwork


@dataclass(frozen=True)
class SimulatedPlan:
    """A plan's simulation; ``timeline``: when each action begins and ends, where that was asked for."""

    document: SimulatedPipeline
    timeline: tuple[TimedAction, ...]


def simulate_pipeline(
    plan: PipelinePlan, profile: ModelProfile, network: Network | None = None,
    request: PipelineSimulationRequest = PipelineSimulationRequest(), with_timeline: bool = False,
    watch: Watch | None = None,
) -> SimulatedPlan:  # fmt: skip
    """Simulate a plan.

    :param network: measured; None: all hosts have the request's ``gbps``. :param watch: called with how much is done,
        and how much there is to do.
    :raises UsageError: for hosts that the network does not have, and for a job that would take many minutes.
    :raises NoAnswer: as :func:`rated_fabric`, and for round trips that were not measured. :raises InputError: when the
        plan's own actions were edited.
    """
    if plan.actions is not None:
        raise InputError("actions", "a plan with actions of its own cannot be simulated; leave them out")
    names = list(dict.fromkeys(plan.host_names()))
    if network is not None:
        check_hosts(names, network)
        fabric = rated_fabric(network, request.gbps)
        simulated, capacities = SimulatedNetwork.of(fabric), fabric.capacities
    elif request.gbps is not None:
        rates = np.full(len(names), request.gbps)
        simulated = SimulatedNetwork(tuple(names), np.zeros((len(names),) * 2), None, rates, rates, ())
        capacities = f"assumed: {request.gbps:g} Gbit/s a host, no latency, no shared links"
    else:
        raise UsageError("a network, or --gbps R for hosts that are alike, is needed")
    slowness = [profile.slowness.get(name, 1.0) for name in simulated.names]
    placed = PlacedPipeline.of(plan, costs_of_plan(plan, profile), simulated, slowness)
    result = simulate_placed(placed, request.minibatches, with_timeline, watch)
    document = SimulatedPipeline(
        network=None if network is None else network.fingerprint(),
        capacities=capacities,
        kind=plan.kind,
        replicas=plan.replicas,
        minibatches=result.minibatches,
        minibatch_s=result.minibatch_s,
        items_per_s=plan.minibatch / result.minibatch_s,
        periodic=result.is_periodic,
        fill_s=result.fill_s,
        job_s=result.makespan_s,
        limited_by=_limit(plan, result),
        ranks=_ranks(plan, result),
        links=tuple(SimulatedLink(name=name, used=used) for name, used in result.links),
    )
    return SimulatedPlan(document, result.timeline)


def _limit(plan: PipelinePlan, result: PipelineSimulation) -> str:
    """Name the rank or link that is busy most of the time, or what all wait for where none is."""
    names = plan.host_names()
    if busiest := result.limit(lambda stage, replica: names[plan.stages[stage].ranks[replica]]):
        return busiest
    stage, replica, _ = result.busiest
    shares = result.shares[stage][replica]
    waits = {"activations": shares.activations, "gradients": shares.gradients, "the all-reduce": shares.all_reduce}
    return f"waiting for {max(waits, key=lambda name: waits[name])} in stage {stage}"


def _ranks(plan: PipelinePlan, result: PipelineSimulation) -> tuple[SimulatedRank, ...]:
    names, ranks = plan.host_names(), []
    for stage, replicas in enumerate(result.shares):
        for rank, shares in zip(plan.stages[stage].ranks, replicas, strict=True):
            values = (shares.busy, shares.activations, shares.gradients, shares.all_reduce)
            busy, activations, gradients, all_reduce = (min(1.0, round(value, 6)) for value in values)
            ranks.append(
                SimulatedRank(
                    rank=rank, host=names[rank], stage=stage, busy=busy, waits_for_activations=activations,
                    waits_for_gradients=gradients, waits_for_all_reduce=all_reduce,
                )
            )  # fmt: skip
    return tuple(sorted(ranks, key=lambda entry: entry.rank))
