"""How jobs end: whatever fails or is lost, no process of the job is left."""

import os
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from plink.errors import PlinkError
from plink.model.document import UNSET
from plink.model.hosts import Host, Hosts
from runners.job.runner import Job
from tests.child_hosts import ends
from tests.runners.child_jobs import ChildJobs

# Prints its process id, and then does not end by itself.
STAY = "import os, threading; print(os.getpid(), flush=True); threading.Event().wait()"


def test_the_first_rank_that_fails_ends_the_others(jobs: ChildJobs) -> None:
    code = (
        "import os, sys, threading\nprint(os.getpid(), flush=True)\n"
        "if os.environ['RANK'] == '1': print('because', file=sys.stderr); sys.exit(7)\n"
        "threading.Event().wait()\n"
    )
    result = jobs.python(code, slots=3)
    assert result.exit_code == 7
    assert result.failure is not None
    assert (result.failure.rank, result.failure.host, result.failure.code) == (1, "here", 7)
    assert "because" in result.failure.last_lines
    assert all(ends(finding.pid, within_s=0) for finding in result.locations)


def test_a_rank_that_is_killed_ends_the_others(jobs: ChildJobs) -> None:
    """kill -9 counts as in a shell, 128 + 9."""
    code = (
        "import os, signal, threading\n"
        "if os.environ['RANK'] == '0': os.kill(os.getpid(), signal.SIGKILL)\n"
        "threading.Event().wait()\n"
    )
    result = jobs.python(code, slots=2)
    assert result.exit_code == 137
    assert all(ends(finding.pid, within_s=0) for finding in result.locations)


def test_a_rank_that_will_not_go_is_killed(jobs: ChildJobs) -> None:
    """One ignores SIGTERM, and so does the child it made."""
    code = (
        "import os, signal, sys, threading\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "if os.environ['RANK'] == '0':\n    sys.exit(int(open('gate').read(1)))\n"
        "os.fork()\n"
        "os.write(1, b'%d\\n' % os.getpid())\n"  # in one piece: two processes write to one pipe
        "threading.Event().wait()\n"
    )
    gate = jobs.folder / "gate"
    os.mkfifo(gate)

    def on_line() -> None:
        if len(jobs.lines(1)) == 2:  # both processes ignore the signal by now: rank 0 may fail
            gate.write_text("3")

    result = jobs.launch(jobs.job(sys.executable, "-c", code), slots=2, on_line=on_line)
    assert result.exit_code == 3
    assert all(ends(int(pid)) for pid in jobs.lines(1))


def opening(jobs: ChildJobs, gate: Path) -> Callable[[], None]:
    """Lets the program that waits at a gate go on, at the first line."""

    def on_line() -> None:
        if len(jobs.printed) == 1:
            gate.write_text("go")

    return on_line


def test_what_a_rank_leaves_behind_is_ended_with_the_job(jobs: ChildJobs) -> None:
    """The rank ends well; the process it started and forgot does not outlive the job."""
    code = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {STAY!r}]); open('gate').read(1)"
    gate = jobs.folder / "gate"
    os.mkfifo(gate)
    result = jobs.launch(jobs.job(sys.executable, "-c", code), on_line=opening(jobs, gate))
    assert result.exit_code == 0
    assert ends(int(jobs.lines(0)[0]))


def test_ctrl_c_ends_every_rank(jobs: ChildJobs) -> None:
    """The interrupt comes while output is shown, which is where a watching launcher spends its time."""

    def on_line() -> None:
        if len(jobs.printed) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        jobs.launch(jobs.job(sys.executable, "-c", STAY), slots=2, on_line=on_line)
    assert all(ends(finding.pid) for finding in jobs.placements[0])
    assert jobs.connector.all_end()


def test_a_host_that_is_lost_ends_the_job(jobs: ChildJobs) -> None:
    """Its agent is killed: its ranks die with it, and the launcher says which host it was."""
    result = jobs.launch(jobs.job(sys.executable, "-c", STAY), on_line=lambda: jobs.connector.started[0].kill())
    assert result.failure is not None
    assert (result.exit_code, result.failure.host) == (1, "here")
    assert "its agent is gone" in (result.failure.cause or "")
    assert ends(int(jobs.lines(0)[0]))


STOPPED = "import os, sys, threading\nprint(os.getpid(), flush=True)\nif os.environ['RANK'] == '0': {}\n" + (
    "threading.Event().wait()\n"
)
WAITS = "sys.exit(5 if open('gate').read() else 0)"


