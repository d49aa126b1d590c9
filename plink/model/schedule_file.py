"""Read schedules from files; every transfer is validated."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from plink.documents.codec import decode
from plink.documents.schedule import ScheduleDocument, Transfer
from plink.errors import InputError
from plink.model.schedule import Indices, Schedule
from plink.model.storage import name_of, read_document

_OWN_KEYS = ("schema", "algo", "collective", "ranks", "chunks", "owners", "transfers")
# Transfers times their chunks: two arrays of that length are made of it. Halving-doubling of 4,096 ranks has 2**25.
MAX_MOVES = 1 << 26
_MAX_LISTED_TRANSFERS = 12  # transfers of a cycle that a message lists


def schedule_from_json(document: Mapping[str, Any], location: str) -> Schedule:
    """Return a schedule from its JSON document, anybody's; ``location`` names the file in errors.

    ``round`` may be missing: it is then the longest chain of ``after`` that leads to a transfer. ``after`` may be
    missing if there are rounds.

    :raises InputError: naming the transfer that is wrong: an unknown rank or chunk, a cycle, an unknown ``after``.
    """
    checked = decode(ScheduleDocument, document, location)
    collective = checked.get("collective", "all-reduce")
    ranks, chunks, rows = checked["ranks"], checked["chunks"], checked["transfers"]
    owners = _owners(checked.get("owners"), collective, ranks, chunks, location)
    contributors = checked.get("contributors") or []
    if len(set(contributors)) < len(contributors) or any(rank >= ranks for rank in contributors):
        raise InputError(f"{location}: contributors", f"expected ranks from 0 to {ranks - 1}, each once")
    ids: dict[int | str, int] = {}
    for m, row in enumerate(rows):
        name = row.get("id", m)
        if name in ids:
            raise InputError(f"{location}: transfers[{m}].id", f"{name!r} is taken")
        ids[name] = m
    moves = [_move(row, f"{location}: transfers[{m}]", ranks, chunks) for m, row in enumerate(rows)]
    after = [_after(row, ids, f"{location}: transfers[{m}]") for m, row in enumerate(rows)]
    rounds = _rounds(rows, after, location)
    order = np.argsort(rounds, kind="stable")
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    table = np.array(moves, dtype=np.int32).reshape(-1, 5)[order]
    explicit = None
    if any(line is not None for line in after):
        listed = [sorted(place[k] for k in after[m] or []) for m in order]
        offsets = np.concatenate([[0], np.cumsum([len(line) for line in listed])]).astype(np.int64)
        explicit = (offsets, np.array([k for line in listed for k in line], dtype=np.int32))
    if (moves_in_all := int(table[:, 3].sum(dtype=np.int64))) > MAX_MOVES:
        raise InputError(
            f"{location}: transfers", f"they move {moves_in_all} chunks in all, {MAX_MOVES} at most are read"
        )
    source, target, first, count = (np.ascontiguousarray(table[:, k]) for k in range(4))
    return Schedule(
        checked.get("algo", "unnamed"), collective, ranks, chunks,
        np.array(rounds, dtype=np.int32)[order], source, target, first, count, table[:, 4] != 0,
        owners, explicit, {key: value for key, value in document.items() if key not in _OWN_KEYS},
    )  # fmt: skip


def read_schedule(path: str | Path) -> Schedule:
    """Return a schedule from a file (``-``: standard input, ``.gz``: compressed).

    :raises InputError: as :func:`schedule_from_json`, and when the file cannot be read.
    """
    return schedule_from_json(read_document(path), name_of(path))


def _owners(owners: list[int] | None, collective: str, ranks: int, chunks: int, location: str) -> Indices | None:
    if collective == "all-reduce":
        return None
    if owners is None or len(owners) != chunks or any(rank >= ranks for rank in owners):
        raise InputError(f"{location}: owners", f"a {collective} needs the owner of each chunk, {chunks} ranks")
    return np.array(owners, dtype=np.int32)


def _move(row: Transfer, location: str, ranks: int, chunks: int) -> tuple[int, int, int, int, bool]:
    source, target, first, count = row["from"], row["to"], row["chunk"], row.get("chunks", 1)
    for key, value, limit in (("from", source, ranks), ("to", target, ranks), ("chunk", first, chunks)):
        if value >= limit:
            raise InputError(f"{location}.{key}", f"{value} is not a number from 0 to {limit - 1}")
    if source == target:
        raise InputError(location, f"rank {source} sends to itself")
    if first + count > chunks:
        raise InputError(f"{location}.chunks", f"{count} is not a number from 1 to {chunks - first}")
    return source, target, first, count, row["op"] == "copy"


def _after(row: Transfer, ids: dict[int | str, int], location: str) -> list[int] | None:
    names = row.get("after")
    if names is None:
        return None
    if unknown := [name for name in names if name not in ids]:
        raise InputError(f"{location}.after", f"there is no transfer {unknown[0]!r}")
    return [ids[name] for name in names]


def _rounds(rows: list[Transfer], after: list[list[int] | None], location: str) -> list[int]:
    """Return the given rounds, or the longest chain; with both, a transfer must be later than what it waits for."""
    waits = [line or [] for line in after]
    if all("round" in row for row in rows):
        rounds = [row["round"] for row in rows]
        for m, line in enumerate(waits):
            late = next((k for k in line if rounds[k] >= rounds[m]), None)
            if late is not None:
                raise InputError(
                    f"{location}: transfers[{m}]",
                    f"it is in round {rounds[m]} and waits for transfers[{late}], which is in round {rounds[late]}: "
                    "it would wait for ever",
                )
        # Numbers with gaps are the same order.
        return [int(k) for k in np.unique(rounds, return_inverse=True)[1]] if rounds else []
    if any("round" in row for row in rows) or any(line is None for line in after):
        key = "round" if any("round" in row for row in rows) else "after"
        m = next(m for m, row in enumerate(rows) if row.get(key) is None)
        raise InputError(f"{location}: transfers[{m}]", "give `round` in all transfers, or `after` in all of them")
    levels = [-1] * len(rows)
    unmet = [len(line) for line in waits]
    unlocks: list[list[int]] = [[] for _ in rows]
    for m, line in enumerate(waits):
        for k in line:
            unlocks[k].append(m)
    free = [m for m, number in enumerate(unmet) if number == 0]
    while free:
        m = free.pop()
        levels[m] = 1 + max((levels[k] for k in waits[m]), default=-1)
        for follower in unlocks[m]:
            unmet[follower] -= 1
            if unmet[follower] == 0:
                free.append(follower)
    if -1 in levels:
        cycle = _cycle(waits, levels)
        names = [f"transfers[{m}]" for m in cycle]
        shown = names if len(names) <= _MAX_LISTED_TRANSFERS else [*names[:_MAX_LISTED_TRANSFERS], "..."]
        raise InputError(f"{location}: {names[0]}", f"waits for itself: {' after '.join([*shown, names[0]])}")
    return levels


def _cycle(waits: list[list[int]], levels: list[int]) -> list[int]:
    """Return transfers that wait for each other in a cycle."""
    path: dict[int, None] = {}
    step = levels.index(-1)
    while step not in path:
        path[step] = None
        step = next(k for k in waits[step] if levels[k] == -1)
    steps = list(path)
    return steps[steps.index(step) :]
