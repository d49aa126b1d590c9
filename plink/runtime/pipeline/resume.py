"""Go on from a checkpoint: the latest of which every rank has its part.

With the plan that wrote it, training goes on to the bit. A rank that has no part, as on a host that replaces a lost
one, gets that of another replica of its stage: all but its buffers is the same. With another plan, parameters and the
optimiser's state are taken by name from all parts, and older versions are dropped. A part that is damaged is passed
over. Parts of two starts are never taken together: a start that goes on from a checkpoint may have other data.
"""

import hashlib
import itertools
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import torch
import torch.distributed as dist
from msgspec import to_builtins

from plink.errors import InputError, PlinkError
from plink.model.pipeline.plan import PipelinePlan
from plink.model.pipeline.rank_report import CheckpointHeader
from plink.model.pipeline.shape import older_versions_of_stage
from plink.runtime.pipeline.checkpoint_file import checkpoint_from, read_checkpoint, read_header
from plink.runtime.pipeline.checkpoints import Provenance, checkpoints_in, part_file
from plink.runtime.pipeline.stage import StagePlace


@dataclass(frozen=True)
class CheckpointOffer:
    """What a rank can go on from: the start that wrote each checkpoint, by minibatch; and what is wrong with others.

    ``exact``: its own part, of this very plan. ``by_name``: all parts of another plan.
    """

    exact: dict[int, str]
    by_name: dict[int, str]
    problems: list[str]


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
        [stage.first, stage.last, len(stage.ranks), stage.depth, stage.lr_scale, to_builtins(stage.all_reduce or None)]
        for stage in plan.stages
    ]
    shape = plan.shape
    text = json.dumps([plan.kind, plan.accumulate, plan.vertical_sync, plan.reduce, shape.frozen, stages])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True)
class ChosenCheckpoint:
    """The checkpoint that all ranks go on from, and the start that wrote it. ``is_exact``: it is of this very plan.
    ``transfers``: (donor, receiver), ranks of one stage, of which the receiver has no part of its own."""

    minibatch: int
    start: str
    is_exact: bool
    transfers: tuple[tuple[int, int], ...] = ()


def choose(folder: Path, origin: Provenance, store: Any, rank: int, plan: PipelinePlan) -> ChosenCheckpoint:
    """Return the latest checkpoint of which every rank has its part, all of one start. Where there is none of this
    plan, or only one of another plan is as late, some replica of each stage must have a part.

    :raises PlinkError: when there is none; on every rank.
    """
    store.set(f"checkpoints-{rank}", msgspec.json.encode(_offer(folder, origin, plan.place_of(rank))).decode())
    offers = [
        msgspec.json.decode(store.get(f"checkpoints-{other}"), type=CheckpointOffer) for other in range(plan.ranks)
    ]
    stages = [stage.ranks for stage in plan.stages]
    alone = [(other,) for other in range(plan.ranks)]
    parts = [offer.exact for offer in offers]
    exact, completed = _common(parts, alone), _common(parts, stages)
    by_name = _common([offer.by_name for offer in offers], alone)
    # Only then is another replica's part taken, for buffers are each replica's own.
    if max(completed, default=-1) >= max(by_name, default=-1) > max(exact, default=-1) or not exact:
        exact = completed
    if not exact and not by_name:
        raise InputError(str(folder), _why_none(offers, plan.host_names()))
    latest = max([*exact, *by_name])
    if latest not in exact:
        return ChosenCheckpoint(latest, by_name[latest], False)
    transfers: list[tuple[int, int]] = []
    for members in stages:
        donors = [member for member in members if offers[member].exact.get(latest) == exact[latest]]
        transfers += [(donors[0], member) for member in members if member not in donors]
    return ChosenCheckpoint(latest, exact[latest], True, tuple(transfers))


