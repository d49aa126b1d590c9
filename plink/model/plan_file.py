"""Plans from files, anybody's: every key is checked before it is believed."""

import re
import sys
from pathlib import Path
from typing import Any

import numpy as np

from plink.errors import InputError
from plink.model.hosts import hosts_from_json
from plink.model.order import order_from_json
from plink.model.plan import SCHEMA, Groups, Masters, Plan
from plink.model.schedule import Schedule
from plink.model.schedule_file import schedule_from_json
from plink.model.storage import STANDARD, name_of, parse_document, read_document, read_text

_MOST_CHUNKS = 1 << 20
_LARGEST = sys.float_info.max  # whole numbers of JSON know no limit
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OWN_KEYS = (
    *("schema", "network", "rate_gbps", "algo", "options", "model", "size_bytes", "cost_us", "lower_bound"),
    *("baseline", "order", "hosts", "lab", "groups", "chunks", "masters", "schedule", "environment"),
)


def plan_from_json(document: dict[str, Any], where: str) -> Plan:
    """A plan from its JSON document, anybody's; ``where`` names the file in errors.

    :raises InputError: naming the key that is wrong.
    """
    if document.get("schema") != SCHEMA:
        raise InputError(f"{where}: schema", f"{document.get('schema')!r} was found, {SCHEMA!r} was expected")
    order = order_from_json(_object(document, "order", where), f"{where}: order")
    hosts = hosts_from_json(document.get("hosts"), document.get("lab"), where)
    if tuple(hosts.names) != order.hosts:
        raise InputError(f"{where}: hosts", "these are not the hosts of the order, in its order")
    ranks = sum(host.slots for host in hosts)
    groups = _groups(document.get("groups"), ranks, where)
    chunks = document.get("chunks")
    if chunks is not None and (type(chunks) is not int or not 1 <= chunks <= _MOST_CHUNKS):
        raise InputError(f"{where}: chunks", f"{chunks!r} is not a whole number from 1 to {_MOST_CHUNKS}")
    network = document.get("network")
    if network is not None and not isinstance(network, str):
        raise InputError(f"{where}: network", "a fingerprint or null was expected")
    rate = _number(document.get("rate_gbps"), f"{where}: rate_gbps")
    if rate is not None and rate <= 0:
        raise InputError(f"{where}: rate_gbps", "a number above 0 or null was expected")
    size = _number(document.get("size_bytes"), f"{where}: size_bytes")
    if size is None or size <= 0:
        raise InputError(f"{where}: size_bytes", "a number above 0 was expected")
    baseline = _object(document, "baseline", where, {})
    costs = {key: _number(value, f"{where}: baseline.{key}") for key, value in baseline.items()}
    return Plan(
        algo=_text(document, "algo", where),
        model=_text(document, "model", where),
        size_bytes=size,
        order=order,
        hosts=hosts,
        chunks=chunks,
        cost_us=_number(document.get("cost_us"), f"{where}: cost_us"),
        lower_bound=_number(document.get("lower_bound"), f"{where}: lower_bound"),
        baseline={key: value for key, value in costs.items() if value is not None},
        options=_options(_object(document, "options", where, {}), where),
        groups=groups,
        masters=_masters(document.get("masters"), groups, chunks, ranks, where),
        schedule=_schedule(document.get("schedule"), ranks, chunks, where),
        environment=_environment(_object(document, "environment", where, {}), where),
        network=network,
        rate_gbps=rate,
        details={key: value for key, value in document.items() if key not in _OWN_KEYS},
    )


def read_plan(path: str | Path) -> Plan:
    """A plan from a file (``-``: standard input, ``.gz``: compressed).

    :raises InputError: as :func:`plan_from_json`, and when the file cannot be read.
    """
    return plan_from_json(read_document(path), name_of(path))


def is_plan(path: str | Path) -> bool:
    """Whether the file says that it is a plan; standard input, which can be read only once, is taken for none.

    :raises InputError: when the file cannot be read, or looks like JSON and is none.
    """
    if str(path) == STANDARD:
        return False
    where, text = name_of(path), read_text(path)
    looks_like_json = where.endswith((".json", ".json.gz")) or text.lstrip().startswith("{")
    return looks_like_json and parse_document(text, where).get("schema") == SCHEMA


def _object(document: dict[str, Any], key: str, where: str, default: object = None) -> dict[str, Any]:
    value = document.get(key, default)
    if not isinstance(value, dict):
        raise InputError(f"{where}: {key}", "an object was expected")
    return value


def _text(document: dict[str, Any], key: str, where: str) -> str:
    value = document.get(key)
    if not isinstance(value, str) or not value:
        raise InputError(f"{where}: {key}", f"{value!r} is not a name")
    return value


