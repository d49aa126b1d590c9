"""Stages that a user asks for: ``0-30x15,31-39x1``."""

import re

from plink.errors import UsageError
from plink.model.pipeline.profile import ModelProfile
from solvers.pipeline.threshold import StageRange

_STAGE = re.compile(r"(\d{1,6})(?:-(\d{1,6}))?(?:x(\d{1,6}))?", re.ASCII)


def requested_stages(text: str, profile: ModelProfile, workers: int) -> tuple[StageRange, ...]:
    """Return the stages of a text.

    :raises UsageError: when they leave a layer out, have none, part layers that share a parameter, or take more
        replicas than there are workers.
    """
    stages: list[StageRange] = []
    layers = len(profile.layers)
    for part in text.split(","):
        matched = _STAGE.fullmatch(part.strip())
        if matched is None:
            raise UsageError(f"--stages {text[:60]}: expected stages like 0-30x15,31-39x1, got {part[:40]!r}")
        first = int(matched[1])
        stage = StageRange(first, int(matched[2] or first), int(matched[3] or 1))
        expected = stages[-1].last + 1 if stages else 0
        if stage.first != expected:
            raise UsageError(f"--stages: layer {expected} comes next, but {part.strip()} begins with {stage.first}")
        if stage.last < stage.first:
            raise UsageError(f"--stages: {part.strip()} ends before it begins")
        if stage.replicas < 1:
            raise UsageError(f"--stages: {part.strip()} has no replicas; each stage has one or more")
        if stage.last >= layers:
            raise UsageError(f"--stages: the profile has layers 0 to {layers - 1}, there is no layer {stage.last}")
        stages.append(stage)
    if stages[-1].last != layers - 1:
        raise UsageError(f"--stages leave out layers {stages[-1].last + 1} to {layers - 1}")
    if (total := sum(stage.replicas for stage in stages)) > workers:
        raise UsageError(f"--stages take {total} replicas, but there are {workers} workers")
    for first, last, parameter in profile.tied_spans():
        for stage in stages[1:]:
            if first < stage.first <= last:
                raise UsageError(
                    f"--stages: layers {first} and {last} share the parameter {parameter}, so they belong in one "
                    f"stage; a stage begins with layer {stage.first} between them"
                )
    return tuple(stages)
