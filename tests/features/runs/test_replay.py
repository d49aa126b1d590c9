"""`plink runs replay`: what it refuses."""

from pathlib import Path

import pytest

from tests.cli.files import write
from tests.conftest import typed


@pytest.mark.parametrize(
    ("name", "code", "message"),
    [("last", 2, "no run"), ("nothing.jsonl", 2, "nothing.jsonl"), ("empty", 2, "not the first line")],
)
def test_a_log_that_is_none(name: str, code: int, message: str, tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("")
    done = typed("runs", "replay", name, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (code, "")
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_run_that_was_not_tuned(tmp_path: Path) -> None:
    (tmp_path / ".plink/runs/r1").mkdir(parents=True)
    write(tmp_path / ".plink/runs/r1/run.json", {"schema": "plink.run/1", "started": "2026-01-02"})
    done = typed("runs", "replay", "last", cwd=tmp_path)
    assert done.returncode == 2  # 1 says that decisions differ
    assert "was not tuned (`plink launch --autotune`)" in done.stderr
