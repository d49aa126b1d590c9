"""The recipe for a collective, followed to the letter in a copy of the source."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.docs.pages import ROOT, blocks

_PAGE = ROOT / "docs" / "architecture.md"
_ROOMS = ("plink", "probes", "runners", "solvers")


def test_a_collective_added_by_the_recipe_is_proven_priced_and_ordered_for(tmp_path: Path) -> None:
    for room in _ROOMS:
        shutil.copytree(ROOT / room, tmp_path / room, ignore=shutil.ignore_patterns("__pycache__"))
    generator, entry = ("\n".join(block.lines) + "\n" for block in blocks(_PAGE) if block.language == "python")
    (tmp_path / "solvers" / "schedules" / "star.py").write_text(generator)
    catalogue = tmp_path / "solvers" / "schedules" / "catalogue.py"
    text = catalogue.read_text().replace(
        "from solvers.schedules.trees", "from solvers.schedules.star import star_reduce\nfrom solvers.schedules.trees"
    )
    head, tail = text.rsplit("    )\n}", 1)
    catalogue.write_text(f"{head}        {entry.rstrip()},\n    )\n}}{tail}")

    network = {"schema": "plink.network/1", "hosts": [{"name": name} for name in "abc"]}
    rows = [[0, 5, 9], [5, 0, 5], [9, 5, 0]]
    (tmp_path / "n.json").write_text(str(network | {"latency_us": rows}).replace("'", '"'))
    for words in (
        ("schedule", "--algo", "star", "--ranks", "5", "-o", "star.json"),
        ("schedule", "verify", "star.json"),
        ("cost", "n.json", "--algo", "star"),
        ("reorder", "n.json", "--algo", "star", "--model", "latency", "--format", "hosts"),
    ):
        done = subprocess.run(
            [sys.executable, "-m", "plink", *words],
            cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(tmp_path)},
            capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
    assert done.stdout.split()[0] == "b"  # the one in the middle
