"""Schedules from files, anybody's: every transfer is checked before it is believed."""

from pathlib import Path
from typing import Any

import numpy as np

from plink.errors import InputError
from plink.model.schedule import COLLECTIVES, OPERATIONS, SCHEMA, Indices, Schedule
from plink.model.storage import name_of, read_document

MOST_RANKS = 1 << 20
# Transfers times their chunks: two arrays of that length are made of it. Halving-doubling of 4,096 ranks has 2**25.
MOST_MOVES = 1 << 26
_FEW = 12  # transfers of a cycle that a message lists


def schedule_from_json(document: dict[str, Any], where: str) -> Schedule:
    """A schedule from its JSON document, anybody's; ``where`` names the file in errors.

    ``round`` may be missing: it is then the longest chain of ``after`` that leads to a transfer. ``after`` may be
    missing if there are rounds.

    :raises InputError: naming the transfer that is wrong: an unknown rank or chunk, a cycle, an unknown ``after``.
    """
    if document.get("schema") != SCHEMA:
        raise InputError(f"{where}: schema", f"{document.get('schema')!r} was found, {SCHEMA!r} was expected")
    collective = document.get("collective", "all-reduce")
    if collective not in COLLECTIVES:
        raise InputError(f"{where}: collective", f"{collective!r} is none of {', '.join(COLLECTIVES)}")
    ranks = _number(document, "ranks", where, 2, MOST_RANKS)
    chunks = _number(document, "chunks", where, 1, MOST_RANKS)
    owners = _owners(document.get("owners"), collective, ranks, chunks, where)
    _check_contributors(document.get("contributors"), ranks, where)
    rows = document.get("transfers")
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise InputError(f"{where}: transfers", "a list of objects was expected")
    ids: dict[Any, int] = {}
    for m, row in enumerate(rows):
        name = row.get("id", m)
        if type(name) not in (int, str) or name in ids:
            raise InputError(f"{where}: transfers[{m}]", f"its id {name!r} is taken or no id")
        ids[name] = m
    moves = [_move(row, f"{where}: transfers[{m}]", ranks, chunks) for m, row in enumerate(rows)]
    after = [_after(row, ids, f"{where}: transfers[{m}]") for m, row in enumerate(rows)]
    rounds = _rounds(rows, after, where)
    order = np.argsort(rounds, kind="stable")
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    table = np.array(moves, dtype=np.int32).reshape(-1, 5)[order]
    explicit = None
    if any(line is not None for line in after):
        listed = [sorted(place[k] for k in after[m] or []) for m in order]
        offsets = np.concatenate([[0], np.cumsum([len(line) for line in listed])]).astype(np.int64)
        explicit = (offsets, np.array([k for line in listed for k in line], dtype=np.int32))
    if (moves_in_all := int(table[:, 3].sum(dtype=np.int64))) > MOST_MOVES:
        raise InputError(
            f"{where}: transfers", f"they move {moves_in_all} chunks in all, {MOST_MOVES} at most are read"
        )
    source, target, first, count = (np.ascontiguousarray(table[:, k]) for k in range(4))
    own = {"schema", "algo", "collective", "ranks", "chunks", "owners", "transfers"}
    return Schedule(
        str(document.get("algo", "unnamed")), collective, ranks, chunks,
        np.array(rounds, dtype=np.int32)[order], source, target, first, count, table[:, 4] != 0,
        owners, explicit, {key: value for key, value in document.items() if key not in own},
    )  # fmt: skip


def read_schedule(path: str | Path) -> Schedule:
    """A schedule from a file (``-``: standard input, ``.gz``: compressed).

    :raises InputError: as :func:`schedule_from_json`, and when the file cannot be read.
    """
    return schedule_from_json(read_document(path), name_of(path))


