"""How a pipeline is to train, as a user says it: common to plans of even and of measured networks."""

from dataclasses import dataclass
from typing import Literal

from plink.documents.pipeline import Kind, ReduceMode
from plink.errors import UsageError, no_choice
from plink.model.pipeline.profile import ModelProfile
from plink.model.pipeline.shape import ACCUMULATING, KINDS
from solvers.pipeline.joint_request import StageRange, requested_stages

MAX_DEPTH = 4096
MAX_MICROBATCHES = 65_536
"""As the format of plans allows."""
_NO_PIPELINE = ("data-parallel", "model-parallel")


@dataclass(frozen=True)
class TrainingRequest:
    """``kind``: ``auto`` leaves it to the planner. ``stages``: like ``0-30x15,31-39x1``; None: searched. ``depth``:
    ``auto``, ``noam`` or minibatches in flight of each stage, like ``4,3,1``. ``microbatches``: those that an update
    averages, of kinds that accumulate. ``recompute``: a backward pass computes activations again."""

    kind: str = "auto"
    stages: str | None = None
    depth: str = "auto"
    microbatches: int | None = None
    vertical_sync: bool = False
    reduce: ReduceMode = "wait"
    straight: bool = False
    all_workers: bool = False
    recompute: bool = False

    def check(self) -> None:
        """Refuse what no file is needed to refuse.

        :raises UsageError: naming the option.
        """
        if self.kind not in ("auto", *KINDS):
            raise no_choice("--kind", self.kind, ("auto", *KINDS))
        if (self.kind in ACCUMULATING) != (self.microbatches is not None):
            if self.microbatches is None:
                raise UsageError(f"--kind {self.kind} needs --microbatches: how many minibatches an update averages")
            raise UsageError(f"--microbatches goes with --kind {', '.join(ACCUMULATING[:-1])} or {ACCUMULATING[-1]}")
        if self.microbatches is not None and self.microbatches > MAX_MICROBATCHES:
            raise UsageError(f"--microbatches {self.microbatches}: an update averages at most {MAX_MICROBATCHES:,}")
        if self.straight and self.stages is not None:
            raise UsageError("--straight and --stages exclude each other")
        if self.kind in _NO_PIPELINE and self.depth not in ("auto", "noam", "1"):
            raise UsageError(f"--kind {self.kind} has one minibatch in flight: leave --depth {self.depth[:40]} out")
        if self.kind == "gpipe" and self.depth != "auto":
            raise UsageError(f"--kind gpipe has all minibatches of an update in flight; omit --depth {self.depth[:40]}")
        if self.kind == "data-parallel" and self.straight:
            raise UsageError("--kind data-parallel is one stage, --straight one worker a stage: leave one of both out")
        if self.kind not in ("auto", "1f1b") and (self.vertical_sync or self.reduce == "late"):
            option = "--vertical-sync" if self.vertical_sync else "--reduce late"
            raise UsageError(f"{option} belongs to --kind 1f1b, not to {self.kind}")
        depths = self.depths
        if isinstance(depths, tuple) and len(depths) > 1 and self.stages is None and not self.straight:
            raise UsageError(f"--depth {self.depth[:40]}: depths of {len(depths)} stages need --stages or --straight")

    @property
    def planned_kind(self) -> Kind | None:
        """Return the kind, None where it is the planner's choice."""
        return None if self.kind == "auto" else self.kind  # type: ignore[return-value]

    @property
    def depths(self) -> tuple[int, ...] | Literal["noam"] | None:
        """Return the depths; None where they are the planner's choice.

        :raises UsageError: for what is none.
        """
        if self.depth in ("auto", "noam"):
            return None if self.depth == "auto" else "noam"
        parts = self.depth.split(",")
        if not all(part.isdecimal() and len(part) < 10 and 1 <= int(part) <= MAX_DEPTH for part in parts):
            raise UsageError(f"--depth {self.depth[:40]}: auto, noam, or minibatches in flight like 4 or 4,3,2,1")
        return tuple(map(int, parts))

    def stage_ranges(self, profile: ModelProfile, workers: int) -> tuple[StageRange, ...] | None:
        """Return the stages that were asked for.

        :raises UsageError: when they do not fit the profile.
        """
        return None if self.stages is None else requested_stages(self.stages, profile, workers)
