"""What a group aggregates by: a schedule for each size of message, read by rank 0 and handed to all.

Documents: ``plink.plan/1``, for all sizes alike, and ``plink.aggregation/1``.
"""

import base64
import hashlib
import io
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from torch.distributed import Store  # type: ignore[attr-defined]

from plink.documents.aggregation import AggregationDocument, SizeClassEntry
from plink.documents.codec import decode, schema_name
from plink.errors import InputError
from plink.model.plan import SCHEMA as PLAN
from plink.model.plan import Plan
from plink.model.plan_file import plan_from_json
from plink.model.schedule import Schedule, expanded, make_schedule
from plink.model.schedule_file import schedule_from_json
from plink.model.storage import name_of, read_document
from plink.runtime.aggengine.aside import another_ring
from plink.runtime.aggengine.cut import Cutting, cutting_for
from plink.runtime.aggengine.restriction import restricted

SCHEMA = schema_name(AggregationDocument)
# Of rank 0: a file, or what `Aggregation.to_text` made, which comes with the job where the file does not.
FILE, TEXT = "PLINK_PLAN", "PLINK_AGGREGATION"
MOST_TEXT = 120_000  # Linux: a variable of 128 KB is too long for a process to be started with
_MOST_CELLS = 1 << 25  # ranks times chunks that a schedule is tried out on: 4,096 ranks with as many chunks have half
_GLOO = "gloo"
_LANES = 2
_FAST_GBPS = 1.0  # below it one connection fills any link; faster ones may be shared out by connection


@dataclass(frozen=True)
class SizeClass:
    """Messages of up to so many bytes (None: of any size) go by this schedule, or by Gloo (None)."""

    up_to_bytes: int | None
    algo: str
    schedule: Schedule | None


@dataclass(frozen=True)
class Aggregation:
    """``classes``: by size, the last without a limit. ``smallest_bytes``: below it Gloo does everything; None: where
    Gloo is faster is measured when the group begins. ``tuned``: which class's schedule the launcher may replace while
    the job runs (Autotune), None: none; ``every_s``: how often it is told what ranks saw, seconds. ``ring``: all ranks
    in the sequence in which Gloo's ring had better go round them, where it is tried for large messages; empty: it is
    not. ``staged``: schedules are for tensors on GPUs, too (:mod:`accelerators`)."""

    classes: tuple[SizeClass, ...]
    lanes: int = _LANES
    cutting: Cutting = field(default_factory=Cutting)
    smallest_bytes: int | None = None
    tuned: int | None = None
    every_s: float = 2.0
    ring: tuple[int, ...] = ()
    staged: bool = False

    @property
    def ranks(self) -> int | None:
        """How many it is for; None where Gloo does everything."""
        return next((entry.schedule.ranks for entry in self.classes if entry.schedule is not None), None)

    def choose(self, size_bytes: int) -> SizeClass:
        """The class of a message."""
        fits = (entry for entry in self.classes if entry.up_to_bytes is None or size_bytes <= entry.up_to_bytes)
        return next(fits, self.classes[-1])

    def for_members(self, members: Sequence[int]) -> "Aggregation":
        """The same for a group of some of its ranks, numbered from 0 in the order given; checked, and never tuned.

        :raises InputError: for a schedule that does not sum up right; never that is known of.
        """
        if list(members) == list(range(self.ranks or 0)):
            return replace(self, tuned=None, ring=())
        made: dict[int, Schedule | None] = {}
        classes = []
        for entry in self.classes:
            whole = entry.schedule
            if whole is not None and id(whole) not in made:
                made[id(whole)] = smaller = restricted(whole, members)
                if smaller is not None:
                    _check_sums(smaller, f"{entry.algo} for ranks {', '.join(map(str, members))}")
            schedule = None if whole is None else made[id(whole)]
            classes.append(SizeClass(entry.up_to_bytes, _GLOO if schedule is None else entry.algo, schedule))
        return replace(self, classes=tuple(classes), tuned=None, ring=())

    def fingerprint(self) -> str:
        """The same wherever the same would be done."""
        digest = hashlib.blake2b(repr((self.lanes, self.cutting)).encode(), digest_size=16)
        for entry in self.classes:
            digest.update(repr((entry.up_to_bytes, entry.algo)).encode())
            if (s := entry.schedule) is not None:
                for column in (s.round, s.source, s.target, s.first, s.count, s.copies):
                    digest.update(column.tobytes())
        return digest.hexdigest()

    def to_bytes(self) -> bytes:
        """As ranks hand it to each other."""
        head = {
            "lanes": self.lanes,
            "smallest_bytes": self.smallest_bytes,
            "tuned": self.tuned,
            "every_s": self.every_s,
            "ring": self.ring,
            "staged": self.staged,
            "cutting": list(astuple(self.cutting)),
            "classes": [
                [entry.up_to_bytes, entry.algo, *((s.ranks, s.chunks) if (s := entry.schedule) is not None else ())]
                for entry in self.classes
            ],
        }
        tables = {
            f"class{k}": np.stack([s.round, s.source, s.target, s.first, s.count, s.copies.astype(np.int32)], axis=1)
            for k, entry in enumerate(self.classes)
            if (s := entry.schedule) is not None
        }
        file = io.BytesIO()
        np.savez_compressed(file, head=np.frombuffer(json.dumps(head).encode(), dtype=np.uint8), **tables)  # type: ignore[arg-type]
        return file.getvalue()

    def to_text(self) -> str:
        """As a launcher hands it to rank 0."""
        return base64.b64encode(self.to_bytes()).decode()