def _number(row: dict[str, Any], key: str, where: str, low: int, high: int, default: int | None = None) -> int:
    value = row.get(key, default)
    if type(value) is not int or not low <= value <= high:
        raise InputError(f"{where}: {key}", f"{value!r} is not a whole number from {low} to {high}")
    return value


def _owners(value: object, collective: str, ranks: int, chunks: int, where: str) -> Indices | None:
    if collective == "all-reduce":
        return None
    if (
        not isinstance(value, list)
        or len(value) != chunks
        or not all(type(rank) is int and 0 <= rank < ranks for rank in value)
    ):
        raise InputError(f"{where}: owners", f"a {collective} needs the owner of each chunk, {chunks} ranks")
    return np.array(value, dtype=np.int32)


def _check_contributors(value: object, ranks: int, where: str) -> None:
    if value is not None and not (
        isinstance(value, list)
        and value
        and all(type(rank) is int and 0 <= rank < ranks for rank in value)
        and len(set(value)) == len(value)
    ):
        raise InputError(f"{where}: contributors", f"a list of ranks from 0 to {ranks - 1} was expected, each once")


def _move(row: dict[str, Any], where: str, ranks: int, chunks: int) -> tuple[int, int, int, int, bool]:
    source, target = (_number(row, key, where, 0, ranks - 1) for key in ("from", "to"))
    if source == target:
        raise InputError(where, f"rank {source} sends to itself")
    first = _number(row, "chunk", where, 0, chunks - 1)
    count = _number(row, "chunks", where, 1, chunks - first, 1)
    if row.get("op") not in OPERATIONS:
        raise InputError(f"{where}: op", f"{row.get('op')!r} is none of {', '.join(OPERATIONS)}")
    return source, target, first, count, row["op"] == "copy"


def _after(row: dict[str, Any], ids: dict[Any, int], where: str) -> list[int] | None:
    named = row.get("after")
    if named is None:
        return None
    if not isinstance(named, list):
        raise InputError(f"{where}: after", "a list of transfers was expected")
    for name in named:
        if type(name) not in (int, str) or name not in ids:
            raise InputError(f"{where}: after", f"there is no transfer {name!r}")
    return [ids[name] for name in named]


def _rounds(rows: list[dict[str, Any]], after: list[list[int] | None], where: str) -> list[int]:
    """The rounds as given, or by the longest chain; with both, every transfer must be later than what it waits for."""
    waits = [line or [] for line in after]
    if all("round" in row for row in rows):
        rounds = [_number(row, "round", f"{where}: transfers[{m}]", 0, (1 << 31) - 2) for m, row in enumerate(rows)]
        for m, line in enumerate(waits):
            late = next((k for k in line if rounds[k] >= rounds[m]), None)
            if late is not None:
                raise InputError(
                    f"{where}: transfers[{m}]",
                    f"it is in round {rounds[m]} and waits for transfers[{late}], which is in round {rounds[late]}: "
                    "it would wait for ever",
                )
        # Numbers with gaps are the same order.
        return [int(k) for k in np.unique(rounds, return_inverse=True)[1]] if rounds else []
    if any("round" in row for row in rows) or any(line is None for line in after):
        key = "round" if any("round" in row for row in rows) else "after"
        m = next(m for m, row in enumerate(rows) if row.get(key) is None)
        raise InputError(f"{where}: transfers[{m}]", "give `round` in all transfers, or `after` in all of them")
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
        shown = names if len(names) <= _FEW else [*names[:_FEW], "..."]
        raise InputError(f"{where}: {names[0]}", f"waits for itself: {' after '.join([*shown, names[0]])}")
    return levels


def _cycle(waits: list[list[int]], levels: list[int]) -> list[int]:
    """Transfers that wait for each other in a circle, among those that could not be put on a level."""
    path: dict[int, None] = {}
    step = levels.index(-1)
    while step not in path:
        path[step] = None
        step = next(k for k in waits[step] if levels[k] == -1)
    steps = list(path)
    return steps[steps.index(step) :]
