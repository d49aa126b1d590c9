"""Seconds per minibatch of a placed partition, by formulas.

For stages s of r_s replicas with d_s minibatches in flight each, seconds are the greatest of four:

- computing: slow(h) (F_s + B_s + U_s) / r_s, U_s the optimiser's step with the copy of a version;
- the network: bytes of a minibatch over the rate of each host, pair and group, boundaries and all-reduces added up
  where they share it. Replica q of a stage meets replica p of the next one only if q = p mod gcd(r_s, r_s+1), and each
  such pair carries 1/lcm of what crosses;
- a round: slow (F_s + B_s + U_s + e_s) / r_s, e_s what the stage's own backward pass does not hide of its all-reduce:
  buckets in the sequence in which gradients come, two all-reduces at a time, f_j = max(f_j-1 + max(D_j, (D_j + L)/2),
  t_j + D_j + L), D_j the time of their bytes and L that of round trips, e_s = max(0, f_last - B_s). The size of
  buckets is chosen for each stage, so that e_s is least;
- the loop: L_s / (r_s d_s), by Little's law, L_s the round trip of a minibatch from stage s on, messages included.

Kinds that average m minibatches step, and reduce, once for m. Any two of their stages s <= t are a loop: F of s follows
B of the minibatch r_s d_s before, B of t follows F of the one r_t (d_t - 1) after. With P_s both passes and messages
from stage s on, it takes (P_s - P_t + F_t + B_t) / (r_s d_s - r_t (d_t - 1)) a minibatch. Where the pipeline drains at
each update, a batch takes L_0 more than its minibatches at the pace of the others, less one of them:
tau + (L_0 - tau) / m.

Depths are the thesis's (workers from the stage on over its replicas), or what hides all messages at the pace tau of the
first three: r_s d_s >= r_(s+1) d_(s+1) + (F_s + B_s + e_s + X_s + Y_s) / tau, X and Y both messages. That is Little's
law for each boundary by itself: passes of a stage alternate in a fixed sequence, so what one boundary needs cannot be
had from another. It is taken as far as it cannot lock: d_s <= (r_(s-1) (d_(s-1) - 1) + 1) / r_s. What needs more than
the memory gets the thesis's. Requested depths are taken as they are.

An update of m minibatches bounds depths: r_s d_s <= m. With bounds, all depths are those of the least tau that they
allow, the least for which an all-reduce holds up no loop, r_s (d_s - 1) + 1 - r_t (d_t - 1) >=
(P_s - P_t + F_t + B_t + e_s) / tau.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from plink.errors import UsageError
from plink.model.document import UNSET
from plink.model.pipeline.document import StageMemory
from plink.model.pipeline.profile import ModelProfile
from plink.model.pipeline.shape import ACCUMULATING, FLUSHING, Kind
from solvers.costs.fabric import Fabric
from solvers.pipeline.period_kernels import (
    BACKWARD_ROW,
    BUCKET_ROW,
    BUCKETS_ROW,
    EXPOSED_ROW,
    FORWARD_ROW,
    LOOP,
    MAX_DEPTH,
    NETWORK,
    PASSES_ROW,
    ROUND,
    WORK_ROWS,
    PlanModel,
    Scratch,
    evaluate,
    scratch_for,
    stage_memory,
)
from solvers.pipeline.stage_costs import DEFAULT_BUCKET_BYTES, REDUCE_ROUND_S

Integers = npt.NDArray[np.int64]
BYTES_PER_S_OF_GBPS = 1.25e8
_UNMEASURED_S = 1e3  # of a round trip: plans that need it are worse than any other
UNLIMITED = 1e18
_SHORTEST_S, _ROUNDING = 1e-12, 1e-9


@dataclass(frozen=True)
class ModelOptions:
    """How a plan trains: ``late``: the next forward pass does not wait for the all-reduce. ``deeper``: as many
    minibatches in flight as help. ``single``: one in the whole pipeline. ``accumulate``: minibatches that an update
    averages; 0: those of a round. ``flush``, ``gpipe``: whether the pipeline drains at an update, and all of its
    minibatches go forward first. ``versions``: of the parameters; 0: as many as minibatches in flight, or with
    ``vertical`` sync as many as the first trained stage is behind. ``depths``: requested ones of all stages, or of the
    first; empty: chosen."""

    late: bool = False
    deeper: bool = True
    single: bool = False
    accumulate: int = 0
    flush: bool = False
    gpipe: bool = False
    versions: int = 0
    vertical: bool = False
    recompute: bool = False
    depths: tuple[int, ...] = ()

    def of_kind(self, kind: Kind | None, accumulate: int) -> "ModelOptions":
        """Return these options as far as they are of a kind; None: of 1f1b and data parallelism."""
        if kind in ACCUMULATING:
            flush = kind in FLUSHING
            return replace(
                self,
                late=False,
                vertical=False,
                accumulate=accumulate,
                flush=flush,
                gpipe=kind == "gpipe",
                versions=1 if flush else 2,
            )
        if kind in ("data-parallel", "model-parallel"):
            return replace(self, late=False, vertical=False, single=kind == "model-parallel", depths=())
        return self


@dataclass(frozen=True)
class PlacedPartition:
    """S stages: layers ``cuts[s]`` to ``cuts[s + 1]`` - 1 on hosts ``order[starts[s] : starts[s + 1]]``; the rest of
    ``order`` is idle."""

    cuts: Integers
    starts: Integers
    order: Integers

    @property
    def stages(self) -> int:
        """How many stages there are."""
        return len(self.cuts) - 1

    @property
    def replicas(self) -> tuple[int, ...]:
        """Return the replicas of each stage."""
        return tuple(np.diff(self.starts).tolist())

    def hosts(self, stage: int) -> list[int]:
        """Return the hosts of a stage's replicas."""
        return [int(host) for host in self.order[self.starts[stage] : self.starts[stage + 1]]]

    @classmethod
    def of(cls, cuts: Sequence[int], replicas: Sequence[int], order: Sequence[int]) -> "PlacedPartition":
        """Return the partition of boundaries, first and last included, and replicas."""
        starts = np.concatenate([[0], np.cumsum(replicas)])
        return cls(np.array(cuts, dtype=np.int64), starts.astype(np.int64), np.array(order, dtype=np.int64))