def _number(value: object, where: str) -> float | None:
    if value is not None and (type(value) not in (int, float) or not abs(value) <= _LARGEST):  # type: ignore[arg-type]
        raise InputError(where, f"{str(value)[:40]!r} is not a number or null")
    return value  # type: ignore[return-value]


def _options(options: dict[str, Any], where: str) -> dict[str, Any]:
    for key, value in options.items():
        if type(value) not in (int, bool):
            raise InputError(
                f"{where}: options.{key}", f"{str(value)[:40]!r} is neither a whole number nor true or false"
            )
    return options


def _environment(variables: dict[str, Any], where: str) -> dict[str, str]:
    for name, value in variables.items():
        if not _VARIABLE.fullmatch(name):
            raise InputError(f"{where}: environment", f"{name!r} cannot be a variable's name")
        if not isinstance(value, str) or "\0" in value:
            raise InputError(f"{where}: environment.{name}", "a text was expected")
    return variables


def _groups(value: object, ranks: int, where: str) -> Groups | None:
    if value is None:
        return None
    rows = value if isinstance(value, list) else []
    lists = bool(rows) and all(isinstance(group, list) and group for group in rows)
    members = [rank for group in rows for rank in group] if lists else []
    # The number first: hosts may say that they have more ranks than there is memory for a list of.
    alike = len(members) == ranks and all(type(rank) is int for rank in members)
    if not alike or sorted(members) != list(range(ranks)):
        raise InputError(f"{where}: groups", f"every rank from 0 to {ranks - 1} belongs to exactly one group")
    return tuple(tuple(group) for group in rows)


def _masters(value: object, groups: Groups | None, chunks: int | None, ranks: int, where: str) -> Masters | None:
    if (value is None) != (groups is None):
        raise InputError(f"{where}: masters", "groups and masters go together: give both or null for both")
    if value is None or groups is None:
        return None
    place = f"{where}: masters"
    if chunks is None:
        raise InputError(f"{where}: chunks", "masters need the number of chunks")
    if not isinstance(value, dict):
        raise InputError(place, "an object was expected")
    local, final = value.get("local"), value.get("global")
    for key, column in (("local", local), ("global", final)):
        if not isinstance(column, list) or len(column) != chunks:
            raise InputError(f"{place}.{key}", f"a list with an entry for each of the {chunks} chunks was expected")
    group_of = {rank: number for number, group in enumerate(groups) for rank in group}
    for c, (row, master) in enumerate(zip(local, final, strict=True)):  # type: ignore[arg-type]
        if not isinstance(row, list) or len(row) != len(groups):
            raise InputError(f"{place}.local[{c}]", f"a rank for each of the {len(groups)} groups was expected")
        for g, rank in enumerate(row):
            if type(rank) is not int or group_of.get(rank) != g:
                raise InputError(f"{place}.local[{c}][{g}]", f"{str(rank)[:40]} is not a rank of group {g}")
        if type(master) is not int or master not in row:
            raise InputError(f"{place}.global[{c}]", f"{str(master)[:40]} is none of the chunk's local masters")
    weights = value.get("weights", "sizes")
    if not isinstance(weights, str):
        raise InputError(f"{place}.weights", f"{str(weights)[:40]!r} is not a name")
    return Masters(
        np.array(local, dtype=np.int32),
        np.array(final, dtype=np.int32),
        weights,
        _weights(value.get("group_weights", []), len(groups), f"{place}.group_weights"),
        _weights(value.get("rank_weights", []), ranks, f"{place}.rank_weights"),
    )


def _weights(value: object, number: int, where: str) -> tuple[float, ...]:
    if not isinstance(value, list) or len(value) not in (0, number):
        raise InputError(where, f"a list of {number} numbers was expected, or none")
    for k, weight in enumerate(value):
        if type(weight) not in (int, float) or not 0 < weight < float("inf"):
            raise InputError(f"{where}[{k}]", f"{str(weight)[:40]!r} is not a number above 0")
    return tuple(value)


def _schedule(value: object, ranks: int, chunks: int | None, where: str) -> Schedule | None:
    if value is None:
        return None
    place = f"{where}: schedule"
    if not isinstance(value, dict):
        raise InputError(place, "an object or null was expected")
    schedule = schedule_from_json(value, place)
    for key, found, wanted in (("ranks", schedule.ranks, ranks), ("chunks", schedule.chunks, chunks)):
        if found != wanted:
            raise InputError(f"{place}: {key}", f"it has {found}, the plan {wanted}")
    if schedule.collective != "all-reduce":
        raise InputError(f"{place}: collective", f"{schedule.collective} was found, a plan is of an all-reduce")
    return schedule
