"""Go on from a checkpoint: the latest of which every rank has its part.

With the plan that wrote it, training goes on to the bit. A rank that has no part, as on a host that replaces a lost
one, gets that of another replica of its stage: all but its buffers is the same. With another plan, parameters and the
optimiser's state are taken by name from all parts, and older versions are dropped. A part that is damaged is passed
over.
"""

import hashlib
import itertools
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from plink.errors import InputError, PlinkError
from plink.model.pipeline.plan import PipelinePlan
from plink.model.pipeline.versions import older_versions_of_stage
from plink.runtime.pipeline.checkpoint_file import checkpoint_from, read_checkpoint, read_header
from plink.runtime.pipeline.checkpoints import Provenance, checkpoints_in, part_file
from plink.runtime.pipeline.stage import StagePlace

_EXACT, _BY_NAME, _PROBLEMS = "exact", "by_name", "problems"
Offer = dict[str, list[Any]]
"""Minibatches of the checkpoints that a rank can go on from, and what is wrong with others."""


@dataclass(frozen=True)
class Restored:
    """State to go on with from a minibatch. ``notes``: what the user should know of all ranks. ``donor``: the
    rank whose part it is, where this rank has none."""

    minibatch: int
    state: dict[str, Any]
    notes: tuple[str, ...] = ()
    donor: int | None = None


def digest_of_training(plan: PipelinePlan) -> str:
    """Return a digest of what decides the bits that training ends with; hosts do not."""
    stages = [
        [stage.first, stage.last, len(stage.ranks), stage.depth, stage.lr_scale, stage.details.get("all_reduce")]
        for stage in plan.stages
    ]
    shape = plan.shape
    text = json.dumps([plan.kind, plan.accumulate, plan.vertical_sync, plan.reduce, shape.frozen, stages])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True)
class ChosenCheckpoint:
    """The checkpoint that all ranks go on from. ``is_exact``: it is of this very plan. ``transfers``: (donor,
    receiver), ranks of one stage, of which the receiver has no part of its own."""

    minibatch: int
    is_exact: bool
    transfers: tuple[tuple[int, int], ...] = ()


def choose(folder: Path, origin: Provenance, store: Any, rank: int, plan: PipelinePlan) -> ChosenCheckpoint:
    """Return the latest checkpoint of which every rank has its part; where there is none, of which some replica of each
    stage has one.

    :raises PlinkError: when there is none; on every rank.
    """
    store.set(f"checkpoints-{rank}", json.dumps(_offer(folder, origin, plan.place_of(rank))))
    names = plan.host_names()
    offers: list[Offer] = [json.loads(store.get(f"checkpoints-{other}")) for other in range(plan.ranks)]
    exact = set.intersection(*(set(offer[_EXACT]) for offer in offers))
    by_name = set.intersection(*(set(offer[_BY_NAME]) for offer in offers))
    if not exact | by_name:  # only then, for buffers are each replica's own
        exact = set.intersection(*(set().union(*(offers[r][_EXACT] for r in stage.ranks)) for stage in plan.stages))
    if not exact | by_name:
        lacking = min(range(plan.ranks), key=lambda other: len(offers[other][_EXACT]) + len(offers[other][_BY_NAME]))
        problem = next((offer[_PROBLEMS][0] for offer in offers if offer[_PROBLEMS]), "")
        reason = f"no checkpoint to go on from that all ranks have; rank {lacking} ({names[lacking]}) has "
        reason += "others" if any(offers[lacking][key] for key in (_EXACT, _BY_NAME)) else "none"
        raise InputError(str(folder), reason + (f"; {problem}" if problem else ""))
    latest = max(exact | by_name)
    transfers: list[tuple[int, int]] = []
    for stage in plan.stages if latest in exact else ():
        donors = [member for member in stage.ranks if latest in offers[member][_EXACT]]
        transfers += [(donors[0], member) for member in stage.ranks if member not in donors]
    return ChosenCheckpoint(latest, latest in exact, tuple(transfers))


def restore(folder: Path, origin: Provenance, place: StagePlace, replica: int, store: Any, plan: PipelinePlan) -> (
    Restored
):  # fmt: skip
    """Return what this rank goes on with, once all ranks have read theirs.

    :raises PlinkError: when one cannot; on every rank.
    """
    rank, names = dist.get_rank(), plan.host_names()
    chosen = choose(folder, origin, store, rank, plan)
    problem, restored, notes = "", None, ()
    received, donor = _exchanged(folder, chosen, rank, plan)
    try:
        if chosen.minibatch > place.minibatches:
            raise InputError(
                str(folder), f"checkpoint {chosen.minibatch} is beyond the program's {place.minibatches} minibatches"
            )
        if chosen.is_exact:
            own = part_file(folder, chosen.minibatch, (place.stage, replica))
            part = read_checkpoint(own) if received is None else checkpoint_from(received, f"part of rank {donor}")
        else:
            part = _merged(folder, origin, chosen.minibatch)
        restored = replace(_restored(part, origin, place, chosen), donor=donor)
        notes = restored.notes
    except PlinkError as error:
        problem = f"rank {rank} ({names[rank]}): {error}"
    store.set(f"restored-{rank}", json.dumps([problem, notes]))
    answers: list[tuple[str, list[str]]] = [json.loads(store.get(f"restored-{other}")) for other in range(len(names))]
    if restored is None or any(text for text, _ in answers):
        raise PlinkError(next(text for text, _ in answers if text))
    return replace(restored, notes=_notes_of_all([own for _, own in answers], names))


