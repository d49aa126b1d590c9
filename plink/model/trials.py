"""Orders that were run: what was predicted of them, how long they took; read from files.

``plink.check/1`` (`plink check --measure`): series of trials under ``checks``, or by hand a single one: ``{"schema":
"plink.check/1", "runs": [{"order": "given", "predicted_us": 910, "achieved_s": [0.51, 0.5]}]}``, ``predicted_us`` a
number or null; or what ``plink demo --json`` prints.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from plink.errors import InputError
from plink.model.storage import name_of, read_document

CHECK, _DEMO = "plink.check/1", "plink.demo/1"
_US = 1e6
_TOO_LARGE = 1e15


@dataclass(frozen=True)
class Trial:
    """One order that was run: ``order`` is its name, ``hosts`` those that took its ranks, first rank first (empty: not
    told), ``predicted_us`` None: not known; ``achieved_s``: seconds, one a repetition."""

    order: str
    predicted_us: float | None
    achieved_s: tuple[float, ...]
    hosts: tuple[str, ...] = ()


@dataclass(frozen=True)
class Series:
    """Trials of one collective. ``algo``, ``size_bytes``, ``model`` and ``ranks`` (how many took part) None: not told.
    ``options``: what the algorithm was told, as typed after ``--set``; ``groups``: the ranks of each group, for
    two-level aggregation."""

    trials: tuple[Trial, ...]
    algo: str | None = None
    size_bytes: float | None = None
    model: str | None = None
    options: tuple[str, ...] = ()
    groups: tuple[tuple[int, ...], ...] | None = None
    ranks: int | None = None


def read_series(path: Path) -> tuple[Series, ...]:
    """What was run, at least one series of one trial.

    :raises InputError: when it cannot be read or is no such file, naming the key.
    """
    document, where = read_document(path), name_of(path)
    schema = document.get("schema")
    if schema == _DEMO:
        return (_demo(document, where),)
    if schema != CHECK:
        raise InputError(f"{where}: schema", f"{schema!r} was found; {CHECK} or {_DEMO} holds measured runs")
    checks = document.get("checks")
    if checks is None:
        return (Series(_trials(document, where)),)
    if not isinstance(checks, list) or not checks:
        raise InputError(f"{where}: checks", "a list was expected, one entry a collective, at least one")
    return tuple(_series(entry, f"{where}: checks[{k}]") for k, entry in enumerate(checks))


def _demo(document: dict[str, Any], where: str) -> Series:
    trials = (
        Trial(
            name,
            _US * _number(document.get(f"predicted_{key}_s"), f"{where}: predicted_{key}_s"),
            _numbers(document.get(f"{key}_samples_s"), f"{where}: {key}_samples_s"),
        )
        for key, name in (("given", "given"), ("plink", "plink's"))
    )
    return Series(tuple(trials))


def _series(entry: Any, where: str) -> Series:
    if not isinstance(entry, dict):
        raise InputError(where, "an object was expected")
    for key in ("algo", "model"):
        if not isinstance(entry.get(key), str | None):
            raise InputError(f"{where}.{key}", "a text was expected")
    size = entry.get("size_bytes")
    options, groups, ranks = entry.get("options", []), entry.get("groups"), entry.get("ranks")
    if not isinstance(options, list) or not all(isinstance(word, str) for word in options):
        raise InputError(f"{where}.options", 'a list like ["base=4"] was expected')
    if ranks is not None and (type(ranks) is not int or ranks < 1):
        raise InputError(f"{where}.ranks", "a whole number of 1 or more was expected")
    if groups is not None and not _are_groups(groups):
        raise InputError(f"{where}.groups", "a list of lists of ranks was expected")
    return Series(
        _trials(entry, where),
        entry.get("algo"),
        None if size is None else _number(size, f"{where}.size_bytes"),
        entry.get("model"),
        tuple(options),
        None if groups is None else tuple(tuple(group) for group in groups),
        ranks,
    )


def _are_groups(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(group, list) and all(type(rank) is int for rank in group) for group in value
    )


def _trials(document: dict[str, Any], where: str) -> tuple[Trial, ...]:
    rows = document.get("runs")
    if not isinstance(rows, list) or not rows:
        raise InputError(f"{where}: runs", "a list of measured runs was expected, at least one")
    return tuple(_trial(row, f"{where}: runs[{k}]") for k, row in enumerate(rows))


def _trial(row: Any, where: str) -> Trial:
    if not isinstance(row, dict) or not isinstance(row.get("order"), str):
        raise InputError(where, 'an object with "order" (a name), "predicted_us" and "achieved_s" was expected')
    predicted, hosts = row.get("predicted_us"), row.get("hosts", [])
    if not isinstance(hosts, list) or not all(isinstance(name, str) for name in hosts):
        raise InputError(f"{where}.hosts", "a list of host names was expected")
    return Trial(
        "".join(character if character.isprintable() else "\ufffd" for character in row["order"]),
        None if predicted is None else _number(predicted, f"{where}.predicted_us"),
        _numbers(row.get("achieved_s"), f"{where}.achieved_s"),
        tuple(hosts),
    )


def _number(value: Any, where: str) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not value >= 0:
        raise InputError(where, f"{str(value)[:40]!r} is not a number of zero or more")
    if value >= _TOO_LARGE:
        raise InputError(where, f"is too large a number; at most {_TOO_LARGE:g} makes sense")
    return float(value)


def _numbers(value: Any, where: str) -> tuple[float, ...]:
    if not isinstance(value, list) or not value:
        raise InputError(where, "a list of seconds was expected, one a repetition, at least one")
    return tuple(_number(entry, f"{where}[{k}]") for k, entry in enumerate(value))
