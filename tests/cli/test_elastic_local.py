"""An elastic job on this machine, as its user sees it: what it prints, leaves and answers is what the schemas say."""

import json
from pathlib import Path
from typing import Any

import pytest

from plink.storage import read_document
from tests.conftest import typed
from tests.lab.jobs import Running
from tests.lab.waiting import until
from tests.words.schemas import complaints, described, keys

PROGRAM = Path(__file__).parents[1] / "runners/agile/tally.py"


def launched(folder: Path, *words: str) -> Running:
    """A job of two hosts."""
    return Running(
        folder, "launch", "--runner", "local", "--slots", "2", "--backend", "agileml", "--timeout", "100s", "--json",
        str(PROGRAM), "--out", str(folder / "out.json"), "--pieces", "4", *words,
    )  # fmt: skip


def kept(folder: Path) -> list[dict[str, Any]]:
    """The runs that are listed, each held against its schema."""
    found = json.loads(typed("runs", "--json", cwd=folder).stdout)
    assert described("runs", found)
    assert complaints("runs", found | {"runs": [{"id": "1"}]}) == ["$.runs[0]"]
    for run in found["runs"]:
        assert described("run", run)
    runs: list[dict[str, Any]] = found["runs"]
    return runs


def status(folder: Path) -> dict[str, Any]:
    """By the command, once there is work; empty before."""
    done = typed("agile", "status", "last", "--json", cwd=folder)
    found: dict[str, Any] = json.loads(done.stdout) if done.returncode == 0 else {}
    return found if found.get("stage") else {}


@pytest.mark.crowd
def test_a_job_that_ends_well(tmp_path: Path) -> None:
    job = launched(tmp_path, "--clocks", "40", "--work-s", "0.04")
    try:
        stands = until(lambda: status(tmp_path), 60, "work")
        (begun,) = kept(tmp_path)
        where = read_document(tmp_path / ".plink/runs" / begun["id"] / "agile.json")
        assert job.ends(100) == 0, job.err
    finally:
        job.close()
    assert described("elastic-status", stands)
    assert set(stands) == keys("elastic-status")
    assert (begun["exit_code"], begun["backend"], stands["run"]) == (None, "agileml", begun["id"])
    assert described("elastic-job", where)
    assert set(where) == keys("elastic-job")
    assert (where["pid"], where["lab"], where["runner"]) == (job.process.pid, None, "local")
    assert complaints("elastic-job", where | {"pid": 0}) == ["$.pid"]
    ended = json.loads(job.out)
    assert described("elastic", ended)
    assert set(ended) == keys("elastic")
    assert (ended["exit_code"], ended["iterations"], ended["why"]) == (0, 40, "")
    assert complaints("elastic", ended | {"iteration_s": "fast"}) == ["$.iteration_s"]
    (run,) = kept(tmp_path)
    assert (run["exit_code"], run["why"]) == (0, "")


@pytest.mark.crowd
def test_a_job_that_fails_at_once(tmp_path: Path) -> None:
    job = launched(tmp_path, "--fail", "1")
    try:
        assert job.ends(100) == 1, job.err
    finally:
        job.close()
    ended = json.loads(job.out)
    assert described("elastic", ended)
    assert (ended["exit_code"], ended["objective"]) == (1, None)
    assert "ValueError" in ended["why"]
    (run,) = kept(tmp_path)
    assert run["why"] == ended["why"]
