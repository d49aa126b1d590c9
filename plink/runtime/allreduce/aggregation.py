"""Aggregation plan of a group: a schedule for each range of message sizes, read by rank 0 and broadcast to all.

Documents: ``plink.plan/1``, for all sizes alike, and ``plink.aggregation/2``.
"""

import base64
import hashlib
import io
import itertools
import json
import lzma
import os
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import UNSET
from torch.distributed import Store  # type: ignore[attr-defined]

from plink.errors import InputError, UsageError
from plink.model.codec import decode, schema_name
from plink.model.plan import PLAN, Plan, plan_from_json
from plink.model.schedule import Schedule, expanded, forward_and_reverse, make_schedule
from plink.model.schedule_file import AggregationFile, SizeClassEntry, schedule_from
from plink.model.segmentation import HUB_PARTS, SegmentationConfig, segmentation_for_rate
from plink.model.storage import name_of, read_document
from plink.model.units import format_bytes
from plink.runtime.allreduce.secondary_group import differs_from_rank_order
from plink.runtime.allreduce.subgroup_schedule import subgroup_schedule

SCHEMA = schema_name(AggregationFile)
# Variables of rank 0: a file, or where it is not on the host the text of `Aggregation.to_environment`, whose further
# parts have a number: PLINK_AGGREGATION_1 and so on.
FILE, TEXT = "PLINK_PLAN", "PLINK_AGGREGATION"
_MAX_VARIABLE_BYTES = 120_000  # Linux starts no process with a variable of 128 KB
_MAX_TEXT_BYTES = 1_000_000  # of all, which may have 2 MB together
_MAX_CHECKED_CELLS = 1 << 25  # ranks times chunks of a schedule's check: 4,096 ranks with as many chunks have half
_GLOO = "gloo"
_SEGMENTATION = ("chunk_bytes", "segment_bytes", "segments", "min_segment_bytes")
_CHANNELS = 2
_FAST_GBPS = 1.0  # below it one connection fills any link; faster links may share bandwidth by connection


@dataclass(frozen=True)
class SizeClass:
    """Messages of up to ``up_to_bytes`` (None: of any size) use this schedule, or Gloo (None)."""

    up_to_bytes: int | None
    algo: str
    schedule: Schedule | None


