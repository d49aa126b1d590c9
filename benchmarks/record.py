"""A benchmark's figures with what they were measured with: commit, machine, configuration, raw samples."""

import datetime
import json
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent.parent / "docs" / "results"


def _commit() -> str:
    done = subprocess.run(
        ["git", "describe", "--always", "--dirty"], capture_output=True, text=True, cwd=RESULTS.parent, check=False
    )
    return done.stdout.strip() or "unknown"


def record(name: str, configuration: dict[str, Any], figures: dict[str, Any]) -> None:
    """Write ``docs/results/NAME.json`` and print it."""
    document = {
        "benchmark": name,
        "commit": _commit(),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "machine": {"cores": os.cpu_count(), "kernel": platform.release(), "python": platform.python_version()},
        "configuration": configuration,
        "figures": figures,
    }
    text = json.dumps(document, indent=2) + "\n"
    (RESULTS / f"{name}.json").write_text(text)
    print(text)
