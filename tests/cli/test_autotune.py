"""`plink launch --autotune` and `plink autotune replay`: what they refuse."""

from pathlib import Path

import pytest

from tests.cli.files import write
from tests.conftest import typed


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--runner", "local", "--slots", "2", "--autotune"], "--autotune goes with --backend"),
        (["--runner", "torchrun", "--backend", "flat", "--autotune"], "with --runner ssh or local"),
        (["--runner", "local", "--slots", "4", "--backend", "ring", "--autotune"],
         "--autotune moves masters between ranks: it needs --backend 2lha or flat"),
        (["--runner", "local", "--slots", "4", "--backend", "flat", "--autotune", "--set", "autotune-every=soon"],
         "soon"),
    ],
)  # fmt: skip
def test_what_cannot_be_tuned(words: list[str], message: str, tmp_path: Path) -> None:
    done = typed("launch", *words, "true", cwd=tmp_path)
    assert done.returncode == 2
    assert message in done.stderr


@pytest.mark.parametrize(
    ("name", "code", "message"),
    [("last", 2, "no run"), ("nothing.jsonl", 2, "nothing.jsonl"), ("empty", 2, "not the first line")],
)
def test_a_log_that_is_none(name: str, code: int, message: str, tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("")
    done = typed("autotune", "replay", name, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (code, "")
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_run_that_was_not_tuned(tmp_path: Path) -> None:
    (tmp_path / ".plink/runs/r1").mkdir(parents=True)
    write(tmp_path / ".plink/runs/r1/run.json", {"schema": "plink.run/1", "started": "2026-01-02"})
    done = typed("autotune", "replay", "last", cwd=tmp_path)
    assert done.returncode == 2  # 1 says that decisions differ
    assert "was not tuned (`plink launch --autotune`)" in done.stderr
