"""Plan of a pipeline: which ranks train which layers, and how (``plink.pipeline/1``)."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from msgspec import structs, to_builtins

from plink.errors import InputError, UsageError
from plink.model.codec import decode
from plink.model.document import UNSET, Unset
from plink.model.hosts import Hosts, hosts_of
from plink.model.pipeline.actions import PipelineAction, parse_action
from plink.model.pipeline.document import (
    ComparedWay,
    PipelineConstraints,
    PipelineDocument,
    PipelinePrediction,
    PipelineStage,
    StageBoundary,
)
from plink.model.pipeline.shape import Kind, PipelineShape, ReduceMode, delay_of
from plink.model.storage import name_of, read_document, render_document, write_document

SCHEMA = "plink.pipeline/1"
_NOT_FOR_RANKS = ("predicted", "compared", "constraints", "lower_bound_s", "gap", "proven", "idle", "environment")
STATED = ("model", "seed", *_NOT_FOR_RANKS)
"""Keys of a plan that say how it was made, and what of it; those that it does not have are UNSET."""


@dataclass(frozen=True)
class PipelinePlan:
    """S stages on N ranks. ``hosts`` in rank order: the first takes ranks 0 to slots-1, the next those that follow.

    ``actions``: those of each rank, where a file brings its own; None: they follow from :attr:`shape`. What follows
    ``actions`` is described in :class:`PipelineDocument`.
    """

    kind: Kind
    minibatch: int
    hosts: Hosts
    stages: tuple[PipelineStage, ...]
    boundaries: tuple[StageBoundary, ...]
    accumulate: int = 1
    vertical_sync: bool = False
    reduce: ReduceMode = "wait"
    recompute: bool = False
    profile: str | None = None
    network: str | None = None
    actions: tuple[tuple[PipelineAction, ...], ...] | None = None
    model: str | Unset = UNSET
    seed: int | Unset = UNSET
    predicted: PipelinePrediction | Unset | None = UNSET
    compared: tuple[ComparedWay, ...] | Unset = UNSET
    constraints: PipelineConstraints | Unset = UNSET
    lower_bound_s: float | Unset | None = UNSET
    gap: float | Unset | None = UNSET
    proven: bool | Unset = UNSET
    idle: tuple[str, ...] | Unset = UNSET
    environment: Mapping[str, str] | Unset = UNSET

    @property
    def ranks(self) -> int:
        """How many take part."""
        return sum(host.slots for host in self.hosts)

    @property
    def replicas(self) -> tuple[int, ...]:
        """Ranks of each stage."""
        return tuple(len(stage.ranks) for stage in self.stages)

    @property
    def shape(self) -> PipelineShape:
        """Return what the actions follow from.

        :raises UsageError: when there is no such pipeline.
        """
        without = [number for number, boundary in enumerate(self.boundaries) if boundary.backward_bytes == 0]
        return PipelineShape(
            self.kind,
            self.replicas,
            tuple(stage.depth for stage in self.stages),
            self.accumulate,
            self.vertical_sync,
            self.reduce,
            frozen=max(without, default=-1) + 1,
        )

    @property
    def label(self) -> str:
        """Return the replicas for messages, like ``15-1``."""
        return "-".join(map(str, self.replicas))

    def place_of(self, rank: int) -> tuple[int, int]:
        """Return the stage of a rank, and its number among the stage's replicas."""
        for number, stage in enumerate(self.stages):
            if rank in stage.ranks:
                return number, stage.ranks.index(rank)
        raise ValueError(f"there is no rank {rank}")

    def host_names(self) -> list[str]:
        """Return the name of each rank's host."""
        return [host.name for host in self.hosts for _ in range(host.slots)]

    def to_json(self) -> dict[str, Any]:
        """Return the document as written to disk."""
        shape = self.shape
        return {
            "schema": SCHEMA,
            "profile": self.profile,
            "network": self.network,
            "kind": self.kind,
            "vertical_sync": self.vertical_sync,
            "reduce": self.reduce,
            "accumulate": self.accumulate,
            "recompute": self.recompute,
            "minibatch": self.minibatch,
            "hosts": [host.to_json() for host in self.hosts],
            **({} if self.hosts.lab is None else {"lab": self.hosts.lab}),
            "stages": [
                to_builtins(structs.replace(stage, delay=delay_of(shape, number)))
                for number, stage in enumerate(self.stages)
            ],
            "boundaries": [to_builtins(boundary) for boundary in self.boundaries],
            **({} if self.actions is None else {"actions": [[str(step) for step in own] for own in self.actions]}),
            **{key: to_builtins(value) for key in STATED if (value := getattr(self, key)) is not UNSET},
        }

    def for_ranks(self) -> "PipelinePlan":
        """Return what ranks need to know of it."""
        stages = tuple(structs.replace(stage, predicted=UNSET) for stage in self.stages)
        unset: dict[str, Any] = dict.fromkeys(_NOT_FOR_RANKS, UNSET)
        return replace(self, stages=stages, **unset)

    @property
    def minibatch_s(self) -> float | None:
        """Predicted seconds per minibatch; None where it does not say."""
        return self.predicted.minibatch_s if self.predicted else None

    def fingerprint(self) -> str:
        """Return a digest of all that the plan says, as ranks report it."""
        return hashlib.sha256(render_document(self.to_json()).encode()).hexdigest()[:16]

    def write(self, path: str | Path) -> None:
        """Write the file, whole or not at all."""
        write_document(path, self.to_json())


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