def _common(offers: Sequence[Mapping[int, str]], groups: Sequence[Sequence[int]]) -> dict[int, str]:
    """Return the checkpoints that a rank of each group offers, all of one start: of several that of most ranks."""
    by_group = [{(number, start) for rank in group for number, start in offers[rank].items()} for group in groups]
    counts = Counter(entry for own in offers for entry in own.items())
    entries = sorted(set.intersection(*by_group), key=lambda entry: (counts[entry], entry))
    return dict(entries)


def _why_none(offers: Sequence[CheckpointOffer], names: Sequence[str]) -> str:
    lacking = min(range(len(offers)), key=lambda rank: len(offers[rank].exact) + len(offers[rank].by_name))
    problem = next((offer.problems[0] for offer in offers if offer.problems), "")
    reason = f"no checkpoint to go on from that all ranks have; rank {lacking} ({names[lacking]}) has "
    reason += "others" if offers[lacking].exact or offers[lacking].by_name else "none"
    return reason + (f"; {problem}" if problem else "")


def restore(
    folder: Path, origin: Provenance, place: StagePlace, replica: int, store: Any, plan: PipelinePlan
) -> Restored:
    """Return what this rank goes on with, once all ranks have read theirs.

    :raises PlinkError: when one cannot; on every rank.
    """
    rank, names = dist.get_rank(), plan.host_names()
    chosen = choose(folder, origin, store, rank, plan)
    problem, restored = "", None
    notes: tuple[str, ...] = ()
    received, donor, lost = _exchanged(folder, chosen, rank, plan)
    try:
        if lost:
            raise PlinkError(f"lost rank {lost[0]} ({names[lost[0]]}) while a checkpoint's part was sent")
        if chosen.minibatch > place.minibatches:
            raise InputError(
                str(folder), f"checkpoint {chosen.minibatch} is beyond the program's {place.minibatches} minibatches"
            )
        if chosen.is_exact:
            own = part_file(folder, chosen.minibatch, (place.stage, replica))
            part = read_checkpoint(own) if received is None else checkpoint_from(received, f"part of rank {donor}")
        else:
            part = _merged(folder, origin, chosen)
        restored = replace(_restored(part, origin, place, chosen), donor=donor)
        notes = restored.notes
    except PlinkError as error:
        problem = f"rank {rank} ({names[rank]}): {error}"
    for other in (rank, *lost):  # those that are lost answer nothing themselves
        store.set(f"restored-{other}", json.dumps([problem, notes]))
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


def _exchanged(
    folder: Path, chosen: ChosenCheckpoint, rank: int, plan: PipelinePlan
) -> tuple[bytes | None, int | None, list[int]]:
    """Send this rank's part to replicas that have none, or receive one; return what was received, from whom, and which
    ranks were lost on the way."""
    received, sender = None, None
    lost: list[int] = []
    for donor, receiver in chosen.transfers:
        try:
            if rank == donor:
                _send_part(part_file(folder, chosen.minibatch, plan.place_of(rank)), receiver)
            elif rank == receiver:
                sender, received = donor, _received_part(donor)
        except RuntimeError:  # the other ranks still get theirs
            lost.append(receiver if rank == donor else donor)
    return received, sender, lost


def _send_part(path: Path, receiver: int) -> None:
    try:
        data = path.read_bytes()
    except OSError:  # it has gone since; what is empty is refused by the receiver
        data = b""
    content = torch.frombuffer(bytearray(data or b" "), dtype=torch.uint8)
    dist.send(torch.tensor([len(content)]), receiver)
    dist.send(content, receiver)


def _received_part(donor: int) -> bytes:
    size = torch.zeros(1, dtype=torch.int64)
    dist.recv(size, donor)
    content = torch.empty(int(size), dtype=torch.uint8)
    dist.recv(content, donor)
    return content.numpy().tobytes()