@dataclass(frozen=True)
class PlanPeriod:
    """What formulas say of a partition: seconds of the four terms, bytes over the memory, and the depths."""

    terms: tuple[float, float, float, float]
    excess_bytes: float
    depths: tuple[int, ...]

    @property
    def minibatch_s(self) -> float:
        """Return the greatest term."""
        return max(self.terms)


class PeriodModel:
    """The formulas for a profile on a fabric, with the memory of their hosts."""

    def __init__(
        self, profile: ModelProfile, fabric: Fabric, memory: Sequence[float], options: ModelOptions | None = None
    ) -> None:
        """:param memory: bytes of each host, infinite where nobody says."""
        self.profile, self.fabric, self.memory = profile, fabric, tuple(memory)
        self.options = options or ModelOptions()
        self.arrays = _arrays(profile, fabric, self.memory, self.options)
        self._scratch = scratch_for(self.arrays, max(1, len(profile.layers)))

    @property
    def scratch(self) -> Scratch:
        """Return memory for evaluations, of one thread."""
        return self._scratch

    def period(self, partition: PlacedPartition) -> PlanPeriod:
        """Evaluate a partition."""
        terms = evaluate(self.arrays, partition.cuts, partition.starts, partition.order, self._scratch)
        depths = tuple(self._scratch.depths[: partition.stages].tolist())
        return PlanPeriod(terms[:4], float(terms[4]), depths)

    def least_s(self, partition: PlacedPartition) -> float:
        """Return seconds that no depths are faster than: those of the busiest host and link; of kinds that accumulate
        with its wait for all-reduces, and for stages before it where an update fills and drains the pipeline."""
        terms, count = self.period(partition).terms, self.options.accumulate
        if not count:
            return max(terms[:ROUND])
        if not self.options.flush:
            return max(terms[:LOOP])
        stage = self._scratch.stage[:, : partition.stages]
        busy = stage[WORK_ROWS].sum(axis=0) / np.array(partition.replicas) + stage[EXPOSED_ROW] / count
        before = np.cumsum([0.0, *(stage[FORWARD_ROW] + stage[BACKWARD_ROW])[:-1]]) / count
        return max(terms[NETWORK], float((busy + before).max()))

    def filling_depths(self, partition: PlacedPartition) -> tuple[int, ...]:
        """Return the depths with which each replica goes forward until its first gradient comes, with no delay of
        all-reduces: no time is lost where a pipeline fills."""
        self.period(partition)
        stage, replicas = self._scratch.stage[:, : partition.stages], np.array(partition.replicas)
        first_gradient_s = stage[PASSES_ROW] - stage[BACKWARD_ROW]
        arrival_s = np.maximum.accumulate(stage[FORWARD_ROW] / replicas)
        depths = np.ceil(first_gradient_s / np.maximum(arrival_s, _SHORTEST_S) / replicas - _ROUNDING)
        return tuple(int(depth) for depth in depths.clip(1, MAX_DEPTH))

    def bucket_bytes(self, partition: PlacedPartition) -> list[int]:
        """Return the size of each stage's buckets of gradients; 0 where nothing is added up."""
        self.period(partition)
        return [round(size) for size in self._scratch.stage[BUCKET_ROW, : partition.stages].tolist()]

    def memory_of(self, partition: PlacedPartition, depths: Sequence[int]) -> list[StageMemory]:
        """Return what one replica of each stage needs, by parts."""
        self.period(partition)
        buckets = self._scratch.stage[BUCKETS_ROW].copy()
        parts = ("weights", "versions", "optimiser", "gradients", "activations", "buffers")
        result = []
        in_flight = np.array(depths, dtype=np.int64)
        for stage in range(partition.stages):
            sizes = stage_memory(self.arrays, partition.cuts, partition.starts, in_flight, stage, buckets[stage])
            needed = dict(zip(parts, (round(size) for size in sizes), strict=True))
            result.append(StageMemory(**needed, all=sum(needed.values())))
        return result


