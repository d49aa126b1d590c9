"""Plan of a pipeline: which ranks train which layers, and how (``plink.pipeline/1``)."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from msgspec import structs, to_builtins

from plink.model.document import UNSET, Unset
from plink.model.hosts import Hosts
from plink.model.pipeline.actions import PipelineAction
from plink.model.pipeline.document import (
    ComparedWay,
    PipelineConstraints,
    PipelinePrediction,
    PipelineStage,
    StageBoundary,
)
from plink.model.pipeline.shape import Kind, PipelineShape, ReduceMode
from plink.model.pipeline.versions import delay_of
from plink.model.storage import render_document, write_document

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
