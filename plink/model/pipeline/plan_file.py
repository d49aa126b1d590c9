"""Read plans of pipelines from files; every key is validated. Their actions are proven elsewhere, by
:func:`solvers.pipeline.verifier.verify_actions`."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from msgspec import structs

from plink.errors import InputError, UsageError
from plink.model.codec import decode
from plink.model.document import UNSET
from plink.model.hosts import hosts_of
from plink.model.pipeline.actions import PipelineAction, parse_action
from plink.model.pipeline.document import PipelineDocument, PipelineStage, StageBoundary
from plink.model.pipeline.plan import STATED, PipelinePlan
from plink.model.pipeline.versions import delay_of
from plink.model.storage import name_of, read_document


def pipeline_from_json(document: dict[str, Any], location: str) -> PipelinePlan:
    """Return a plan from its JSON document, anybody's; ``location`` names the file in errors.

    :raises InputError: naming the key that is wrong.
    """
    checked = decode(PipelineDocument, document, location)
    hosts = hosts_of(checked["hosts"], checked.get("lab"), location)
    _check_ranks(checked["stages"], sum(host.slots for host in hosts), location)
    _check_layers(checked["stages"], checked["boundaries"], location)
    plan = PipelinePlan(
        kind=checked["kind"],
        minibatch=checked["minibatch"],
        hosts=hosts,
        stages=tuple(structs.replace(stage, delay=UNSET) for stage in checked["stages"]),
        boundaries=checked["boundaries"],
        accumulate=checked.get("accumulate", 1),
        vertical_sync=checked.get("vertical_sync", False),
        reduce=checked.get("reduce", "wait"),
        recompute=checked.get("recompute", False),
        profile=checked.get("profile"),
        network=checked.get("network"),
        actions=_actions(checked.get("actions"), sum(host.slots for host in hosts), location),
        **{key: checked[key] for key in STATED if key in checked},  # type: ignore[literal-required]
    )
    try:
        shape = plan.shape
    except UsageError as error:
        raise InputError(location, str(error)) from None
    for number, stage in enumerate(checked["stages"]):
        if stage.delay is not UNSET and stage.delay != (delay := delay_of(shape, number)):
            reason = f"{delay} follows from kind, replicas and depths, not {stage.delay}"
            raise InputError(f"{location}: stages[{number}].delay", reason)
    return plan


def read_pipeline(path: str | Path) -> PipelinePlan:
    """Return a plan from a file (``-``: standard input, ``.gz``: compressed).

    :raises InputError: as :func:`pipeline_from_json`, and when the file cannot be read.
    """
    return pipeline_from_json(read_document(path), name_of(path))


def _check_ranks(stages: Sequence[PipelineStage], ranks: int, location: str) -> None:
    owner: dict[int, int] = {}
    for number, stage in enumerate(stages):
        for rank in stage.ranks:
            key = f"{location}: stages[{number}].ranks"
            if rank >= ranks:
                raise InputError(key, f"the hosts have ranks 0 to {ranks - 1}, there is no rank {rank}")
            if rank in owner:
                stage_name = f"stage {owner[rank]}" if owner[rank] != number else "this stage"
                raise InputError(key, f"rank {rank} is already in {stage_name}")
            owner[rank] = number
    if len(owner) < ranks:
        rank = next(rank for rank in range(ranks) if rank not in owner)
        raise InputError(f"{location}: stages", f"rank {rank} is in no stage")


def _check_layers(stages: Sequence[PipelineStage], boundaries: Sequence[StageBoundary], location: str) -> None:
    for number, stage in enumerate(stages):
        first, last = stage.layers
        if last < first:
            raise InputError(f"{location}: stages[{number}].layers", f"expected first and last, got {first}, {last}")
    if (begin := stages[0].first) != 0:
        raise InputError(f"{location}: stages[0].layers", f"the first stage begins with layer {begin}, not 0")
    for number, (before, after) in enumerate(pairwise(stages), start=1):
        if after.first != before.last + 1:
            raise InputError(
                f"{location}: stages[{number}].layers",
                f"layer {before.last + 1} follows the stage before it, not {after.first}",
            )
    if len(boundaries) != len(stages) - 1:
        raise InputError(
            f"{location}: boundaries", f"{len(stages)} stages have {len(stages) - 1} boundaries, not {len(boundaries)}"
        )
    for number, (stage, boundary) in enumerate(zip(stages, boundaries, strict=False)):
        if boundary.after != stage.last:
            raise InputError(
                f"{location}: boundaries[{number}].after",
                f"stage {number} ends with layer {stage.last}, not {boundary.after}",
            )
        total = sum(tensor.size_bytes for tensor in boundary.tensors)
        if boundary.tensors and total != boundary.forward_bytes:
            key = f"{location}: boundaries[{number}].forward_bytes"
            raise InputError(key, f"the tensors have {total} bytes, not {boundary.forward_bytes}")


def _actions(lists: list[list[str]] | None, ranks: int, location: str) -> tuple[tuple[PipelineAction, ...], ...] | None:
    if lists is None:
        return None
    if len(lists) != ranks:
        raise InputError(f"{location}: actions", f"expected a list for each of {ranks} ranks, got {len(lists)}")
    parsed = []
    for rank, texts in enumerate(lists):
        own = []
        for number, text in enumerate(texts):
            try:
                own.append(parse_action(text))
            except UsageError as error:
                raise InputError(f"{location}: actions[{rank}][{number}]", str(error)) from None
        parsed.append(tuple(own))
    return tuple(parsed)