@dataclass(frozen=True)
class Aggregation:
    """Algorithm selection of a group, and how vectors are segmented.

    ``classes``: by size, the last without a limit. ``smallest_bytes``: below it Gloo does everything; None: the
    threshold is measured when the group begins. ``tuned``: the class whose schedule Autotune may replace while the job
    runs, None for none; ``every_s``: interval of the ranks' reports to it, seconds. ``ring``: all ranks in a better
    order for Gloo's own ring, which is tried for large messages if there are no hubs; empty for none. ``staged``:
    schedules are used for tensors on GPUs, too (:mod:`cuda_delegation`). ``hubs``: names of the hub processes, which
    are the last ranks of the schedules, contribute nothing and are no ranks of the job (:mod:`hub`).
    """

    classes: tuple[SizeClass, ...]
    channels: int = _CHANNELS
    segmentation: SegmentationConfig = field(default_factory=SegmentationConfig)
    smallest_bytes: int | None = None
    tuned: int | None = None
    every_s: float = 2.0
    ring: tuple[int, ...] = ()
    staged: bool = False
    hubs: tuple[str, ...] = ()

    @property
    def ranks(self) -> int | None:
        """Number of ranks of the job; None where Gloo does everything."""
        of_schedules = [entry.schedule.ranks for entry in self.classes if entry.schedule is not None]
        return max(of_schedules) - len(self.hubs) if of_schedules else None

    def choose(self, size_bytes: int) -> SizeClass:
        """Return the size class of a message."""
        fits = (entry for entry in self.classes if entry.up_to_bytes is None or size_bytes <= entry.up_to_bytes)
        return next(fits, self.classes[-1])

    def schedule_for(self, size_bytes: int, required: bool) -> Schedule | None:
        """Return the schedule of a message, None where Gloo does it; ``required``: that of another size then."""
        entries = (self.choose(size_bytes), *(self.classes if required else ()))
        return next((entry.schedule for entry in entries if entry.schedule is not None), None)

    def segmentation_of(self, schedule: Schedule) -> SegmentationConfig:
        """Return the segmentation for a schedule: finer with hubs (docs/results/hub.md)."""
        has_hubs = bool(self.hubs) and schedule.ranks != self.ranks
        return self.segmentation.finer(HUB_PARTS) if has_hubs else self.segmentation

    def for_members(self, members: Sequence[int]) -> "Aggregation":
        """Return the aggregation of a group of some of its ranks, checked and never tuned.

        The members are numbered from 0 in the order of the argument.

        :raises InputError: for a schedule that gives wrong sums; no such case is known.
        """
        if not self.hubs and list(members) == list(range(self.ranks or 0)):
            return replace(self, tuned=None, ring=())
        by_id: dict[int, Schedule | None] = {}
        classes = []
        for entry in self.classes:
            schedule_of_all = entry.schedule
            if schedule_of_all is not None and id(schedule_of_all) not in by_id:
                by_id[id(schedule_of_all)] = subgroup_one = subgroup_schedule(schedule_of_all, members)
                if subgroup_one is not None:
                    _check_sums(subgroup_one, f"{entry.algo} for ranks {', '.join(map(str, members))}")
            schedule = None if schedule_of_all is None else by_id[id(schedule_of_all)]
            has_hubs = schedule_of_all is not None and schedule_of_all.ranks != self.ranks
            algo = _GLOO if schedule is None else f"{entry.algo} without hubs" if has_hubs else entry.algo
            classes.append(SizeClass(entry.up_to_bytes, algo, schedule))
        return replace(self, classes=tuple(classes), tuned=None, ring=(), hubs=())

    def fingerprint(self) -> str:
        """Return a digest that is equal for equal behaviour."""
        digest = hashlib.blake2b(repr((self.channels, self.segmentation)).encode(), digest_size=16)
        for entry in self.classes:
            digest.update(repr((entry.up_to_bytes, entry.algo)).encode())
            if (s := entry.schedule) is not None:
                for column in (s.round, s.source, s.target, s.first, s.count, s.copies):
                    digest.update(column.tobytes())
        return digest.hexdigest()

    def to_bytes(self) -> bytes:
        """Return the serialised form that ranks exchange."""
        head = {
            **{each.name: getattr(self, each.name) for each in fields(self)},
            "segmentation": list(astuple(self.segmentation)),
            "classes": [
                [
                    each.up_to_bytes,
                    each.algo,
                    *((s.ranks, s.chunks, len(s)) if (s := each.schedule) is not None else ()),
                ]
                for each in self.classes
            ],
        }
        tables = {f"class{k}": _packed(s) for k, entry in enumerate(self.classes) if (s := entry.schedule) is not None}
        file = io.BytesIO()
        np.savez(file, head=np.frombuffer(json.dumps(head).encode(), dtype=np.uint8), **tables)  # type: ignore[arg-type]
        return lzma.compress(file.getvalue())

    def to_environment(self) -> dict[str, str]:
        """Return the variables by which a launcher passes it to rank 0.

        :raises UsageError: when it is too large for them.
        """
        text = base64.b64encode(self.to_bytes()).decode()
        if len(text) > _MAX_TEXT_BYTES:
            raise UsageError(
                f"the schedules for {self.ranks} ranks take {format_bytes(len(text))}, compressed, and travel with the "
                f"job up to {format_bytes(_MAX_TEXT_BYTES)}; put a plan on the first host and name it: --env "
                f"{FILE}=PATH --env PLINK_BACKEND=plan"
            )
        # An empty part is the last: the job may have been started by a rank of another.
        starts = range(0, len(text) + _MAX_VARIABLE_BYTES, _MAX_VARIABLE_BYTES)
        parts = {_text_variable(k): text[start : start + _MAX_VARIABLE_BYTES] for k, start in enumerate(starts)}
        return {**parts, FILE: ""}


def _text_variable(part: int) -> str:
    return f"{TEXT}_{part}" if part else TEXT


