"""Jobs with a limit of time, and hosts that could not run the job: told in one line, and nothing left behind."""

import os
import signal
import socket
import time
from dataclasses import replace

import pytest

from plink.errors import PlinkError
from plink.model.hosts import Host, Hosts
from runners.job.fleet_runner import FleetRunner
from runners.job.messages import Versions
from runners.job.placement import RankLocation
from runners.job.runner import RunContext, RunObserver
from runners.job.setup import check_connectivity, check_hosts
from tests.child_hosts import ends
from tests.runners.child_jobs import ChildJobs


def test_a_program_of_another_kind_just_ends(jobs: ChildJobs) -> None:
    result = jobs.launch(replace(jobs.job("sleep", "60"), timeout_s=0.5))
    assert (result.exit_code, result.timed_out) == (124, True)
    assert jobs.printed == []
    assert 0.5 <= result.seconds < 50
    assert all(ends(location.pid, within_s=0) for location in result.locations)


def test_a_job_within_its_time_is_left_alone(jobs: ChildJobs) -> None:
    result = jobs.launch(replace(jobs.job("true"), timeout_s=30.0))
    assert (result.exit_code, result.timed_out, result.failure) == (0, False, None)


def test_simultaneous_failures_are_all_reported(jobs: ChildJobs) -> None:
    """Each its own code, though the first of them ends the others; one that was ended is not among them."""
    code = "import os, sys, threading; r = int(os.environ['RANK']); sys.exit(3) if r else threading.Event().wait()"
    result = jobs.python(code, slots=4)
    assert result.exit_code == 3
    assert result.exits == {1: 3, 2: 3, 3: 3}


def test_a_rank_that_ends_before_the_gate_opens_is_named(jobs: ChildJobs) -> None:
    """Killed by somebody when all have reported: the others are let go, and ended, and it is the one that failed."""

    def kill(locations: list[RankLocation]) -> None:
        os.kill(locations[1].pid, signal.SIGKILL)
        assert ends(locations[1].pid)

    watch = RunContext(RunObserver(on_placement=kill), time.monotonic)
    hosts = Hosts((Host("a", "127.0.0.1", slots=3),))
    result = FleetRunner("children", jobs.connector).run(jobs.job("sleep", "60"), hosts, watch)
    assert result.failure is not None
    assert (result.failure.rank, result.exit_code) == (1, 137)


def test_port_in_use_is_reported_before_the_start(jobs: ChildJobs) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(PlinkError, match=rf"here: port {port} of 127.0.0.1 cannot be used: .*in use; nothing was"):
            jobs.launch(replace(jobs.job("true"), master_port=port))


def test_an_interface_that_is_not_there(jobs: ChildJobs) -> None:
    hosts = Hosts((Host("a", "127.0.0.1"), Host("b", "127.0.0.1")))
    with pytest.raises(PlinkError, match=r"a: no such interface: nope0 \(and 1 more host: b\); nothing was run"):
        jobs.launch(replace(jobs.job("true"), interface="lo,nope0"), hosts=hosts)


def test_hosts_with_other_versions_are_named(jobs: ChildJobs) -> None:
    same = Versions("3.11", "2.13.0", None)
    versions = {"a": same, "b": same, "c": Versions("3.11", "2.12.0", None), "d": Versions("3.9", None, None)}
    with pytest.raises(PlinkError) as refused:
        check_hosts([], versions, jobs.job("train.py"))
    assert str(refused.value) == (
        "hosts differ: Python 3.11 with PyTorch 2.13.0 on a, b, Python 3.11 with PyTorch 2.12.0 on c, "
        "Python 3.9 without PyTorch on d; nothing was run (--set allow-version-mismatch=yes runs it)"
    )
    check_hosts([], versions, replace(jobs.job("train.py"), allow_version_mismatch=True))
    check_hosts([], {"a": same, "b": None, "c": same}, jobs.job("train.py"))


def test_hosts_that_cannot_reach_the_first_are_named_by_their_reasons() -> None:
    with pytest.raises(PlinkError) as refused:
        check_connectivity("a", "10.0.0.1", 29500, {"b": "timed out", "c": "no route", "d": "timed out"})
    assert str(refused.value) == (
        "b: cannot reach port 29500 of 10.0.0.1 (a, rank 0's host): timed out (and 1 more host: d) | "
        "c: cannot reach port 29500 of 10.0.0.1 (a, rank 0's host): no route; nothing was run"
    )
    check_connectivity("a", "10.0.0.1", 29500, {})