def from_bytes(data: bytes) -> Aggregation:
    """What :meth:`Aggregation.to_bytes` made."""
    with np.load(io.BytesIO(data), allow_pickle=False) as file:
        head = json.loads(file["head"].tobytes())
        classes = []
        for k, (limit, algo, *shape) in enumerate(head["classes"]):
            made = make_schedule(algo, shape[0], shape[1], file[f"class{k}"]) if shape else None
            classes.append(SizeClass(limit, algo, made))
    return Aggregation(
        tuple(classes), head["lanes"], Cutting(*head["cutting"]), head["smallest_bytes"], head["tuned"],
        head["every_s"], tuple(head["ring"]), head["staged"],
    )  # fmt: skip


def for_rate(classes: tuple[SizeClass, ...], rate_gbps: float | None) -> Aggregation:
    """With lanes and pieces for hosts that send so much, Gbit/s; None: nobody knows."""
    slow = rate_gbps is not None and rate_gbps < _FAST_GBPS
    return Aggregation(classes, lanes=1 if slow else _LANES, cutting=cutting_for(rate_gbps))


def for_plan(classes: tuple[SizeClass, ...], plan: Plan) -> Aggregation:
    """As :func:`for_rate`, with a ring that goes from one group of the plan to the next: ranks of a group are near."""
    ring = tuple(rank for group in plan.groups or () for rank in group)
    several = plan.groups is not None and len(plan.groups) > 1
    return replace(for_rate(classes, plan.rate_gbps), ring=ring if several and another_ring(ring) else ())


def replacement_from(data: bytes, ranks: int) -> Schedule | None:
    """The one schedule of these bytes, if it sums up right for so many ranks; None for anything else."""
    try:
        (entry,) = from_bytes(data).classes
        if entry.schedule is None or entry.schedule.ranks != ranks:
            return None
        _check_sums(entry.schedule, "schedule")
    except Exception:  # whatever it is: it is none
        return None
    return entry.schedule


def aggregation_from_json(document: dict[str, Any], where: str) -> Aggregation:
    """From a plan, or from classes of sizes.

    :raises InputError: naming the key that is wrong.
    """
    if document.get("schema") == PLAN:
        plan = plan_from_json(document, where)
        if plan.schedule is None:
            raise InputError(f"{where}: schedule", "the plan has none: it was too large for the file")
        _check_sums(plan.schedule, f"{where}: schedule")
        return for_plan((SizeClass(None, plan.algo, plan.schedule),), plan)
    if document.get("schema") != SCHEMA:
        raise InputError(f"{where}: schema", f"expected {PLAN!r} or {SCHEMA!r}, got {document.get('schema')!r}")
    checked = decode(AggregationDocument, document, where)
    classes = tuple(_class(row, f"{where}: classes[{k}]") for k, row in enumerate(checked["classes"]))
    limits = [entry.up_to_bytes for entry in classes]
    if limits[-1] is not None or None in limits[:-1] or sorted(set(limits[:-1])) != limits[:-1]:  # type: ignore[type-var]
        raise InputError(f"{where}: classes", "limits that grow were expected, and none (null) for the last class")
    ranks = {entry.schedule.ranks for entry in classes if entry.schedule is not None}
    if len(ranks) > 1:
        raise InputError(f"{where}: classes", f"schedules for {' and '.join(map(str, sorted(ranks)))} ranks")
    plain = Aggregation(classes)
    cutting = Cutting(
        checked.get("chunk_bytes", plain.cutting.chunk_bytes),
        checked.get("piece_bytes", plain.cutting.piece_bytes),
        checked.get("pieces", plain.cutting.pieces),
        checked.get("least_bytes", plain.cutting.least_bytes),
    )
    return Aggregation(
        classes,
        checked.get("lanes", plain.lanes),
        cutting,
        checked.get("smallest_bytes"),
        ring=_ring(checked.get("ring", []), max(ranks, default=0), where),
    )