def _packed(schedule: Schedule) -> npt.NDArray[np.int32]:
    """Return a schedule's columns, shape (6, M), as differences of neighbours, of which most are alike.

    Where its second half is the reverse of the first, that is left out: shape (6, M / 2).
    """
    columns = _columns(schedule)
    half = make_schedule(schedule.algo, schedule.ranks, schedule.chunks, columns[:, : len(schedule) // 2].T)
    is_mirrored = np.array_equal(_columns(forward_and_reverse(half)), columns)
    return np.diff(_columns(half) if is_mirrored else columns, axis=1, prepend=np.int32(0))


def _columns(schedule: Schedule) -> npt.NDArray[np.int32]:
    s = schedule
    return np.stack([s.round, s.source, s.target, s.first, s.count, s.copies.astype(np.int32)])


def from_bytes(data: bytes) -> Aggregation:
    """Return the aggregation that :meth:`Aggregation.to_bytes` serialised."""
    with np.load(io.BytesIO(lzma.decompress(data)), allow_pickle=False) as file:
        head = json.loads(file["head"].tobytes())
        classes = []
        for k, (limit, algo, *shape) in enumerate(head["classes"]):
            schedule = None
            if shape:
                ranks, chunks, transfers = shape
                schedule = make_schedule(algo, ranks, chunks, np.cumsum(file[f"class{k}"], axis=1, dtype=np.int32).T)
                schedule = schedule if len(schedule) == transfers else forward_and_reverse(schedule)
            classes.append(SizeClass(limit, algo, schedule))
    lists = {"classes": tuple(classes), "ring": tuple(head["ring"]), "hubs": tuple(head["hubs"])}
    return Aggregation(**{**head, **lists, "segmentation": SegmentationConfig(*head["segmentation"])})


def aggregation_for_rate(classes: tuple[SizeClass, ...], rate_gbps: float | None) -> Aggregation:
    """Return an aggregation with channels and segments for hosts of this bandwidth, Gbit/s; None if unknown."""
    slow = rate_gbps is not None and rate_gbps < _FAST_GBPS
    return Aggregation(classes, channels=1 if slow else _CHANNELS, segmentation=segmentation_for_rate(rate_gbps))


def over_rails(aggregation: Aggregation, rails: int) -> Aggregation:
    """Return the aggregation with its channels on each of several rails, and segments enough for all of them."""
    segmentation = aggregation.segmentation
    return replace(
        aggregation,
        channels=rails * aggregation.channels,
        segmentation=replace(segmentation, min_segment_bytes=max(1, segmentation.min_segment_bytes // rails)),
    )


def aggregation_for_plan(classes: tuple[SizeClass, ...], plan: Plan) -> Aggregation:
    """Return :func:`aggregation_for_rate` with a ring that visits the plan's groups one after the other."""
    ring = tuple(rank for group in plan.groups or () for rank in group)
    has_groups = plan.groups is not None and len(plan.groups) > 1
    return replace(
        aggregation_for_rate(classes, plan.rate_gbps), ring=ring if has_groups and differs_from_rank_order(ring) else ()
    )


def parse_replacement(data: bytes, ranks: int) -> Schedule | None:
    """Return the one schedule of these bytes, if its sums are right for so many ranks; None otherwise."""
    try:
        (entry,) = from_bytes(data).classes
        if entry.schedule is None or entry.schedule.ranks != ranks:
            return None
        _check_sums(entry.schedule, "schedule")
    except Exception:  # anything malformed is no replacement
        return None
    return entry.schedule


def aggregation_from_json(document: dict[str, Any], location: str) -> Aggregation:
    """Return the aggregation of a plan or of an aggregation document.

    :raises InputError: naming the key that is wrong.
    """
    if document.get("schema") == PLAN:
        plan = plan_from_json(document, location)
        if plan.schedule is None:
            raise InputError(f"{location}: schedule", "missing: it was too large for the plan's file")
        _check_sums(plan.schedule, f"{location}: schedule")
        return aggregation_for_plan((SizeClass(None, plan.algo, plan.schedule),), plan)
    if document.get("schema") != SCHEMA:
        raise InputError(f"{location}: schema", f"expected {PLAN!r} or {SCHEMA!r}, got {document.get('schema')!r}")
    file = decode(AggregationFile, document, location)
    classes = tuple(_class(row, f"{location}: classes[{k}]") for k, row in enumerate(file.classes))
    limits = [entry.up_to_bytes for entry in classes]
    if limits[-1] is not None or None in limits[:-1] or sorted(set(limits[:-1])) != limits[:-1]:  # type: ignore[type-var]
        raise InputError(f"{location}: classes", "expected increasing limits, and null for the last class")
    ranks = {entry.schedule.ranks for entry in classes if entry.schedule is not None}
    if len(ranks) > 1:
        raise InputError(f"{location}: classes", f"schedules for {' and '.join(map(str, sorted(ranks)))} ranks")
    default = Aggregation(classes)
    settings = {key: value for key in _SEGMENTATION if (value := getattr(file, key)) is not UNSET}
    return Aggregation(
        classes,
        default.channels if file.channels is UNSET else file.channels,
        replace(default.segmentation, **settings),
        None if file.smallest_bytes is UNSET else file.smallest_bytes,
        ring=_ring(file.ring or (), max(ranks, default=0), location),
    )


def read_aggregation(path: str | Path) -> Aggregation:
    """Read an aggregation from a file.

    :raises InputError: as :func:`aggregation_from_json`, and when the file cannot be read.
    """
    return aggregation_from_json(read_document(path), name_of(path))


def _class(row: SizeClassEntry, location: str) -> SizeClass:
    limit, file = row.up_to_bytes, row.schedule
    if file is None or file is UNSET:
        if row.algo != _GLOO:
            raise InputError(f"{location}: schedule", f"missing, and the algorithm is not {_GLOO}")
        return SizeClass(limit, _GLOO, None)
    schedule = schedule_from(file, f"{location}: schedule")
    if schedule.collective != "all-reduce":
        raise InputError(f"{location}: schedule", f"expected an all-reduce, got {schedule.collective}")
    _check_sums(schedule, f"{location}: schedule")
    return SizeClass(limit, row.algo, schedule)


def _ring(ring: Sequence[int], ranks: int, location: str) -> tuple[int, ...]:
    if ring and sorted(ring) != list(range(ranks)):
        raise InputError(f"{location}: ring", f"expected every rank from 0 to {ranks - 1}, once")
    return tuple(ring)


def _check_sums(schedule: Schedule, location: str) -> None:
    """Check a schedule by running it on one random number per rank and chunk, modulo 2 ** 64.

    This is faster than a proof (`plink schedule verify FILE` gives one), and misses an error with a probability of 2 **
    -64.
    """
    if schedule.ranks * schedule.chunks > _MAX_CHECKED_CELLS:
        raise InputError(location, f"too large: {schedule.ranks} ranks and {schedule.chunks} chunks")
    values = np.random.default_rng().integers(0, 1 << 64, (schedule.ranks, schedule.chunks), dtype=np.uint64)
    state = values.copy()
    transfer, chunk = expanded(schedule)
    source, target = schedule.source[transfer], schedule.target[transfer]
    copies = schedule.copies[transfer]
    ends = np.searchsorted(schedule.round[transfer], np.arange(schedule.rounds + 1))
    for begin, end in itertools.pairwise(ends):
        rows = slice(begin, end)
        sent = state[source[rows], chunk[rows]]
        is_copy, receiver, chunks = copies[rows], target[rows], chunk[rows]
        state[receiver[is_copy], chunks[is_copy]] = sent[is_copy]
        np.add.at(state, (receiver[~is_copy], chunks[~is_copy]), sent[~is_copy])
    wrong = np.argwhere(state != values.sum(axis=0, dtype=np.uint64)[None, :])
    if len(wrong):
        rank, chunks = wrong[0].tolist()
        raise InputError(location, f"rank {rank} does not end with the sum of chunk {chunks}")


def aggregation_from_environment() -> Aggregation | None:
    """Return the aggregation that this process was started with: PLINK_PLAN names a file; None without.

    :raises InputError: when it cannot be read.
    """
    if path := os.environ.get(FILE):
        return read_aggregation(path)
    parts = itertools.takewhile(bool, (os.environ.get(_text_variable(k)) for k in itertools.count()))
    text = "".join(part or "" for part in parts)
    if not text and os.environ.get(_text_variable(1)):
        raise InputError(TEXT, f"is missing, and its second part {_text_variable(1)} is there")
    return from_bytes(base64.b64decode(text, validate=True)) if text else None


def broadcast_aggregation(
    store: Store, rank: int, find: Callable[[], Aggregation | None] = aggregation_from_environment
) -> Aggregation | None:
    """Find the group's aggregation on rank 0, and broadcast it to all ranks; None for none.

    :raises InputError: on every rank, when rank 0 cannot read it.
    """
    if rank == 0:
        store.set("plan", _serialised(find))  # type: ignore[arg-type]
    data = store.get("plan")
    kind, body = data[:1], data[1:]
    if kind == b"!":
        raise InputError(*body.decode().split("\0"))
    return from_bytes(body) if body else None


def _serialised(find: Callable[[], Aggregation | None]) -> bytes:
    try:
        aggregation = find()
        return b"=" + (aggregation.to_bytes() if aggregation is not None else b"")
    except InputError as error:
        return b"!" + f"{error.location}\0{error.reason}".encode()
    except Exception as error:  # the other ranks wait for an answer, whatever it is
        return b"!" + f"{os.environ.get(FILE) or TEXT}\0not written by plink: {error}".encode()
