"""What a plan says of itself: predictions of its stages, of the whole, and of other ways to train."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from plink.model.pipeline.plan import PipelinePlan
from plink.model.pipeline.versions import delay_of, minibatches_per_update
from solvers.pipeline.joint_search import lower_bound_s
from solvers.pipeline.simulated_ways import SimulatedWay, WaySimulator

_LIMITING_SHARE = 0.9


def describe_way(
    simulator: WaySimulator, best: SimulatedWay, ways: Sequence[SimulatedWay], has_bound: bool
) -> PipelinePlan:
    """Return the plan of a way, with what is predicted of it and of other ways; ``has_bound``: also the least seconds
    that any plan could take."""
    request, plan, result = simulator.request, best.plan, best.result
    model = simulator.model_of(best)
    bound_s = lower_bound_s(model, simulator.measured.workers) if has_bound else None
    needed = model.memory_of(best.partition, plan.shape.depths)
    model.period(best.partition)
    terms = model.scratch.stage[:, : best.partition.stages].copy()
    stages = []
    for number, stage in enumerate(plan.stages):
        replicas = len(stage.ranks)
        compute_s = float(terms[:3, number].sum()) / replicas
        network_s = float(terms[4, number] + terms[6, number]) / replicas
        predicted = {
            "compute_s": compute_s, "network_s": network_s, "reduce_exposed_s": float(terms[4, number]),
            "busy_share": min(1.0, max(share.busy for share in result.shares[number])),
        }  # fmt: skip
        details = dict(stage.details) | {"memory_bytes": needed[number], "predicted": predicted}
        stages.append(replace(stage, details=details))
    text = {} if request.stages is None else {
        "stages": ",".join(f"{part.first}-{part.last}x{part.replicas}" for part in request.stages)
    }  # fmt: skip
    details = {
        "model": "contention",
        "seed": request.seed,
        "idle": plan.details["idle"],
        "predicted": {
            "minibatch_s": result.minibatch_s,
            "items_per_s": plan.minibatch / result.minibatch_s,
            "fill_s": result.fill_s,
            "bytes_per_item": simulator.sent(best) / plan.minibatch,
            "limited_by": _limit(simulator, best),
            "by": "simulator" if best.is_simulated else "model",
        },
        "lower_bound_s": bound_s,
        "gap": None if not bound_s else max(0.0, result.minibatch_s / bound_s - 1),
        "proven": False,
        "compared": [_row(simulator, way) for way in ways],
        "constraints": {"straight": request.straight} | text,
    }
    return replace(plan, stages=tuple(stages), details=details)


def _limit(simulator: WaySimulator, best: SimulatedWay) -> str:
    stage, replica, busy = best.result.busiest
    link, used = best.result.links[0] if best.result.links else ("", 0.0)
    if max(busy, used) >= _LIMITING_SHARE:
        host = best.partition.hosts(stage)[replica]
        return f"compute of {simulator.measured.hosts.names[host]}" if busy >= used else link
    return simulator.model_of(best).period(best.partition).limited_by


def _row(simulator: WaySimulator, way: SimulatedWay) -> dict[str, Any]:
    shape = way.plan.shape
    updates = min(minibatches_per_update(shape, stage) for stage in range(shape.stages))
    is_limited = any(np.isfinite(size) for size in simulator.memory)
    return {
        "what": way.what,
        "minibatch_s": way.minibatch_s,
        "delay": max(delay_of(shape, stage) for stage in range(shape.stages)),
        "items_per_update": float(updates * way.plan.minibatch),
        "recompute": way.plan.recompute,
        "fits": way.fits if is_limited else None,
    }