def aggregation_to_json(aggregation: Aggregation, **details: Any) -> dict[str, Any]:
    """The document as written to disk."""
    return {
        "schema": SCHEMA,
        "lanes": aggregation.lanes,
        "chunk_bytes": aggregation.cutting.chunk_bytes,
        "piece_bytes": aggregation.cutting.piece_bytes,
        "pieces": aggregation.cutting.pieces,
        "least_bytes": aggregation.cutting.least_bytes,
        "smallest_bytes": aggregation.smallest_bytes,
        "ring": list(aggregation.ring),
        **details,
        "classes": [
            {
                "up_to_bytes": entry.up_to_bytes,
                "algo": entry.algo,
                "schedule": None if entry.schedule is None else entry.schedule.to_json(),
            }
            for entry in aggregation.classes
        ],
    }


def read_aggregation(path: str | Path) -> Aggregation:
    """From a file.

    :raises InputError: as :func:`aggregation_from_json`, and when the file cannot be read.
    """
    return aggregation_from_json(read_document(path), name_of(path))


def _class(row: SizeClassEntry, where: str) -> SizeClass:
    limit, entry = row["up_to_bytes"], row.get("schedule")
    if entry is None:
        if row["algo"] != _GLOO:
            raise InputError(f"{where}: schedule", f"there is none, and the algorithm is not {_GLOO}")
        return SizeClass(limit, _GLOO, None)
    schedule = schedule_from_json(entry, f"{where}: schedule")
    if schedule.collective != "all-reduce":
        raise InputError(f"{where}: schedule", f"expected an all-reduce, got {schedule.collective}")
    _check_sums(schedule, f"{where}: schedule")
    return SizeClass(limit, row["algo"], schedule)


def _ring(ring: list[int], ranks: int, where: str) -> tuple[int, ...]:
    if ring and sorted(ring) != list(range(ranks)):
        raise InputError(f"{where}: ring", f"expected every rank from 0 to {ranks - 1}, once")
    return tuple(ring)


def _check_sums(schedule: Schedule, where: str) -> None:
    """Run the schedule on one random number a rank and chunk, modulo 2 ** 64: quicker than a proof (`plink schedule
    verify FILE` gives one), and what it overlooks has a probability of 2 ** -64."""
    if schedule.ranks * schedule.chunks > _MOST_CELLS:
        raise InputError(
            where, f"{schedule.ranks} ranks and {schedule.chunks} chunks are more than ranks can be handed"
        )
    given = np.random.default_rng().integers(0, 1 << 64, (schedule.ranks, schedule.chunks), dtype=np.uint64)
    state = given.copy()
    transfer, chunk = expanded(schedule)
    source, target = schedule.source[transfer], schedule.target[transfer]
    copies = schedule.copies[transfer]
    ends = np.searchsorted(schedule.round[transfer], np.arange(schedule.rounds + 1))
    for begin, end in pairwise(ends):
        here = slice(begin, end)
        carried = state[source[here], chunk[here]]
        copied, to, which = copies[here], target[here], chunk[here]
        state[to[copied], which[copied]] = carried[copied]
        np.add.at(state, (to[~copied], which[~copied]), carried[~copied])
    wrong = np.argwhere(state != given.sum(axis=0, dtype=np.uint64)[None, :])
    if len(wrong):
        rank, which = wrong[0].tolist()
        raise InputError(where, f"rank {rank} does not end with the sum of chunk {which}")


def given() -> Aggregation | None:
    """What this process was started with: PLINK_PLAN names a file; None without.

    :raises InputError: when it cannot be read.
    """
    path, text = os.environ.get(FILE), os.environ.get(TEXT)
    if path:
        return read_aggregation(path)
    return from_bytes(base64.b64decode(text, validate=True)) if text else None


def share(store: Store, rank: int, find: Callable[[], Aggregation | None] = given) -> Aggregation | None:
    """Rank 0 of the group finds what it goes by, and hands it to all; None for nothing.

    :raises InputError: on every rank, when it cannot be found.
    """
    if rank == 0:
        store.set("plan", _found(find))  # type: ignore[arg-type]
    data = store.get("plan")
    kind, body = data[:1], data[1:]
    if kind == b"!":
        raise InputError(*body.decode().split("\0"))
    return from_bytes(body) if body else None


def _found(find: Callable[[], Aggregation | None]) -> bytes:
    try:
        aggregation = find()
        return b"=" + (aggregation.to_bytes() if aggregation is not None else b"")
    except InputError as error:
        return b"!" + f"{error.location}\0{error.reason}".encode()
    except Exception as error:  # whatever it is: the others wait for an answer
        return b"!" + f"{os.environ.get(FILE) or TEXT}\0it is not what plink wrote: {error}".encode()
