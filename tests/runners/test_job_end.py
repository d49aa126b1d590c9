"""How jobs end: whatever fails or is lost, no process of the job is left."""

import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import plink.remote.fleet
import runners.job.launcher
import runners.job.watching
from plink.hosts import Host
from plink.remote.fleet import Fleet
from tests.child_hosts import ChildHosts, ends
from tests.runners.child_jobs import ChildJobs

# Prints its process id, and then does not end by itself.
STAY = "import os, threading; print(os.getpid(), flush=True); threading.Event().wait()"


@pytest.fixture
def jobs(tmp_path: Path) -> Iterator[ChildJobs]:
    """Jobs in an empty folder; their processes are gone afterwards."""
    with ChildHosts() as connector:
        yield ChildJobs(connector, tmp_path)


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
    assert all(ends(finding.pid, within_s=0) for finding in result.proof)


def test_a_rank_that_is_killed_ends_the_others(jobs: ChildJobs) -> None:
    """kill -9 counts as in a shell, 128 + 9, and the rest end within five seconds."""
    code = (
        "import os, signal, threading\n"
        "if os.environ['RANK'] == '0': os.kill(os.getpid(), signal.SIGKILL)\n"
        "threading.Event().wait()\n"
    )
    began = time.monotonic()
    result = jobs.python(code, slots=2)
    assert result.exit_code == 137
    assert time.monotonic() - began < 5 + 2
    assert all(ends(finding.pid, within_s=0) for finding in result.proof)


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


def opening(gate: Path) -> Callable[[], None]:
    """Lets the program that waits at a gate go on."""

    def on_line() -> None:
        gate.write_text("go")

    return on_line


def test_what_a_rank_leaves_behind_is_ended_with_the_job(jobs: ChildJobs) -> None:
    """The rank ends well; the process it started and forgot does not outlive the job."""
    code = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {STAY!r}]); open('gate').read(1)"
    gate = jobs.folder / "gate"
    os.mkfifo(gate)
    result = jobs.launch(jobs.job(sys.executable, "-c", code), on_line=opening(gate))
    assert result.exit_code == 0
    assert ends(int(jobs.lines(0)[0]))


def test_ctrl_c_ends_every_rank(jobs: ChildJobs) -> None:
    """The interrupt comes while output is shown, which is where a watching launcher spends its time."""

    def on_line() -> None:
        if len(jobs.printed) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        jobs.launch(jobs.job(sys.executable, "-c", STAY), slots=2, on_line=on_line)
    assert all(ends(finding.pid) for finding in jobs.proofs[0])
    assert jobs.connector.all_end()


def test_ctrl_c_ends_the_ranks_also_where_nobody_reads_what_they_print(
    jobs: ChildJobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Like `plink launch ... | less` when Ctrl-C is typed: showing the next line takes until less is left."""
    monkeypatch.setattr(runners.job.watching, "_END_S", 0.5)
    monkeypatch.setattr(plink.remote.fleet, "MOST_WAITING", 1)
    flood = "while True: print('x' * 1000)"

    def on_line() -> None:
        if len(jobs.printed) == 1:
            time.sleep(1.0)  # by then the line is full, and its agent waits
            raise KeyboardInterrupt
        assert all(ends(finding.pid) for finding in jobs.proofs[0])

    with pytest.raises(KeyboardInterrupt):
        jobs.launch(jobs.job(sys.executable, "-c", flood), slots=6, on_line=on_line)


def test_an_agent_with_ranks_is_there_for_as_long_as_they_are(jobs: ChildJobs) -> None:
    """Ranks that print nothing for several leases are no reason to give their host up."""
    with Fleet(jobs.connector, runners.job.launcher.PROGRAM, lease_s=0.5) as fleet:
        fleet.start([Host("here", "127.0.0.1")], {})
        assert fleet.receive(1.5) is None  # other hosts are still being connected to
        fleet.send("here", do="begin", asked="127.0.0.1")
        task = {"rank": 0, "env": {"RANK": "0"}}
        fleet.send("here", do="start", ranks=[task], argv=[sys.executable, "-c", STAY], workdir="/")
        kinds = {(message.body or {}).get("is") for message in (fleet.receive(20.0), fleet.receive(20.0)) if message}
        assert kinds == {"ready", "reported"}
        assert fleet.receive(1.5) is None
        assert fleet.alive == ["here"]


def test_a_host_that_is_lost_ends_the_job(jobs: ChildJobs) -> None:
    """Its agent is killed: its ranks die with it, and the launcher says which host it was."""
    result = jobs.launch(jobs.job(sys.executable, "-c", STAY), on_line=lambda: jobs.connector.started[0].kill())
    assert result.failure is not None
    assert (result.exit_code, result.failure.host) == (1, "here")
    assert "its agent is gone" in result.failure.last_lines[0]
    assert ends(int(jobs.lines(0)[0]))
