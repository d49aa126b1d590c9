"""`plink runs` and `plink runs show`, of files that stand there."""

from pathlib import Path
from typing import Any

import pytest

from plink.features.runs.show import print_runs
from plink.records.runs import Run
from tests.cli.files import write
from tests.conftest import typed

CLEAR = "\x1b[2J"


def write_run(folder: Path, **changes: Any) -> None:
    """One run, as `plink launch` leaves it."""
    place = folder / ".plink" / "runs" / "r1"
    place.mkdir(parents=True)
    run = {
        "schema": "plink.run/1", "id": "r1", "started": "2026-01-02T03:04:05+00:00", "program": "train.py", "args": [],
        "hosts": [{"name": "a"}], "exit_code": 1, "seconds": 2.0, "proof": None, "failure": None, "logs": "here",
    }  # fmt: skip
    write(place / "run.json", run | changes)


def test_run_content_is_escaped(tmp_path: Path) -> None:
    write_run(
        tmp_path, program=f"train{CLEAR}.py", started=f"{CLEAR}2026", logs=f"h{CLEAR}",
        proof={"ranks": [{"rank": 0, "host": "a", "hostname": f"b{CLEAR}", "wrong": f"not a{CLEAR}"}]},
        failure={"rank": 0, "host": f"a{CLEAR}", "last_lines": [f"one\ttwo{CLEAR}", 3]},
    )  # fmt: skip
    for words in (["runs"], ["runs", "show", "last"]):
        done = typed(*words, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert "\x1b" not in done.stdout
        assert "\\x1b[2J" in done.stdout
    assert "\n  one   two\\x1b[2J\n  3\n" in done.stdout


def test_brackets_are_no_markup(tmp_path: Path) -> None:
    write_run(tmp_path, started="[bold]2026[/x]", exit_code="[/y]")
    done = typed("runs", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "[bold]2026[/x]" in done.stdout
    assert "[/y]" in done.stdout


def test_an_exit_code_may_be_any_text(tmp_path: Path) -> None:
    write_run(tmp_path, exit_code=CLEAR)
    done = typed("runs", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stdout
    assert "\\x1b[2J" in done.stdout


def test_job_that_never_began_reports_the_reason(tmp_path: Path) -> None:
    write_run(tmp_path, exit_code=2, seconds=None, error="a: no route to host")
    shown = typed("runs", "show", "last", cwd=tmp_path).stdout.splitlines()
    assert shown[1] == "1 host; exit code 2: a: no route to host"


def test_pipeline_is_listed_under_its_own_program(tmp_path: Path) -> None:
    write_run(tmp_path, program="python3", args=["-m", "plink.runtime.pipeline", "train.py", "--layers", "4"])
    assert "train.py --layers 4" in typed("runs", cwd=tmp_path).stdout
    assert "runtime" not in typed("runs", "show", "last", cwd=tmp_path).stdout


@pytest.mark.parametrize("width", [30, 60, 80, 200])
def test_ids_are_whole_on_a_narrow_terminal(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Other columns are dropped, which is said; all are there where they fit."""
    run = Run(Path("0c2d4e5f"), {"started": "2026-01-02T03:04:05", "backend": "elastic", "program": 9 * "train-it/"})
    monkeypatch.setenv("FORCE_COLOR", "1")  # as a terminal
    monkeypatch.setenv("COLUMNS", str(width))
    print_runs([run])
    printed = capsys.readouterr().out
    assert "0c2d4e5f" in printed
    assert ("started (UTC)" in printed.splitlines()[1]) == ("without a column: " not in printed) == (width == 200)
    assert ("elastic" in printed) == (width >= 80)
