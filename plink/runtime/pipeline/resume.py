"""Go on from a checkpoint: the latest of which every rank has its part.

With the plan that wrote it, training goes on to the bit. With another plan, parameters and the optimiser's state are
taken by name from all parts, and older versions are dropped. A part that is damaged is passed over.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from plink.errors import InputError, PlinkError
from plink.model.pipeline.plan import PipelinePlan
from plink.model.pipeline.versions import older_versions_from
from plink.runtime.pipeline.checkpoint_file import read_header, read_state
from plink.runtime.pipeline.checkpoints import Provenance, checkpoints_in, part_file
from plink.runtime.pipeline.stage import StagePlace

_EXACT, _BY_NAME, _PROBLEMS = "exact", "by_name", "problems"
Offer = dict[str, list[Any]]
"""Minibatches of the checkpoints that a rank can go on from, and what is wrong with others."""


@dataclass(frozen=True)
class Restored:
    """State to go on with from a minibatch. ``notes``: what the user should know, for one rank to say."""

    minibatch: int
    state: dict[str, Any]
    notes: tuple[str, ...] = ()


def digest_of_training(plan: PipelinePlan) -> str:
    """Return a digest of what decides the bits that training ends with; hosts do not."""
    stages = [
        [stage.first, stage.last, len(stage.ranks), stage.depth, stage.lr_scale, stage.details.get("all_reduce")]
        for stage in plan.stages
    ]
    shape = plan.shape
    text = json.dumps([plan.kind, plan.accumulate, plan.vertical_sync, plan.reduce, shape.frozen, stages])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def choose(folder: Path, origin: Provenance, place: tuple[int, int], store: Any, rank: int, names: Sequence[str]) -> (
    tuple[int, bool]
):  # fmt: skip
    """Return the latest checkpoint that all ranks have, and whether it is of this very plan.

    :param names: of the host of each rank.
    :raises PlinkError: when there is none; on every rank.
    """
    store.set(f"checkpoints-{rank}", json.dumps(_offer(folder, origin, place)))
    offers: list[Offer] = [json.loads(store.get(f"checkpoints-{other}")) for other in range(len(names))]
    exact = set.intersection(*(set(offer[_EXACT]) for offer in offers))
    by_name = set.intersection(*(set(offer[_BY_NAME]) for offer in offers))
    if not exact | by_name:
        lacking = min(range(len(names)), key=lambda other: len(offers[other][_EXACT]) + len(offers[other][_BY_NAME]))
        problem = next((offer[_PROBLEMS][0] for offer in offers if offer[_PROBLEMS]), "")
        reason = f"no checkpoint to go on from that all ranks have; rank {lacking} ({names[lacking]}) has "
        reason += "others" if any(offers[lacking][key] for key in (_EXACT, _BY_NAME)) else "none"
        raise InputError(str(folder), reason + (f"; {problem}" if problem else ""))
    latest = max(exact | by_name)
    return latest, latest in exact


def restore(folder: Path, origin: Provenance, place: StagePlace, replica: int, store: Any, names: Sequence[str]) -> (
    Restored
):  # fmt: skip
    """Return what this rank goes on with, once all ranks have read theirs.

    :param names: of the host of each rank.
    :raises PlinkError: when one cannot; on every rank.
    """
    rank = dist.get_rank()
    chosen = choose(folder, origin, (place.stage, replica), store, rank, names)
    problem, restored = "", None
    try:
        if chosen[0] > place.minibatches:
            raise InputError(
                str(folder), f"checkpoint {chosen[0]} is beyond the program's {place.minibatches} minibatches"
            )
        restored = _load(folder, origin, place, replica, chosen)
    except PlinkError as error:
        problem = f"rank {rank} ({names[rank]}): {error}"
    store.set(f"restored-{rank}", problem)
    problems = [store.get(f"restored-{other}").decode() for other in range(len(names))]
    if restored is None or any(problems):
        raise PlinkError(next(text for text in problems if text))
    return restored


def _load(folder: Path, origin: Provenance, place: StagePlace, replica: int, chosen: tuple[int, bool]) -> Restored:
    """Read what :func:`choose` chose.

    :raises PlinkError: when it cannot be read.
    """
    minibatch, is_exact = chosen
    notes = []
    if is_exact:
        path = part_file(folder, minibatch, (place.stage, replica))
        header, state = read_header(path), read_state(path)
        if missing := set(older_versions_from(place.shape, (place.stage, replica), minibatch, place.minibatches)) - set(
            state["versions"]
        ):
            notes.append(f"version {min(missing)} is not in it, so training does not repeat to the bit")
    else:
        header, state = _merged(folder, origin, minibatch)
        minibatch -= minibatch % place.shape.cycle
        notes.append("it is of another plan: parameters are taken by name, older versions dropped")
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
        state = read_state(path)
        for key in ("parameters", "buffers", "optimiser"):
            merged[key].update(state[key])
    return read_header(paths[0]), merged
