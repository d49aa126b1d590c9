"""A benchmark's figures, its bars, and what they were measured with: commit, machine, configuration, raw samples."""

import datetime
import json
import math
import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent.parent / "docs" / "results"


def _commit() -> str:
    """Of what was measured; results that another benchmark has just written do not make it dirty."""
    commit = _git("describe", "--always")
    changed = _git("status", "--porcelain", "--untracked-files=no", "--", ":/", ":(exclude,top)docs/results")
    return f"{commit}{'-dirty' if changed else ''}" if commit else "unknown"


def _git(*words: str) -> str:
    root = Path(__file__).parents[1]
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


def judged(bars: Sequence[Bar]) -> int:
    """Print each bar; the exit code: 1 when one is missed."""
    for bar in bars:
        wanted = f"at most {bar.at_most:g}" if bar.at_least == -math.inf else f"at least {bar.at_least:g}"
        print(f"{'met' if bar.met else 'MISSED'}: {bar.name}: {bar.value:g}, wanted {wanted}")
    return 0 if all(bar.met for bar in bars) else 1


def seeds_of(usual: dict[int, int]) -> dict[int, int]:
    """How many seeds of each size: as usual, or at most N with ``--seeds N`` on the command line."""
    if "--seeds" not in sys.argv:
        return usual
    most = int(sys.argv[sys.argv.index("--seeds") + 1])
    return {size: min(number, most) for size, number in usual.items()}


def record(name: str, configuration: dict[str, Any], figures: dict[str, Any], bars: Sequence[Bar] = ()) -> int:
    """Write ``docs/results/NAME.json`` and what else shows its figures (:mod:`benchmarks.theses`); print it and how the
    bars were met. The exit code: 1 when one was missed."""
    document = {
        "benchmark": name,
        "commit": _commit(),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "machine": {"cores": os.cpu_count(), "kernel": platform.release(), "python": platform.python_version()},
        "configuration": configuration,
        "bars": [bar.to_json() for bar in bars],
        "figures": figures,
    }
    text = json.dumps(document, indent=2) + "\n"
    (RESULTS / f"{name}.json").write_text(text)
    print(text)
    from benchmarks import theses

    theses.refresh(name)
    return judged(bars)
