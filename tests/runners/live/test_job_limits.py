"""Jobs that hang, against the clock: they end in time and show their stacks; agents keep ranks that say nothing."""

import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from dataclasses import replace
from pathlib import Path

import pytest

import plink.transport.fleet
import runners.job.agent_pool
import runners.job.fleet_runner
from plink.model.hosts import Host
from plink.transport.fleet import Fleet
from runners.job import rank_agent
from runners.job.messages import HostReady, PlacementReport
from tests.child_hosts import ends
from tests.runners.child_jobs import ChildJobs
from tests.runners.test_job_end import STAY
from tests.stand_ins import program

HANGS = textwrap.dedent(
    """
    import os, sys, threading
    def waits_for_ever():
        print("here", flush=True)
        threading.Event().wait()
    if os.environ["RANK"] == "1":
        sys.exit(0)
    waits_for_ever()
    """
)


@pytest.mark.parametrize("spy", [True, False])
def test_a_job_that_hangs_shows_its_stacks_and_ends(
    jobs: ChildJobs, spy: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if spy and shutil.which("py-spy", path=str(Path(sys.executable).parent)) is None:
        pytest.skip("needs py-spy")
    program = jobs.folder / "hangs.py"
    program.write_text(HANGS)
    python = sys.executable
    if not spy:  # an interpreter with no py-spy beside it
        (jobs.folder / "python").symlink_to(Path(sys.executable).resolve())
        python = str(jobs.folder / "python")
        jobs.connector.environment["PATH"] = str(jobs.folder)
    job = replace(jobs.job("hangs.py"), timeout_s=4.0, pythons=(python,))
    result = jobs.launch(job, slots=3)
    assert (result.exit_code, result.timed_out) == (124, True)
    assert result.failure is not None
    assert (result.failure.rank, result.failure.host) == (0, "here")
    for rank in (0, 2):
        messages = "\n".join(jobs.lines(rank, "err"))
        assert "waits_for_ever" in messages, messages
        assert "hangs.py" in messages
    assert jobs.lines(1, "err") == []
    assert result.exits == {1: 0}
    assert all(ends(finding.pid, within_s=0) for finding in result.locations)


def test_all_stacks_are_collected_in_the_time_of_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A py-spy that never answers holds nobody up more than once."""
    (tmp_path / "python").symlink_to(Path(sys.executable).resolve())
    program(tmp_path, "py-spy", "exec sleep 60")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)  # for a process whose command line is not there yet
    monkeypatch.setattr(rank_agent, "_SPY_TIMEOUT_S", 1.0)
    ranks = [subprocess.Popen([tmp_path / "python", "-c", "import time; time.sleep(60)"]) for _ in range(6)]
    began = time.monotonic()
    try:
        assert rank_agent.stacks([rank.pid for rank in ranks]) == {}
        assert time.monotonic() - began < 5.0
        assert {rank.wait(10) for rank in ranks} == {-signal.SIGABRT}
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()


def test_ctrl_c_ends_the_ranks_also_where_nobody_reads_what_they_print(
    jobs: ChildJobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Like `plink launch ... | less` when Ctrl-C is typed: showing the next line takes until less is left."""
    monkeypatch.setattr(runners.job.agent_pool, "STOP_TIMEOUT_S", 0.5)
    monkeypatch.setattr(plink.transport.fleet, "MAX_QUEUED_MESSAGES", 1)
    flood = "while True: print('x' * 1000)"

    def on_line() -> None:
        if len(jobs.printed) == 1:
            time.sleep(1.0)  # by then the line is full, and its agent waits
            raise KeyboardInterrupt
        assert all(ends(finding.pid) for finding in jobs.placements[0])

    with pytest.raises(KeyboardInterrupt):
        jobs.launch(jobs.job(sys.executable, "-c", flood), slots=6, on_line=on_line)


def test_an_agent_with_ranks_is_there_for_as_long_as_they_are(jobs: ChildJobs) -> None:
    """Ranks that print nothing for several leases are no reason to give their host up."""
    with Fleet(jobs.connector, runners.job.fleet_runner.PROGRAM, lease_s=0.5) as fleet:
        fleet.start([Host("here", "127.0.0.1")], {})
        assert fleet.receive(1.5) is None  # other hosts are still being connected to
        fleet.send("here", method="begin", address="127.0.0.1")
        task = {"rank": 0, "env": {"RANK": "0"}}
        fleet.send("here", method="start", ranks=[task], argv=[sys.executable, "-c", STAY], workdir="/")
        kinds = {type(message.body) for message in (fleet.receive(20.0), fleet.receive(20.0)) if message}
        assert kinds == {HostReady, PlacementReport}
        assert fleet.receive(1.5) is None
        assert fleet.alive == ["here"]