@pytest.mark.parametrize("timeout_s", [None, pytest.param(8.0, marks=pytest.mark.extended)])
def test_a_stopped_rank_is_named_not_the_one_that_gave_up(timeout_s: float | None, jobs: ChildJobs) -> None:
    """SIGSTOP to rank 1. Then rank 0 fails as one that waited in vain, or the job runs out of time."""
    gate = jobs.folder / "gate"
    os.mkfifo(gate)

    def on_line() -> None:
        if len(jobs.printed) == 3:
            os.kill(int(jobs.lines(1)[0]), signal.SIGSTOP)
            if timeout_s is None:
                gate.write_text("go")

    code = STOPPED.format(WAITS if timeout_s is None else "pass")
    job = replace(jobs.job(sys.executable, "-c", code), timeout_s=timeout_s)
    result = jobs.launch(job, slots=3, on_line=on_line)
    assert result.failure is not None
    assert result.failure.cause is not None
    assert result.failure.cause.startswith("rank 1 on here: stopped")
    assert "rank 2" not in result.failure.cause
    assert result.exit_code == (5 if timeout_s is None else 124)
    assert all(ends(location.pid) for location in result.locations)


WATCHDOG = (  # as PyTorch 2.5 prints it
    "[rank{0}]:[E1218 20:27:21.426415540 ProcessGroupNCCL.cpp:629] [Rank {0}] Watchdog caught collective operation "
    "timeout: WorkNCCL(SeqNum=1, OpType=BROADCAST, NumelIn=131072000, NumelOut=131072000, Timeout(ms)=600000) ran for "
    "600081 milliseconds before timing out."
)


@pytest.mark.parametrize("absent", [0, 2])
def test_a_rank_that_nccl_waited_for_is_named(absent: int, jobs: ChildJobs) -> None:
    """It hangs elsewhere; NCCL's watchdog ends the others, and the first of them would be blamed."""
    code = (
        "import os, sys, threading\nrank = os.environ['RANK']\n"
        f"if rank == '{absent}': print('here', flush=True); threading.Event().wait()\n"
        f"print({WATCHDOG!r}.format(rank), file=sys.stderr, flush=True)\n"
        "sys.exit(6 if open(f'gate{rank}').read() else 0)\n"
    )
    gates = [jobs.folder / f"gate{rank}" for rank in range(3) if rank != absent]
    for gate in gates:
        os.mkfifo(gate)

    def on_line() -> None:
        if len(jobs.printed) == 3:
            gates[0].write_text("go")

    result = jobs.launch(jobs.job(sys.executable, "-c", code), slots=3, on_line=on_line)
    assert result.failure is not None
    assert result.failure.cause is not None
    assert result.failure.cause.startswith(f"rank {absent} on here: NCCL timed out on the others")
    assert result.exit_code == 6


def test_a_rank_that_fails_by_itself_stays_the_first(jobs: ChildJobs) -> None:
    """A time-out of NCCL elsewhere is its consequence."""
    code = (
        "import os, sys, threading\nrank = os.environ['RANK']\n"
        f"if rank == '1': print({WATCHDOG!r}.format(rank), flush=True); threading.Event().wait()\n"
        "sys.exit(7 if open('gate').read() else 0)\n"
    )
    gate = jobs.folder / "gate"
    os.mkfifo(gate)
    result = jobs.launch(jobs.job(sys.executable, "-c", code), slots=2, on_line=lambda: gate.write_text("go"))
    assert result.failure is not None
    assert (result.failure.rank, result.failure.cause) == (0, None)


HUB_HOSTS = Hosts((Host("here", "127.0.0.1", slots=2), Host("fat-1", "127.0.0.1", 0, role="hub")))


def hub_job(jobs: ChildJobs, code: str) -> Job:
    """A job with a hub process on a host of its own."""
    return replace(jobs.job(sys.executable, "-c", code), hubs=("fat-1",))


@pytest.mark.extended
def test_hub_processes_end_with_the_ranks(jobs: ChildJobs) -> None:
    result = jobs.launch(hub_job(jobs, "print('done')"), hosts=HUB_HOSTS)
    assert (result.exit_code, sorted(result.exits)) == (0, [0, 1])
    ((*ranks, hub),) = jobs.placements
    assert [location.process for location in ranks] == ["rank 0", "rank 1"]
    assert (hub.process, hub.host) == ("hub-0", "fat-1")
    assert ends(hub.pid)


@pytest.mark.extended
def test_a_killed_hub_is_the_first_to_fail(jobs: ChildJobs) -> None:
    def on_line() -> None:
        if len(jobs.printed) == 1:
            os.kill(jobs.placements[0][-1].pid, signal.SIGKILL)

    result = jobs.launch(hub_job(jobs, STAY), on_line=on_line, hosts=HUB_HOSTS)
    assert result.failure is not None
    assert (result.failure.process, result.failure.host, result.exit_code) == ("hub-0", "fat-1", 137)
    recorded = result.record()
    assert recorded.failure is not None
    assert recorded.failure.hub == 0
    assert [entry.hub for entry in (recorded.proof.ranks if recorded.proof else ())] == [UNSET, UNSET, 0]
    assert all(ends(location.pid) for location in result.locations)


def test_a_hub_host_without_python_is_refused(jobs: ChildJobs) -> None:
    job = replace(jobs.job("sleep", "60"), pythons=("nosuchpython",), hubs=("fat-1",))
    with pytest.raises(PlinkError, match="fat-1: no such program: nosuchpython; nothing was run"):
        jobs.launch(job, hosts=HUB_HOSTS)
