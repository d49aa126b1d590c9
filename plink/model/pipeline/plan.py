"""Plan of a pipeline: which ranks train which layers, and how (``plink.pipeline/1``)."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from msgspec import structs, to_builtins

from plink.model.document import UNSET
from plink.model.hosts import Hosts
from plink.model.pipeline.actions import PipelineAction
from plink.model.pipeline.document import PipelineStage, StageBoundary
from plink.model.pipeline.shape import Kind, PipelineShape, ReduceMode
from plink.model.pipeline.versions import delay_of
from plink.model.storage import render_document, write_document

SCHEMA = "plink.pipeline/1"
_NOT_FOR_RANKS = ("predicted", "compared", "constraints", "lower_bound_s", "gap", "proven", "idle", "environment")


@dataclass(frozen=True)
class PipelinePlan:
    """S stages on N ranks. ``hosts`` in rank order: the first takes ranks 0 to slots-1, the next those that follow.

    ``actions``: those of each rank, where a file brings its own; None: they follow from :attr:`shape`. ``details``:
    the other keys of the file: predicted, compared, lower_bound_s, gap, idle and so on.
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
    details: Mapping[str, Any] = field(default_factory=dict)

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
            **self.details,
        }

    def for_ranks(self) -> "PipelinePlan":
        """Return what ranks need to know of it."""
        stages = tuple(structs.replace(stage, predicted=UNSET) for stage in self.stages)
        details = {key: value for key, value in self.details.items() if key not in _NOT_FOR_RANKS}
        return replace(self, stages=stages, details=details)

    def fingerprint(self) -> str:
        """Return a digest of all that the plan says, as ranks report it."""
        return hashlib.sha256(render_document(self.to_json()).encode()).hexdigest()[:16]

    def write(self, path: str | Path) -> None:
        """Write the file, whole or not at all."""
        write_document(path, self.to_json())
