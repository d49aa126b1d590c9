"""What `plink diff` says of a lab that changed since a network file that is kept, and of one that did not.

make bench NAME=changes
python -m benchmarks.changes --only "racks of two"
"""

import contextlib
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from benchmarks.advice import healthy_lab, shaped, suspect, suspects_rack
from benchmarks.labs import BenchLab, lab
from benchmarks.record import Bar, record
from benchmarks.results import RECORDS

_ROUNDS = 4
_LABS = {
    "racks of four": ("--racks", "3", "--hosts-per-rack", "4", "--host-rate", "200mbit", "--uplink-rate", "400mbit"),
    "racks of two": ("--racks", "4", "--hosts-per-rack", "2", "--host-rate", "200mbit"),
}


@dataclass(frozen=True)
class Change:
    """A change of a lab: how it is made, what gets worse, and whose it is; no kinds where nothing does."""

    make: Callable[[BenchLab], contextlib.AbstractContextManager[str]]
    whats: tuple[str, ...] = ()
    hosts: Callable[[BenchLab], set[str]] = lambda bench: {suspect(bench)}


@contextlib.contextmanager
def _impaired(bench: BenchLab, target: str, command: str, option: str, value: str) -> Iterator[str]:
    """Let a host or an uplink lose or delay what it sends."""
    if bench.plink("lab", command, target, option, value, "--name", bench.name).code:
        raise SystemExit(f"{target}: plink lab {command} {option} {value} failed")
    try:
        yield bench.hosts_file
    finally:
        bench.plink("lab", "heal", "--name", bench.name)


def _uplink(bench: BenchLab) -> str:
    return f"rack{bench.racks[bench.names.index(suspect(bench))]}"


CHANGES = {
    "nothing": Change(healthy_lab),
    "host 140 of 200 Mbit/s": Change(lambda bench: shaped(bench, suspect(bench), "140mbit"), ("rate",)),
    "host 100 of 200 Mbit/s": Change(lambda bench: shaped(bench, suspect(bench), "100mbit"), ("rate",)),
    "host 20 of 200 Mbit/s": Change(lambda bench: shaped(bench, suspect(bench), "20mbit"), ("rate", "latency")),
    "host loses 1 %": Change(lambda bench: _impaired(bench, suspect(bench), "loss", "--percent", "1"), ("loss",)),
    "host 100 us later": Change(
        lambda bench: _impaired(bench, suspect(bench), "delay", "--time", "100us"), ("latency",)
    ),
    "uplink 200 us later": Change(
        lambda bench: _impaired(bench, _uplink(bench), "delay", "--time", "200us"), ("latency",), suspects_rack
    ),
    "uplink at half": Change(
        lambda bench: shaped(bench, _uplink(bench), "200mbit"), ("capacity",), suspects_rack
    ),
}  # fmt: skip


def _probe(bench: BenchLab, file: str) -> None:
    done = bench.plink("probe", bench.hosts_file, "-o", file)
    if done.code:
        raise SystemExit(done.stderr)


def _worse(bench: BenchLab, old: str, new: str) -> list[dict[str, Any]]:
    """Return what `plink diff` reports as worse."""
    done = subprocess.run(
        [sys.executable, "-m", "plink", "diff", old, new, "--json"],
        capture_output=True, text=True, cwd=bench.folder, check=False,
    )  # fmt: skip
    if done.returncode not in (0, 1):
        raise SystemExit(done.stderr)
    return [row for row in json.loads(done.stdout)["findings"] if row["verdict"] == "worse"]


def _score(change: Change, bench: BenchLab, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return whether the change is named with the hosts whose it is, and what is said of others: of pairs, of those
    without any of these hosts."""
    hosts = change.hosts(bench)
    named = [row for row in rows if row["what"] in change.whats and set(row["hosts"]) == hosts]
    others = [row for row in rows if not change.whats or not _is_of(row, hosts)]
    return {
        "named": bool(named),
        "others": [
            f"{row['severity']}: {row['where']} {', '.join(row['hosts'])}: {row['what']} {row['old']} -> {row['new']}"
            for row in others
        ],
    }


def _is_of(row: dict[str, Any], hosts: set[str]) -> bool:
    if row["where"] == "pair":
        return bool({*row["hosts"], *row["others"]} & hosts)
    return set(row["hosts"]) <= hosts


def _figures(runs: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "runs": len(runs),
        "named": sum(run["named"] for run in runs),
        "others": sum(len(run["others"]) for run in runs),
        "runs_with_others": sum(bool(run["others"]) for run in runs),
        "what_others": [text for run in runs for text in run["others"]],
    }


def main() -> int:
    """Run and record; the exit code."""
    file = RECORDS / "changes.json"
    figures: dict[str, Any] = json.loads(file.read_text())["figures"] if file.exists() else {}
    names = [sys.argv[sys.argv.index("--only") + 1]] if "--only" in sys.argv else list(_LABS)
    for title in names:
        options = _LABS[title]
        with lab(*options, "--seed", "7") as bench:
            changes = {
                name: change
                for name, change in CHANGES.items()
                if name != "uplink at half" or "--uplink-rate" in options
            }
            runs: dict[str, list[dict[str, Any]]] = {name: [] for name in changes}
            for _ in range(_ROUNDS):
                _probe(bench, "kept.json")
                for name, change in changes.items():
                    with change.make(bench):
                        _probe(bench, "now.json")
                    runs[name].append(_score(change, bench, _worse(bench, "kept.json", "now.json")))
                    print(title, name, runs[name][-1], flush=True)
        figures[title] = {name: _figures(rows) for name, rows in runs.items()}
    figures = {title: figures[title] for title in _LABS if title in figures}
    return record("changes", {"rounds": _ROUNDS, "labs": dict(_LABS)}, figures, bars_of(figures), names)


def bars_of(figures: dict[str, Any]) -> list[Bar]:
    """Return what is wanted: each change named every time, with nothing else; nothing said where nothing changed."""
    bars = []
    for title, rows in figures.items():
        for name, row in rows.items():
            if name != "nothing":
                bars.append(Bar(f"{title}, {name}: named", row["named"], at_least=row["runs"]))
            bars.append(Bar(f"{title}, {name}: comparisons that blame others", row["runs_with_others"], at_most=0))
    return bars


if __name__ == "__main__":
    sys.exit(main())
