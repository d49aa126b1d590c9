"""The job of a run as a driver sees it, where its control socket does not answer."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from plink.model.elastic.status import JobControl
from plink.transport.supervisor import ProcessStatus
from runners.spot.elastic_job import ElasticJob, JobView
from solvers.spot.deadline import JobProgress
from tests.lab.waiting import until


@pytest.fixture
def process() -> Iterator["subprocess.Popen[bytes]"]:
    """A process that goes on until it is killed."""
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(900)"])
    try:
        yield child
    finally:
        child.kill()
        child.wait()


def elastic_job(folder: Path, pid: int, exit_code: int | None = None) -> ElasticJob:
    (folder / "run.json").write_text(json.dumps({"schema": "plink.run/1", "exit_code": exit_code}))
    return ElasticJob(folder, JobControl(socket=str(folder / "none"), pid=pid, lab=None, runner="local"))


def test_job_that_runs_and_does_not_answer_has_not_ended(tmp_path: Path, process: "subprocess.Popen[bytes]") -> None:
    job = elastic_job(tmp_path, process.pid)
    assert job.view() is None
    assert not job.errors()  # a job that ends closes its socket first
    assert job.view() is None
    assert job.errors()


def test_killed_job_has_ended_before_its_parent_waits_for_it(
    tmp_path: Path, process: "subprocess.Popen[bytes]"
) -> None:
    job = elastic_job(tmp_path, process.pid)
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # it stays a zombie
    assert job.view() == JobView(has_ended=True)


def test_other_process_with_the_id_of_the_job_is_none(
    tmp_path: Path, process: "subprocess.Popen[bytes]", monkeypatch: pytest.MonkeyPatch
) -> None:
    earlier = ProcessStatus("plink", "S", 1, 1, started="1")
    monkeypatch.setattr("runners.spot.elastic_job.process_status", lambda pid: earlier)
    job = elastic_job(tmp_path, process.pid)
    monkeypatch.undo()
    assert job.view() == JobView(has_ended=True)


def test_process_that_is_gone_or_a_record_with_an_end(tmp_path: Path, process: "subprocess.Popen[bytes]") -> None:
    assert elastic_job(tmp_path, process.pid, exit_code=1).view() == JobView(has_ended=True)
    process.kill()
    process.wait()
    job = elastic_job(tmp_path, process.pid)
    (tmp_path / "run.json").write_text("{")
    assert until(job.view, 60, "the job has ended") == JobView(has_ended=True)


def test_progress_pairs_an_iteration_with_the_cores_that_did_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    status = {
        "stage": 1,
        "hosts": [],
        "iteration": 4,
        "iteration_s": 2.0,
        "workers": 8,
        "iteration_workers": 3,
        "work": {"r0": (1.0, 0.1, 2), "spot-i-1": (1.0, 0.1, 2)},
    }
    monkeypatch.setattr("runners.spot.elastic_job.ask", lambda socket, request: status)
    view = elastic_job(tmp_path, os.getpid()).view()
    assert view is not None
    assert view.progress == JobProgress(5, 2.0, 3, frozenset({"r0", "spot-i-1"}))