def _restored(
    part: tuple[Any, dict[str, Any]], origin: Provenance, place: StagePlace, chosen: ChosenCheckpoint
) -> Restored:
    """Return what a part says, with what the user should know."""
    (header, state), minibatch = part, chosen.minibatch
    notes = []
    if not chosen.is_exact:
        minibatch -= minibatch % place.shape.cycle
        repeated = f"; minibatches from {minibatch} on are repeated" if minibatch < chosen.minibatch else ""
        notes.append(f"it is of another plan: parameters are taken by name, older versions dropped{repeated}")
    elif missing := set(older_versions_of_stage(place.shape, place.stage, minibatch, place.minibatches)) - set(
        state["versions"]
    ):
        notes.append(f"version {min(missing)} is not in it, so training does not repeat to the bit")
    if header.program != origin.program:
        notes.append("the program's file has changed since")
    if header.arguments != origin.arguments:
        notes.append("the program's arguments have changed since")
    if header.torch != str(torch.__version__):
        notes.append(f"PyTorch {header.torch} wrote it, this is {torch.__version__}")
    return Restored(minibatch, state, tuple(notes))


def _offer(folder: Path, origin: Provenance, place: tuple[int, int]) -> CheckpointOffer:
    offer = CheckpointOffer({}, {}, [])
    for minibatch in checkpoints_in(folder):
        path = part_file(folder, minibatch, place)
        if path.exists():
            try:
                header = read_header(path)
                _check_model(header, origin, path)
                if header.training == origin.training:
                    offer.exact[minibatch] = header.start
                    continue
            except InputError as error:
                offer.problems.append(str(error))
        if (others := _parts_of_others(folder, origin, minibatch, offer.problems)) is not None:
            offer.by_name[minibatch] = others.start
    return offer


def _check_model(header: CheckpointHeader, origin: Provenance, path: Path) -> None:
    if header.model != origin.model:
        raise InputError(str(path), "it is of another model: names or shapes of parameters differ")


@dataclass(frozen=True)
class _PartsOfOthers:
    """Of another plan, the part of some replica of each stage, all of one start."""

    start: str
    paths: tuple[Path, ...]


def _parts_of_others(
    folder: Path, origin: Provenance, minibatch: int, problems: list[str], start: str | None = None
) -> _PartsOfOthers | None:
    """Return a checkpoint of another plan, of which some replica of each stage has a part that is not damaged.

    :param problems: what is wrong with parts is added. :param start: only this one.
    """
    # By start and training: how many stages there are, and those of which there is a part.
    candidates: dict[tuple[str, str], tuple[int, dict[int, Path]]] = {}
    for path in sorted(part_file(folder, minibatch, (0, 0)).parent.glob("stage-*-replica-*.pt")):
        try:
            header = read_header(path)
            if header.training == origin.training or start not in (None, header.start):
                continue
            _check_model(header, origin, path)
        except InputError as error:
            problems.append(str(error))
            continue
        stages, paths = candidates.setdefault((header.start, header.training), (len(header.replicas), {}))
        paths.setdefault(header.stage, path)
    for (written_by, _), (stages, paths) in sorted(candidates.items()):
        if len(paths) == stages:
            return _PartsOfOthers(written_by, tuple(paths[stage] for stage in sorted(paths)))
    return None


def _merged(folder: Path, origin: Provenance, chosen: ChosenCheckpoint) -> tuple[Any, dict[str, Any]]:
    """Return the header of one part, and the state of all stages of another plan, without versions."""
    merged: dict[str, Any] = {"parameters": {}, "buffers": {}, "optimiser": {}, "versions": {}, "groups": []}
    parts = _parts_of_others(folder, origin, chosen.minibatch, [], chosen.start)
    if parts is None:
        raise PlinkError(f"{folder}: checkpoint {chosen.minibatch} has changed while it was read")
    for path in parts.paths:
        header, state = read_checkpoint(path)
        for key in ("parameters", "buffers", "optimiser"):
            merged[key].update(state[key])
    return header, merged
