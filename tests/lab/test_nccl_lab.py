"""The benchmark of NCCL runs to its end without a GPU, by Gloo, in labs of its own."""

import json
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from benchmarks.nccl_lab import tables

pytestmark = pytest.mark.lab
ROOT = Path(__file__).parents[2]


def run(folder: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "benchmarks.nccl_lab", "--backend", "gloo", "--folder", str(folder), *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)


def test_every_step_is_done_and_shown(tmp_path: Path) -> None:
    done = run(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    document = json.loads((tmp_path / "nccl-lab.json").read_text())
    assert set(document["figures"]) == {"even", "uneven"}
    page = tables(document)
    for name, figures in document["figures"].items():
        kinds = {row["name"] for row in figures["cells"]}
        assert kinds == {"nccl-ring", "nccl-tree", "nccl", "all-gather", "reduce-scatter", "all-to-all", "send-recv"}
        assert {row["name"] for row in figures["mesh"]} == {"data-parallel", "experts", "stages"}
        assert len({row["order"] for row in figures["cells"]}) == 6
        for row in figures["cells"] + figures["mesh"]:
            assert min(row["seconds"]) > 0
            assert f"{name} racks, {row['name']}:" in page
        assert all(row["predicted_s"] > 0 for row in figures["cells"] if row["name"].startswith("nccl"))
        assert {row["name"] for row in figures["calibrated"]} == {"nccl-ring", "nccl-tree", "nccl"}
        assert all(row["calibrated_s"] > 0 for row in figures["calibrated"])
        assert "--backend 2lha" in figures["programs"]
        with tarfile.open(tmp_path / f"runs-{name}.tar.gz") as runs:
            assert any(member.endswith("run.json") for member in runs.getnames())


def test_steps_without_time_are_left_out_and_named(tmp_path: Path) -> None:
    done = run(tmp_path, "--seconds", "27")
    assert done.returncode == 1
    assert "what was measured is kept" in done.stdout
    steps = json.loads((tmp_path / "nccl-lab.json").read_text())["steps"]
    assert [step["outcome"] for step in steps if step["step"].endswith("probe and order")] == ["done"]
