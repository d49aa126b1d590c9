"""Simulate a plan of a pipeline on a measured network, or on hosts that are alike."""

import logging
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from plink.api.algorithms import fabric_from
from plink.errors import InputError, NoAnswer, UsageError
from plink.model.network import Network
from plink.model.pipeline.plan import PipelinePlan
from plink.model.pipeline.profile import ModelProfile
from solvers.costs.fabric import Fabric
from solvers.pipeline.simulator import PipelineSimulation, simulate_pipeline
from solvers.pipeline.stage_costs import costs_of_plan
from solvers.pipeline.training_job import PlacedPipeline, Watch
from solvers.simulation.network import SimulatedNetwork

_log = logging.getLogger("plink.pipeline")
_LIMITING_SHARE = 0.9  # of the time, from which on a rank or a link is what limits


@dataclass(frozen=True)
class SimulatedPlan:
    """A plan's simulation. ``network``: its fingerprint, None for hosts that are alike."""

    plan: PipelinePlan
    result: PipelineSimulation
    capacities: str
    network: str | None

    @property
    def limited_by(self) -> str:
        """Name the rank or link that is busy most of the time, or what all wait for where none is."""
        stage, replica, busy = self.result.busiest
        names = self.plan.host_names()
        link, used = self.result.links[0] if self.result.links else ("", 0.0)
        if max(busy, used) >= _LIMITING_SHARE:
            return f"compute of {names[self.plan.stages[stage].ranks[replica]]}" if busy >= used else link
        shares = self.result.shares[stage][replica]
        waits = {
            "activations": shares.activations, "gradients": shares.gradients, "the all-reduce": shares.all_reduce,
        }  # fmt: skip
        waited_for = max(waits, key=lambda name: waits[name])
        return f"waiting for {waited_for} in stage {stage}"

    def to_json(self) -> dict[str, Any]:
        """Return ``plink.pipeline-simulation/1``."""
        result, names = self.result, self.plan.host_names()
        ranks = [
            {
                "rank": rank, "host": names[rank], "stage": stage, "busy": _share(shares.busy),
                "waits_for_activations": _share(shares.activations),
                "waits_for_gradients": _share(shares.gradients), "waits_for_all_reduce": _share(shares.all_reduce),
            }
            for stage, replicas in enumerate(result.shares)
            for rank, shares in zip(self.plan.stages[stage].ranks, replicas, strict=True)
        ]  # fmt: skip
        return {
            "schema": "plink.pipeline-simulation/1",
            "network": self.network,
            "capacities": self.capacities,
            "kind": self.plan.kind,
            "replicas": list(self.plan.replicas),
            "minibatches": result.minibatches,
            "minibatch_s": result.minibatch_s,
            "items_per_s": self.plan.minibatch / result.minibatch_s,
            "periodic": result.is_periodic,
            "fill_s": result.fill_s,
            "job_s": result.makespan_s,
            "limited_by": self.limited_by,
            "ranks": sorted(ranks, key=lambda rank: rank["rank"]),
            "links": [{"name": name, "used": used} for name, used in result.links],
        }


def _share(value: float) -> float:
    return min(1.0, round(value, 6))


@dataclass(frozen=True)
class PipelineSimulationRequest:
    """``minibatches``: None: enough for a steady state. ``gbps``: rate of hosts where the network has none.
    ``with_timeline``: also when each action begins and ends."""

    minibatches: int | None = None
    gbps: float | None = None
    with_timeline: bool = False


def simulate_plan(
    plan: PipelinePlan, profile: ModelProfile, network: Network | float,
    request: PipelineSimulationRequest = PipelineSimulationRequest(), watch: Watch | None = None,
) -> SimulatedPlan:  # fmt: skip
    """Simulate a plan.

    :param network: measured, or the Gbit/s of every host where all are alike. :param watch: called with how much is
        done, and how much there is to do.
    :raises UsageError: for hosts that the network does not have, and for a job that would take many minutes.
    :raises NoAnswer: as :func:`rated_fabric`, and for round trips that were not measured. :raises InputError: when the
        plan's own actions were edited.
    """
    if plan.actions is not None:
        raise InputError("actions", "a plan with actions of its own cannot be simulated; leave them out")
    names = list(dict.fromkeys(plan.host_names()))
    if isinstance(network, Network):
        check_hosts(names, network)
        fabric = rated_fabric(network, request.gbps)
        simulated, capacities, fingerprint = SimulatedNetwork.of(fabric), fabric.capacities, network.fingerprint()
    else:
        rates = np.full(len(names), network)
        simulated = SimulatedNetwork(tuple(names), np.zeros((len(names),) * 2), None, rates, rates, ())
        capacities, fingerprint = f"assumed: {network:g} Gbit/s a host, no latency, no shared links", None
    slowness = [profile.slowness.get(name, 1.0) for name in simulated.names]
    placed = PlacedPipeline.of(plan, costs_of_plan(plan, profile), simulated, slowness)
    result = simulate_pipeline(placed, request.minibatches, request.with_timeline, watch)
    return SimulatedPlan(plan, result, capacities, fingerprint)


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
        fabric, host_out_gbps=rates, host_in_gbps=rates, group_out_gbps=fabric.group_out_gbps * scale,
        group_in_gbps=fabric.group_in_gbps * scale,
        capacities=f"assumed: {gbps:g} Gbit/s a host, groups inferred from the latency tiers",
    )  # fmt: skip


def check_hosts(names: list[str], network: Network) -> None:
    """Refuse hosts that a network does not have.

    :raises UsageError: naming them.
    """
    others = [name for name in names if name not in set(network.hosts.names)]
    if others:
        more = f" and {len(others) - 3} more" if len(others) > 3 else ""
        raise UsageError(
            f"{network.location} is of other hosts: it does not have {', '.join(others[:3])}{more}; probe these hosts"
        )
