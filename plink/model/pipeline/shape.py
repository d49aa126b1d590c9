"""What a pipeline's actions follow from: its kind, replicas and depths. No numpy: every rank imports it."""

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
