"""Plan of a pipeline: which ranks train which layers, and how (``plink.pipeline/1``)."""

import hashlib
from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Annotated

from msgspec import Meta, field, structs

from plink.errors import InputError, UsageError
from plink.model.codec import decode
from plink.model.document import UNSET, Document, Unset
from plink.model.hosts import HostEntries, Hosts, hosts_of
from plink.model.pipeline.actions import PipelineAction, parse_action
from plink.model.pipeline.document import (
    ComparedWay,
    Depth,
    Digest,
    PipelineConstraints,
    PipelinePrediction,
    PipelineStage,
    StageBoundary,
)
from plink.model.pipeline.shape import Kind, PipelineShape, ReduceMode, delay_of
from plink.model.storage import JsonObject, name_of, read_document, render_document
from plink.model.types import Count, HostName, LabName, Name, NonNegative, PositiveInt

_NOT_FOR_RANKS = ("predicted", "compared", "constraints", "lower_bound_s", "gap", "proven", "idle", "environment")


class PipelinePlan(Document, frozen=True, kw_only=True, tag="plink.pipeline/1", dict=True):
    """Which hosts train which layers, and how.

    Written by `plink pipeline plan`, read by `plink pipeline show` and `verify`. The actions of each rank follow from
    kind, replicas, depths and the number of minibatches; a file may bring its own, which are verified. Layers, ranks,
    stages and minibatches count from 0.
    """

    profile: Digest | None = None
    """Digest of the profile that it was made for."""
    network: Digest | None = None
    """Fingerprint of the network that it was made for; null for even hosts."""
    kind: Kind
    """When minibatches are processed and parameters are updated."""
    vertical_sync: bool = False
    """Whether a minibatch uses the same version at every stage; false when missing."""
    reduce: ReduceMode = "wait"
    """Whether the next forward pass waits for an all-reduce, or the one after it does; wait when missing."""
    accumulate: Depth = 1
    """Minibatches of the whole pipeline that one update averages, for gpipe, 1f1b-flush and 2bw; 1 when missing."""
    recompute: bool = False
    """Whether a backward pass computes activations again instead of keeping them; false when missing."""
    minibatch: PositiveInt
    """Items in a minibatch."""
    threads: PositiveInt | Unset = UNSET
    """Threads of PyTorch in the profile; a job with others says so, for it takes another time than predicted."""
    host_entries: HostEntries = field(name="hosts")
    """The hosts in rank order: the first takes ranks 0 to slots-1, the next those that follow."""
    lab: LabName | Unset = UNSET
    """The emulated lab that the hosts live in; absent for real hosts."""
    stages: Annotated[tuple[PipelineStage, ...], Meta(min_length=1)]
    """The stages, first to last."""
    boundaries: tuple[StageBoundary, ...]
    """What crosses between neighbouring stages."""
    action_texts: tuple[tuple[str, ...], ...] | Unset | None = field(name="actions", default=UNSET)
    """The actions of each rank in torch's notation, like 0F0; null or missing: they follow from the rest."""
    model: Name | Unset = UNSET
    """The cost model that times are by, like thesis."""
    seed: Count | Unset = UNSET
    """Seed of the search."""
    predicted: PipelinePrediction | Unset | None = UNSET
    """What it is predicted to do."""
    compared: tuple[ComparedWay, ...] | Unset = UNSET
    """Other ways to train on the same hosts."""
    constraints: PipelineConstraints | Unset = UNSET
    """What the user required."""
    lower_bound_s: NonNegative | Unset | None = UNSET
    """No plan takes less per minibatch, by the same model; null when no bound is known."""
    gap: NonNegative | Unset | None = UNSET
    """By what share the plan takes longer than that bound."""
    proven: bool | Unset = UNSET
    """Whether no plan is better by the same model."""
    idle: tuple[HostName, ...] | Unset = UNSET
    """Hosts that were offered and are not used."""
    environment: dict[Annotated[str, Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_]*(?!\n)$")], str] | Unset = UNSET
    """Variables that every process of the job is started with."""

    @cached_property
    def hosts(self) -> Hosts:
        """Its hosts, in rank order."""
        return hosts_of(self.host_entries, self.lab, "hosts of the plan")

    @cached_property
    def actions(self) -> tuple[tuple[PipelineAction, ...], ...] | None:
        """Actions of each rank, where a file brings its own; None: they follow from :attr:`shape`."""
        texts = self.action_texts
        return tuple(tuple(map(parse_action, own)) for own in texts) if texts else None

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

    def to_json(self) -> JsonObject:
        """Return the document as written to disk, with the delay of each stage."""
        shape = self.shape
        stages = [structs.replace(stage, delay=delay_of(shape, number)) for number, stage in enumerate(self.stages)]
        return Document.to_json(structs.replace(self, stages=tuple(stages)))

    def for_ranks(self) -> "PipelinePlan":
        """Return what ranks need to know of it."""
        stages = tuple(structs.replace(stage, predicted=UNSET) for stage in self.stages)
        return structs.replace(self, stages=stages, **dict.fromkeys(_NOT_FOR_RANKS, UNSET))

    @property
    def minibatch_s(self) -> float | None:
        """Predicted seconds per minibatch; None where it does not say."""
        return self.predicted.minibatch_s if self.predicted else None

    def fingerprint(self) -> str:
        """Return a digest of all that the plan says, as ranks report it."""
        return hashlib.sha256(render_document(self.to_json()).encode()).hexdigest()[:16]


def pipeline_from_json(document: JsonObject, location: str) -> PipelinePlan:
    """Return a plan from its JSON document, anybody's; ``location`` names the file in errors.

    :raises InputError: naming the key that is wrong.
    """
    plan = decode(PipelinePlan, document, location)
    hosts = hosts_of(plan.host_entries, plan.lab, location)
    ranks = sum(host.slots for host in hosts)
    _check_ranks(plan.stages, ranks, location)
    _check_layers(plan.stages, plan.boundaries, location)
    _check_actions(plan.action_texts, ranks, location)
    try:
        shape = plan.shape
    except UsageError as error:
        raise InputError(location, str(error)) from None
    for number, stage in enumerate(plan.stages):
        if stage.delay is not UNSET and stage.delay != (delay := delay_of(shape, number)):
            reason = f"{delay} follows from kind, replicas and depths, not {stage.delay}"
            raise InputError(f"{location}: stages[{number}].delay", reason)
    return structs.replace(
        plan,
        host_entries=hosts.entries(),
        stages=tuple(structs.replace(stage, delay=UNSET) for stage in plan.stages),
        action_texts=plan.action_texts or UNSET,
    )


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


def _check_actions(lists: Sequence[Sequence[str]] | Unset | None, ranks: int, location: str) -> None:
    if lists is None or lists is UNSET:
        return
    if len(lists) != ranks:
        raise InputError(f"{location}: actions", f"expected a list for each of {ranks} ranks, got {len(lists)}")
    for rank, texts in enumerate(lists):
        for number, text in enumerate(texts):
            try:
                parse_action(text)
            except UsageError as error:
                raise InputError(f"{location}: actions[{rank}][{number}]", str(error)) from None
