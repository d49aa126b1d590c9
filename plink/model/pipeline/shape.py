"""What a pipeline's actions follow from: its kind, replicas and depths. No numpy: every rank imports it.

A version is a count of updates, a function of the minibatch's number. So training repeats to the bit, one process can
rerun it, and a checkpoint resumes without a barrier. The thesis gives versions of straight pipelines (5.3.3); replicas
and other depths are plink's. No numpy: every rank imports it.
"""

import math
from dataclasses import dataclass
from typing import Literal, get_args

from plink.errors import UsageError

Kind = Literal["1f1b", "2bw", "1f1b-flush", "gpipe", "data-parallel", "model-parallel"]
ReduceMode = Literal["wait", "late"]
KINDS: tuple[Kind, ...] = get_args(Kind)
ACCUMULATING: tuple[Kind, ...] = ("2bw", "1f1b-flush", "gpipe")
FLUSHING: tuple[Kind, ...] = ("1f1b-flush", "gpipe")


@dataclass(frozen=True)
class PipelineShape:
    """S stages; ``replicas[s]`` ranks and ``depths[s]`` minibatches in flight per replica of stage s.

    ``accumulate``: minibatches that one update averages, of kinds that accumulate; the others update after each round
    of ``replicas[s]`` minibatches. ``frozen``: the first stages that have nothing to train; they only compute forward.

    :raises UsageError: when there is no such pipeline.
    """

    kind: Kind
    replicas: tuple[int, ...]
    depths: tuple[int, ...]
    accumulate: int = 1
    vertical_sync: bool = False
    reduce: ReduceMode = "wait"
    frozen: int = 0

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise UsageError(f"kind: choose one of {', '.join(KINDS)}; got {self.kind}")
        if not self.replicas or min(self.replicas) < 1:
            raise UsageError("a pipeline has one stage or more, each of one replica or more")
        if len(self.depths) != len(self.replicas) or min(self.depths) < 1:
            raise UsageError(f"a depth of 1 or more for each of {self.stages} stages was expected, not {self.depths}")
        if not 0 <= self.frozen < self.stages:
            raise UsageError("the last stage must have something to train")
        self._check_kind()

    def _check_kind(self) -> None:
        asynchronous = self.kind == "1f1b"
        if (self.vertical_sync or self.reduce == "late") and not asynchronous:
            raise UsageError(f"vertical sync and a late reduce belong to 1f1b, not to {self.kind}")
        if self.kind == "data-parallel" and self.stages > 1:
            raise UsageError(f"data-parallel is one stage, not {self.stages}")
        if self.kind in ("data-parallel", "model-parallel") and max(self.depths) > 1:
            raise UsageError(f"{self.kind} has one minibatch in flight; the depths are {self.depths}")
        if self.kind not in ACCUMULATING:
            if self.accumulate != 1:
                raise UsageError(f"{self.kind} updates after every round; it accumulates no minibatches")
            return
        cycle = math.lcm(*self.replicas)
        if self.accumulate < 1 or self.accumulate % cycle:
            raise UsageError(
                f"{self.kind} with replicas {'-'.join(map(str, self.replicas))} accumulates a multiple of {cycle} "
                f"minibatches, not {self.accumulate}"
            )
        if self.kind == "2bw":
            for stage, (replicas, depth) in enumerate(zip(self.replicas, self.depths, strict=True)):
                if self.accumulate // replicas < depth:
                    raise UsageError(
                        f"2bw accumulates {self.accumulate} minibatches, which is below the depth of stage {stage}: "
                        f"{depth} in flight in each of {replicas} replicas"
                    )

    @property
    def stages(self) -> int:
        """How many stages there are."""
        return len(self.replicas)

    @property
    def workers(self) -> int:
        """How many ranks compute."""
        return sum(self.replicas)

    @property
    def cycle(self) -> int:
        """Minibatches after which who processes what repeats."""
        return math.lcm(*self.replicas, self.accumulate)

    def warm_up(self, stage: int) -> int:
        """Return the forward passes of a replica before its first backward pass, less one."""
        return self.depths[stage] - 1


def base_depths(replicas: tuple[int, ...]) -> tuple[int, ...]:
    """Return the thesis's depths: NOAM for the first stage, and the same count for the rest of the pipeline at each
    later one. These never lock; with the quotients rounded down, 3-1-1 would.

    Source: Harlap thesis, 5.3.2 (its bracket is a ceiling), and ``warmup`` in the published runtime.
    """
    return tuple(math.ceil(sum(replicas[stage:]) / count) for stage, count in enumerate(replicas))


def minibatches_to_prove(shape: PipelineShape) -> int:
    """Return a number of minibatches that covers start-up, two cycles and a last round that is short."""
    return max(shape.depths) * max(shape.replicas) + 3 * shape.cycle + 1


def replica_of(shape: PipelineShape, stage: int, minibatch: int) -> int:
    """Return the replica of a stage that processes a minibatch, forward and backward."""
    return minibatch % shape.replicas[stage]


def update_of(shape: PipelineShape, stage: int, minibatch: int) -> int:
    """Return the number of the update of a stage that takes in the gradient of a minibatch."""
    return minibatch // minibatches_per_update(shape, stage)


def minibatches_per_update(shape: PipelineShape, stage: int) -> int:
    """Return how many minibatches an update averages; the last one may have fewer."""
    return shape.accumulate if shape.kind in ACCUMULATING else shape.replicas[stage]


