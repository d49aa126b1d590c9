"""Runs as they are kept: whole files, logs of many ranks, and trouble that does not end a job."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from plink.errors import InputError, PlinkError, UsageError
from plink.features.launch.run import RecordRequest, RunDescription, recording
from plink.model.hosts import Host, Hosts
from plink.model.storage import write_document
from plink.records import runs, workspace
from plink.records.runs import LAST, Record, run_named, runs_in
from runners.job.placement import RankLocation
from runners.job.runner import Job

RESULT = {"schema": "plink.run/1", "id": "x", "exit_code": 3, "seconds": 1.5, "proof": {"held": True, "ranks": []}}
HOSTS = Hosts((Host("b", "10.0.0.2", slots=2), Host("a", "10.0.0.1")))


def request(started: str = "2026-01-02T03:04:05+00:00") -> dict[str, object]:
    hosts = [host.to_json() for host in HOSTS]
    return {"started": started, "program": "train.py", "args": ["--x", "a b"], "env": {"A": "1"}, "hosts": hosts}


def test_a_run_is_there_from_the_start_and_then_knows_its_end(tmp_path: Path) -> None:
    record = Record(tmp_path / "r1", request())
    (begun,) = runs_in(tmp_path)
    assert (begun.id, begun.document["exit_code"], begun.state) == ("r1", None, "running")
    record.finish(RESULT)
    (run,) = runs_in(tmp_path)
    assert run.state == "ended"
    assert (run.id, run.document["id"], run.document["exit_code"]) == ("r1", "r1", 3)
    assert run.hosts() == HOSTS
    assert run.value(str, "program") == "train.py"
    assert run.value(tuple[str, ...], "args") == ("--x", "a b")
    assert run.optional(dict[str, str], "env", {}) == {"A": "1"}
    assert run.optional(int, "master_port", 29500) == 29500
    assert (tmp_path / "r1").stat().st_mode & 0o077 == 0


def test_a_run_whose_plink_was_killed_has_what_was_found_before(tmp_path: Path) -> None:
    code = (
        "import os, signal\nfrom pathlib import Path\nfrom plink.records.runs import Record\n"
        "record = Record(Path('r1'), {'program': 'train.py'})\nrecord.add({'proof': {'held': True, 'ranks': []}})\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=False).returncode == -signal.SIGKILL
    (run,) = runs_in(tmp_path)
    assert run.state == "killed"
    assert run.document["proof"] == {"held": True, "ranks": []}


def test_an_interrupted_job_has_its_placement(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    described = RunDescription("r1", "ssh", Job("train.py"), HOSTS, {})

    def interrupted() -> None:
        with recording(RecordRequest(), described) as current:
            current.placed([RankLocation(0, "b", "b.local", ("10.0.0.2",), 7, None)])
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    (run,) = runs_in(workspace.RUNS)
    assert run.document["exit_code"] == 130
    assert [rank["hostname"] for rank in run.document["proof"]["ranks"]] == ["b.local"]


def test_every_line_of_many_ranks_is_kept_in_order(tmp_path: Path) -> None:
    """More ranks than files may be open at a time."""
    record = Record(tmp_path / "r", request())
    for k in range(3):
        for rank in range(300):
            record.line(rank, "out" if rank % 2 else "err", f"line {k} \udcff")
    record.finish(RESULT)
    assert record.write_error is None
    for rank in (0, 1, 299):
        data = (record.logs / f"rank-{rank}.{'out' if rank % 2 else 'err'}").read_bytes()
        assert data == b"".join(b"line %d \xff\n" % k for k in range(3))
    everything = (record.logs / "all.log").read_bytes().splitlines()
    assert everything == [b"[%d] line %d \xff" % (rank, k) for k in range(3) for rank in range(300)]


def test_full_disk_is_reported_once_and_the_rest_continues(tmp_path: Path) -> None:
    record = Record(tmp_path / "r", request())
    (record.logs / "rank-0.out").symlink_to("/dev/full")
    for _ in range(100_000):
        record.line(0, "out", "x")
    assert record.write_error is not None
    assert "No space left on device" in record.write_error
    record.finish(RESULT)
    assert next(runs_in(tmp_path)).document["exit_code"] == 3


def test_logs_that_fill_the_disk_make_room_for_the_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record = Record(tmp_path / "r", request())
    for _ in range(10_000):
        record.line(0, "out", "x" * 50)

    def to_full_disk(path: Path, document: dict[str, object]) -> None:
        if (record.logs / "all.log").stat().st_size > 400_000:
            raise PlinkError("No space left on device")
        write_document(path, document)

    monkeypatch.setattr(runs, "write_document", to_full_disk)
    record.finish(RESULT)
    assert record.write_error is None
    assert next(runs_in(tmp_path)).document["exit_code"] == 3


def test_both_write_errors_are_stated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record = Record(tmp_path / "r", request())
    (record.logs / "rank-0.out").symlink_to("/dev/full")
    for _ in range(100_000):
        record.line(0, "out", "x")

    def to_full_disk(path: Path, document: dict[str, object]) -> None:
        raise PlinkError("cannot write")

    monkeypatch.setattr(runs, "write_document", to_full_disk)
    record.finish(RESULT)
    assert record.write_error is not None
    assert "No space left on device" in record.write_error
    assert "the result of the run is not recorded: cannot write" in record.write_error


def test_a_folder_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(PlinkError, match="cannot keep the run in"):
        Record(tmp_path / "file" / "r", request())


def test_runs_are_listed_the_latest_first_and_named_by_how_they_begin(tmp_path: Path) -> None:
    for name, day in (("ab1", 3), ("ab2", 5), ("c", 4)):
        Record(tmp_path / name, request(f"2026-01-0{day}T00:00:00+00:00"))
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "run.json").write_text("{")
    os.utime(tmp_path / "broken" / "run.json", (0, 0))
    assert [run.id for run in runs_in(tmp_path)] == ["ab2", "c", "ab1", "broken"]
    with pytest.raises(InputError, match=r"run\.json"):
        _ = run_named(tmp_path, "bro").document  # it is found: what is rented for it has to be released
    assert [run_named(tmp_path, name).id for name in (LAST, "c", "ab1")] == ["ab2", "c", "ab1"]
    with pytest.raises(UsageError, match="ab is the beginning of 2 runs: ab2, ab1"):
        run_named(tmp_path, "ab")
    with pytest.raises(UsageError, match="no run x in"):
        run_named(tmp_path, "x")
    with pytest.raises(UsageError, match="the run's id is empty"):
        run_named(tmp_path / "c", "")


@pytest.mark.parametrize("change", [{"hosts": 3}, {"env": {"A": 1}}])
def test_what_a_file_should_not_say_is_named(change: dict[str, object], tmp_path: Path) -> None:
    Record(tmp_path / "r", request() | change)
    run = run_named(tmp_path, "r")
    with pytest.raises(InputError, match=next(iter(change))):
        (
            run.hosts(),
            run.value(tuple[str, ...], "args"),
            run.value(str, "program"),
            run.optional(dict[str, str], "env", {}),
        )
    assert json.loads((tmp_path / "r" / "run.json").read_text())["exit_code"] is None