def _arrays(profile: ModelProfile, fabric: Fabric, memory: Sequence[float], options: ModelOptions) -> PlanModel:
    layers, hosts = profile.layers, len(fabric.names)
    if len(memory) != hosts:
        raise UsageError(f"{hosts} hosts, but memory of {len(memory)}")

    def column(values: Sequence[float]) -> npt.NDArray[np.float64]:
        return np.array(values, dtype=np.float64)

    ahead = column([0, *(layer.crossing_bytes for layer in layers[:-1]), 0])
    back = column([0, *(layer.crossing_back_bytes for layer in layers[:-1]), 0])
    allowed = np.ones(len(layers) + 1, dtype=np.bool_)
    for first, last, _ in profile.tied_spans():
        allowed[first + 1 : last + 1] = False
    rtt = np.nan_to_num((fabric.rtt_us + 2 * fabric.overhead_us) / 1e6, nan=_UNMEASURED_S)
    np.fill_diagonal(rtt, 0.0)
    pair = np.full((hosts, hosts), UNLIMITED)
    if fabric.pair_gbps is not None:
        pair = np.where(np.isfinite(fabric.pair_gbps), fabric.pair_gbps * BYTES_PER_S_OF_GBPS, UNLIMITED)
    starts = np.cumsum([0, *(len(tier.out_gbps) for tier in fabric.tiers[:-1])])
    groups = [first + tier.group_of for first, tier in zip(starts, fabric.tiers, strict=True)]
    saved = [layer.crossing_bytes if layer.saved_bytes is UNSET else layer.saved_bytes for layer in layers]
    before, own_input = (
        [getattr(layer, f"saved_{part}_bytes") or 0 for layer in layers] for part in ("before", "input")
    )
    passing = [
        layer.parameter_bytes + back[k] if layer.backward_bytes is UNSET else layer.backward_bytes
        for k, layer in enumerate(layers)
    ]
    is_gpu = (profile.device or "").startswith("cuda")
    outputs = [
        layer.crossing_bytes if layer.saved_bytes is UNSET else layer.saved_output_bytes or 0 for layer in layers[:-1]
    ]
    unsaved = ahead - column([0, *outputs, 0])

    def rates(gbps: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        return np.minimum(gbps * BYTES_PER_S_OF_GBPS, UNLIMITED)

    return PlanModel(
        column([layer.forward_s for layer in layers]),
        column([layer.backward_s for layer in layers]),
        column([layer.update_s for layer in layers]),
        column([layer.copy_s for layer in layers]),
        column([layer.parameter_bytes for layer in layers]),
        column([layer.optimiser_bytes for layer in layers]),
        column(saved) - before,
        column(saved) - own_input,
        np.array([bool(layer.aliases_input) for layer in layers]),
        column(passing),
        column([layer.step_bytes or 0 for layer in layers]),
        ahead,
        back,
        np.maximum(0.0, unsaved),
        float(_input_bytes(profile)),
        is_gpu,
        allowed,
        rates(fabric.host_out_gbps),
        rates(fabric.host_in_gbps),
        np.ascontiguousarray(pair),
        np.ascontiguousarray(rtt),
        np.stack(groups).astype(np.int64),
        rates(np.concatenate([tier.out_gbps for tier in fabric.tiers])),
        rates(np.concatenate([tier.in_gbps for tier in fabric.tiers])),
        column([profile.slowness.get(name, 1.0) for name in fabric.names]),
        column(memory),
        float(DEFAULT_BUCKET_BYTES),
        REDUCE_ROUND_S,
        options.late,
        options.deeper,
        options.single,
        options.accumulate,
        options.flush,
        options.gpipe,
        options.versions,
        options.vertical,
        options.recompute,
        np.array(options.depths, dtype=np.int64),
    )


def _input_bytes(profile: ModelProfile) -> int:
    """Return the bytes of a minibatch's inputs; 0 where the profile does not say."""
    return sum(tensor.size_bytes for tensor in profile.input or ())