def updates_of(shape: PipelineShape, stage: int, minibatches: int) -> int:
    """Return how many updates a stage makes for that many minibatches; none if it is frozen."""
    return 0 if stage < shape.frozen else -(-minibatches // minibatches_per_update(shape, stage))


def version_of(shape: PipelineShape, stage: int, minibatch: int) -> int:
    """Return the version that a minibatch uses at a stage, in both passes.

    1f1b: v_s(b) = max(0, floor(b / r_s) - W_s), one less in replicated stages with a late reduce; with vertical sync
    floor(r_0 v_0(b) / r_s), the updates of the minibatches that the first stage had taken in. 2bw: one batch behind.
    """
    if stage < shape.frozen:
        return 0
    if shape.kind == "2bw":
        return max(0, minibatch // shape.accumulate - 1)
    if shape.kind in ACCUMULATING:
        return minibatch // shape.accumulate
    if shape.vertical_sync and stage > shape.frozen:
        first = shape.frozen
        return shape.replicas[first] * _stashed(shape, first, minibatch) // shape.replicas[stage]
    return _stashed(shape, stage, minibatch)


def _stashed(shape: PipelineShape, stage: int, minibatch: int) -> int:
    late = shape.reduce == "late" and shape.replicas[stage] > 1
    return max(0, minibatch // shape.replicas[stage] - shape.warm_up(stage) - late)


def minibatches_of_update(shape: PipelineShape, stage: int, update: int, minibatches: int) -> range:
    """Return the minibatches whose gradients an update averages; the last update of a job may have fewer."""
    size = minibatches_per_update(shape, stage)
    return range(update * size, min(minibatches, (update + 1) * size))


def own_of_update(shape: PipelineShape, place: tuple[int, int], update: int, minibatches: int) -> range:
    """Return those of an update that one (stage, replica) processes; it may have none of a short last update."""
    stage, replica = place
    numbers = minibatches_of_update(shape, stage, update, minibatches)
    count = shape.replicas[stage]
    return range(numbers.start + (replica - numbers.start) % count, numbers.stop, count)


def older_versions_from(shape: PipelineShape, place: tuple[int, int], minibatch: int, minibatches: int) -> list[int]:
    """Return the versions below the current one that the minibatches of a (stage, replica) from one on use, oldest
    first.

    :param minibatch: a multiple of ``shape.cycle``: all before it are taken in.
    """
    stage, replica = place
    if stage < shape.frozen:
        return []
    current = minibatch // minibatches_per_update(shape, stage)
    versions: list[int] = []
    for number in range(minibatch + replica, minibatches, shape.replicas[stage]):
        version = version_of(shape, stage, number)
        if version >= current:
            break
        if not versions or version > versions[-1]:
            versions.append(version)
    return versions


def older_versions_of_stage(shape: PipelineShape, stage: int, minibatch: int, minibatches: int) -> list[int]:
    """Return the versions below the current one that some replica of a stage uses, as :func:`older_versions_from`."""
    places = ((stage, replica) for replica in range(shape.replicas[stage]))
    return sorted({number for place in places for number in older_versions_from(shape, place, minibatch, minibatches)})


def most_versions(shape: PipelineShape, stage: int) -> int:
    """Return the most versions of its parameters that a replica of a stage has at once, the current one among them.

    With vertical sync the oldest one in use follows the first trained stage: after update j of stage s, whose next
    minibatch is j r_s, that is floor((j r_s - c - r_0 V) / r_s), c <= r_0 - gcd(r_0, r_s) what is left of a round of
    the first stage, and V the updates by which that one is behind.
    """
    if stage < shape.frozen or shape.kind in FLUSHING:
        return 1
    if shape.kind == "2bw":
        return 2
    first = shape.frozen
    if not shape.vertical_sync or stage == first:
        return shape.depths[stage]
    size, own = shape.replicas[first], shape.replicas[stage]
    behind = shape.warm_up(first) + (shape.reduce == "late" and size > 1)
    unused = size - math.gcd(size, own) + size * behind
    return max(1, -(-unused // own) + 1 - (shape.reduce == "late" and own > 1))


def delay_of(shape: PipelineShape, stage: int) -> int:
    """Return by how many updates the version that a minibatch uses is behind its own update, at most."""
    if stage < shape.frozen:
        return 0
    if shape.kind in ACCUMULATING:
        return int(shape.kind == "2bw")
    first = shape.frozen if shape.vertical_sync else stage
    behind = shape.warm_up(first) + (shape.reduce == "late" and shape.replicas[first] > 1)
    if first == stage:
        return behind
    # The last minibatch of each round of the first stage, until rounds of both stages begin together; far enough into
    # the job for every version to be above 0.
    size, own = shape.replicas[first], shape.replicas[stage]
    begin = own * behind
    rounds = range(begin, begin + own // math.gcd(size, own))
    return max(((k + 1) * size - 1) // own - size * (k - behind) // own for k in rounds)


def forward_peer(shape: PipelineShape, stage: int, minibatch: int) -> tuple[int, int] | None:
    """Return the (stage, replica) that a stage sends the activations of a minibatch to; None from the last stage."""
    return (stage + 1, replica_of(shape, stage + 1, minibatch)) if stage + 1 < shape.stages else None


def backward_peer(shape: PipelineShape, stage: int, minibatch: int) -> tuple[int, int] | None:
    """Return the (stage, replica) that a stage sends the gradients of a minibatch to; None where nobody wants them."""
    return (stage - 1, replica_of(shape, stage - 1, minibatch)) if stage > shape.frozen else None


def learning_rate_scale(shape: PipelineShape, stage: int) -> float:
    """Return the factor of a stage's learning rate: a stage that averages more minibatches updates less often.

    Source: ``get_adjusted_learning_rate`` of the published runtime, which scales by r_s / r_0.
    """
    if shape.kind in ACCUMULATING:
        return 1.0
    return shape.replicas[stage] / shape.replicas[0]
