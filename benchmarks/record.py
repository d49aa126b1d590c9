"""A benchmark's figures, its bars, and what they were measured with: commit, machine, configuration, raw samples."""

import datetime
import json
import math
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from benchmarks import results, theses

Result = TypeVar("Result")


def _commit() -> str:
    """Of what was measured; results that another benchmark has just written do not make it dirty."""
    commit = _git("describe", "--always")
    changed = _git(
        "status",
        "--porcelain",
        "--untracked-files=no",
        "--",
        ":/",
        ":(exclude,top)docs/results",
        ":(exclude,top)benchmarks/records",
    )
    return f"{commit}{'-dirty' if changed else ''}" if commit else "unknown"


def _git(*words: str) -> str:
    root = Path(__file__).parents[1]
    if shutil.which("git") is None:
        return ""
    return subprocess.run(["git", *words], capture_output=True, text=True, cwd=root, check=False).stdout.strip()


@dataclass(frozen=True)
class Bar:
    """What is wanted of a figure."""

    name: str
    value: float
    at_most: float = math.inf
    at_least: float = -math.inf

    @property
    def met(self) -> bool:
        """Whether the figure reaches it; one that could not be had (NaN) does not."""
        return self.at_least <= self.value <= self.at_most

    def to_json(self) -> dict[str, Any]:
        """Without the side that has no limit; null for a figure that could not be had."""
        return {key: value for key, value in asdict(self).items() if value not in (math.inf, -math.inf)} | {
            "value": self.value if math.isfinite(self.value) else None,
            "met": self.met,
        }


def report_bars(bars: Sequence[Bar]) -> int:
    """Print each bar; the exit code: 1 when one is missed."""
    for bar in bars:
        wanted = f"at most {bar.at_most:g}" if bar.at_least == -math.inf else f"at least {bar.at_least:g}"
        print(f"{'met' if bar.met else 'MISSED'}: {bar.name}: {bar.value:g}, wanted {wanted}")
    return 0 if all(bar.met for bar in bars) else 1


def seeds_of(usual: dict[int, int]) -> dict[int, int]:
    """Return how many seeds of each size: as usual, or at most N with ``--seeds N`` on the command line."""
    if "--seeds" not in sys.argv:
        return usual
    most = int(sys.argv[sys.argv.index("--seeds") + 1])
    return {size: min(number, most) for size, number in usual.items()}


def each(function: Callable[..., Result], calls: Sequence[tuple[Any, ...]]) -> list[Result]:
    """Return what a function answers to each of these arguments, computed by N processes with ``--jobs N``."""
    jobs = int(sys.argv[sys.argv.index("--jobs") + 1]) if "--jobs" in sys.argv else 1
    if jobs == 1:
        return [function(*words) for words in calls]
    with ProcessPoolExecutor(jobs) as pool:
        return list(pool.map(function, *zip(*calls, strict=True)))


def machine() -> dict[str, Any]:
    """Return what of this machine decides how fast things are; its name does not."""
    return {
        "cores": os.cpu_count(),
        "cpu": _line_of("/proc/cpuinfo", "model name") or platform.machine(),
        "memory_mb": int((_line_of("/proc/meminfo", "MemTotal") or "0").split()[0]) // 1024,
        "kernel": platform.release(),
        "python": platform.python_version(),
    }


def _line_of(path: str, name: str) -> str:
    """Return what a file of lines ``name : value`` says first of a name; some processors have no name there."""
    for line in Path(path).read_text().splitlines():
        key, _, value = line.partition(":")
        if key.strip() == name:
            return value.strip()
    return ""


def _parts(path: Path, stamp: dict[str, Any], parts: Collection[str], measured: Collection[str]) -> dict[str, Any]:
    """Return what each part was measured with: those measured now with ``stamp``, the others as the file has it.
    Without those of which it says nothing: the file's own commit is that of its last run, which need not have measured
    them."""
    recorded = json.loads(path.read_text()).get("parts", {}) if path.exists() else {}
    stamps = recorded | dict.fromkeys(measured, stamp)
    return {part: stamps[part] for part in parts if part in stamps}


def packed(document: dict[str, Any]) -> str:
    """Return the document as JSON whose innermost lists and objects take a line each, as a row of a table does."""
    text = json.dumps(document, indent=2)
    for innermost in (r"\[\n[^\[\]{}]+\n *\]", r"\{\n[^\[\]{}]+\n *\}"):
        text = re.sub(innermost, lambda match: re.sub(r"\n *", " ", match[0]), text)
    return text + "\n"


def record(
    name: str,
    configuration: dict[str, Any],
    figures: dict[str, Any],
    bars: Sequence[Bar] = (),
    measured: Collection[str] | None = None,
) -> int:
    """Write ``benchmarks/records/NAME.json`` and what else shows its figures (:mod:`benchmarks.theses`); print it and
    how the bars were met. ``measured``: which of the figures are of this run, where others were kept from earlier ones.
    The exit code: 1 when a bar was missed."""
    path = results.RECORDS / f"{name}.json"
    stamp = {
        "commit": _commit(),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "machine": machine(),
    }
    document = {
        "benchmark": name,
        **stamp,
        **({} if measured is None else {"parts": _parts(path, stamp, list(figures), measured)}),
        "configuration": configuration,
        "bars": [bar.to_json() for bar in bars],
        "figures": figures,
    }
    text = packed(document)
    path.write_text(text)
    print(text)
    theses.refresh(name)
    return report_bars(bars)