def _notes_of_all(notes: Sequence[Sequence[str]], names: Sequence[str]) -> tuple[str, ...]:
    """Return each note once, with the ranks that have it where not all do. ``notes``: by rank."""
    texts = []
    for text in dict.fromkeys(itertools.chain.from_iterable(notes)):
        ranks = [rank for rank, own in enumerate(notes) if text in own]
        of_ranks = ", ".join(f"rank {rank} ({names[rank]})" for rank in ranks)
        texts.append(text if len(ranks) == len(names) else f"{of_ranks}: {text}")
    return tuple(texts)


def _exchanged(folder: Path, chosen: ChosenCheckpoint, rank: int, plan: PipelinePlan) -> (
    tuple[bytes | None, int | None]
):  # fmt: skip
    """Send this rank's part to replicas that have none, or receive one; return what was received, and from whom."""
    for donor, receiver in chosen.transfers:
        if rank == donor:
            try:
                data = part_file(folder, chosen.minibatch, plan.place_of(rank)).read_bytes()
            except OSError:  # it has gone since; what is empty is refused by the receiver
                data = b""
            content = torch.frombuffer(bytearray(data or b" "), dtype=torch.uint8)
            dist.send(torch.tensor([len(content)]), receiver)
            dist.send(content, receiver)
        elif rank == receiver:
            size = torch.zeros(1, dtype=torch.int64)
            dist.recv(size, donor)
            content = torch.empty(int(size), dtype=torch.uint8)
            dist.recv(content, donor)
            return content.numpy().tobytes(), donor
    return None, None


def _restored(
    part: tuple[Any, dict[str, Any]], origin: Provenance, place: StagePlace, chosen: ChosenCheckpoint
) -> Restored:
    """Return what a part says, with what the user should know."""
    (header, state), minibatch = part, chosen.minibatch
    notes = []
    if not chosen.is_exact:
        minibatch -= minibatch % place.shape.cycle
        notes.append("it is of another plan: parameters are taken by name, older versions dropped")
    elif missing := set(older_versions_of_stage(place.shape, place.stage, minibatch, place.minibatches)) - set(
        state["versions"]
    ):
        notes.append(f"version {min(missing)} is not in it, so training does not repeat to the bit")
    if header["program"] != origin.program:
        notes.append("the program's file has changed since")
    if header["torch"] != str(torch.__version__):
        notes.append(f"PyTorch {header['torch']} wrote it, this is {torch.__version__}")
    return Restored(minibatch, state, tuple(notes))


def _offer(folder: Path, origin: Provenance, place: tuple[int, int]) -> Offer:
    offer: Offer = {_EXACT: [], _BY_NAME: [], _PROBLEMS: []}
    for minibatch in checkpoints_in(folder):
        path = part_file(folder, minibatch, place)
        try:
            if path.exists():
                header = read_header(path)
                if header["model"] != origin.model:
                    raise InputError(str(path), "it is of another model: names or shapes of parameters differ")
                if header["training"] == origin.training:
                    offer[_EXACT].append(minibatch)
                    continue
            if _parts_of_others(folder, origin, minibatch):
                offer[_BY_NAME].append(minibatch)
        except InputError as error:
            offer[_PROBLEMS].append(str(error))
    return offer


def _parts_of_others(folder: Path, origin: Provenance, minibatch: int) -> list[Path]:
    """Return the file of the first replica of each stage of another plan that has all of them; none otherwise."""
    first = part_file(folder, minibatch, (0, 0))
    if not first.exists():
        return []
    header = read_header(first)
    if header["training"] == origin.training:
        return []
    paths = [part_file(folder, minibatch, (stage, 0)) for stage in range(len(header["replicas"]))]
    for path in paths:
        if not path.exists():
            return []
        other = read_header(path)
        if other["model"] != origin.model:
            raise InputError(str(path), "it is of another model: names or shapes of parameters differ")
        if other["training"] != header["training"]:
            return []
    return paths


def _merged(folder: Path, origin: Provenance, minibatch: int) -> tuple[Any, dict[str, Any]]:
    """Return the header of one part, and the state of all stages of another plan, without versions."""
    merged: dict[str, Any] = {"parameters": {}, "buffers": {}, "optimiser": {}, "versions": {}, "groups": []}
    paths = _parts_of_others(folder, origin, minibatch)
    if not paths:
        raise PlinkError(f"{folder}: checkpoint {minibatch} has changed while it was read")
    for path in paths:
        header, state = read_checkpoint(path)
        for key in ("parameters", "buffers", "optimiser"):
            merged[key].update(state[key])
    return header, merged
