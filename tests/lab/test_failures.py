"""A rank, a host or a file fails: the job ends soon, with the right exit code and one clear line."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from runners.job.fleet_runner import FleetRunner
from runners.job.placement import RankLocation
from runners.job.runner import Job, RunContext, RunObserver
from runners.lab import kernel
from runners.ssh.connector import SshConnector
from tests.conftest import Lab, plink
from tests.lab.jobs import Running, write_hosts, write_script
from tests.lab.traces import HERE, guests
from tests.lab.waiting import until

pytestmark = pytest.mark.lab

PIDS = "import os, time\nprint('pid', os.getpid(), flush=True)\ntime.sleep(100)\n"


@pytest.fixture(autouse=True)
def _nothing_left(small_lab: Lab) -> Iterator[None]:
    """However a job of this file ended, nothing of it runs on a host a few seconds later."""
    yield
    until(lambda: not guests(small_lab), 6, "agents and ranks to be gone")


def rank_pids(running: Running, count: int = 4) -> list[int]:
    """Process ids of the ranks, once all have started, in rank order."""
    lines = sorted(running.await_lines(count, "] pid "))
    return [int(line.split()[-1]) for line in lines]


def test_a_failing_ranks_exit_code_is_plinks(small_lab: Lab, tmp_path: Path) -> None:
    """Its rank, its host and the last lines it printed are shown; the other ranks do not go on."""
    write_hosts(small_lab, tmp_path)
    text = (
        "import os, sys, time\n"
        "if os.environ['RANK'] != '2': time.sleep(100)\n"
        "for i in range(50): print('step', i)\n"
        "print('loss is not a number', file=sys.stderr)\n"
        "sys.exit(41)\n"
    )
    began = time.monotonic()
    done = plink("launch", "--hosts", "hosts.txt", "--order", "given", write_script(tmp_path, text), cwd=tmp_path)
    assert done.returncode == 41, done.stderr
    assert time.monotonic() - began < 10
    host = small_lab.hosts.names[2]
    last = done.stderr.splitlines()[-1]
    assert last == f"plink: error: rank 2 on {host} was the first to fail, with exit code 41"
    shown = done.stderr.splitlines()[-11:-1]
    assert "[2] loss is not a number" in shown[-1]
    assert any("[2] step 49" in line for line in shown)
    assert not any(line == "[2] step 9" for line in shown)


def test_a_killed_rank_ends_the_others_within_5_s(
    small_lab: Lab, tmp_path: Path, start: Callable[..., Running]
) -> None:
    """kill -9 of one rank: all are gone, also those that do not listen to SIGTERM; 137 as a shell says it."""
    write_hosts(small_lab, tmp_path, slots=2)
    stubborn = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + PIDS
    running = start("launch", "--hosts", "hosts.txt", "--order", "given", write_script(tmp_path, stubborn))
    pids = rank_pids(running, 8)
    os.kill(pids[5], signal.SIGKILL)
    assert running.ends(5) == 137
    until(lambda: not any(pid in guests(small_lab) for pid in pids), 1, "the ranks to be gone")
    assert f"rank 5 on {small_lab.hosts.names[2]} was the first to fail" in running.err


def test_a_rank_may_use_its_last_two_seconds(small_lab: Lab, tmp_path: Path) -> None:
    """The others get SIGTERM first, and what they do then is still shown."""
    write_hosts(small_lab, tmp_path, names=small_lab.hosts.names[:2])
    text = (
        "import os, signal, sys, time\n"
        "def save(*_):\n    time.sleep(0.5)\n    print('saved', flush=True)\n    sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, save)\n"
        "if os.environ['RANK'] == '1':\n    time.sleep(0.5)\n    sys.exit(9)\n"
        "time.sleep(100)\n"
    )
    done = plink("launch", "--hosts", "hosts.txt", "--order", "given", write_script(tmp_path, text), cwd=tmp_path)
    assert done.returncode == 9
    assert done.stdout.splitlines() == ["[0] saved"]


def test_a_killed_agent_ends_the_job(small_lab: Lab, tmp_path: Path, start: Callable[..., Running]) -> None:
    """Its ranks die with it, the others are ended, and the host is named."""
    write_hosts(small_lab, tmp_path)
    running = start("launch", "--hosts", "hosts.txt", "--order", "given", write_script(tmp_path, PIDS))
    pids = rank_pids(running)
    agent = int(Path(f"/proc/{pids[3]}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(agent, signal.SIGKILL)
    assert running.ends(6) == 1
    assert f"{small_lab.hosts.names[3]}: lost, its agent is gone: " in running.err
    assert "rank 3 ran there" in running.err


def test_a_host_that_dies_in_the_middle_ends_the_job(small_lab: Lab, tmp_path: Path) -> None:
    """Nobody says goodbye when a machine loses its power: silence alone ends the job (here after 3 s, not 30)."""
    victim = small_lab.hosts.names[1]
    job = Job(program="sleep", args=("100",), workdirs=(str(tmp_path),))
    began = time.monotonic()

    def power_off(locations: list[RankLocation]) -> None:
        assert small_lab.plink("kill", victim, cwd=HERE).returncode == 0

    with kernel.inside(small_lab.blueprint.namespace("ctl")):
        connector = SshConnector(identity=small_lab.state.identity, heartbeat_timeout_s=3)
        try:
            result = FleetRunner("ssh", connector).run(
                job, small_lab.hosts, RunContext(RunObserver(on_placement=power_off), time.monotonic)
            )
        finally:
            assert small_lab.plink("heal", cwd=HERE).returncode == 0
    assert time.monotonic() - began < 25
    assert result.exit_code == 1
    assert result.failure is not None
    assert (result.failure.rank, result.failure.host) == (1, victim)


def test_lost_host_is_named_when_others_fail_first(small_lab: Lab, tmp_path: Path) -> None:
    """As where ranks give up waiting for it sooner than its agent's lease runs out."""
    victim = small_lab.hosts.names[1]
    script = write_script(
        tmp_path,
        "import os, sys, time\nwhile not os.path.exists('gone') or os.environ['RANK'] == '1': time.sleep(0.05)\n"
        "sys.exit(7)\n",
    )
    job = Job(program=script, args=(), workdirs=(str(tmp_path),))

    def power_off(locations: list[RankLocation]) -> None:
        assert small_lab.plink("kill", victim, cwd=HERE).returncode == 0
        (tmp_path / "gone").write_text("")

    with kernel.inside(small_lab.blueprint.namespace("ctl")):
        connector = SshConnector(identity=small_lab.state.identity)
        try:
            result = FleetRunner("ssh", connector).run(
                job, small_lab.hosts, RunContext(RunObserver(on_placement=power_off), time.monotonic)
            )
        finally:
            assert small_lab.plink("heal", cwd=HERE).returncode == 0
    assert result.exit_code == 7
    assert result.failure is not None
    assert result.failure.host != victim
    assert result.failure.cause is not None
    assert victim in result.failure.cause


def test_a_dead_host_is_one_clear_line(small_lab: Lab, tmp_path: Path) -> None:
    """Nothing is run on the others either."""
    write_hosts(small_lab, tmp_path)
    victim = small_lab.hosts.names[1]
    try:
        assert small_lab.plink("kill", victim, cwd=HERE).returncode == 0
        done = plink("launch", "--hosts", "hosts.txt", "--order", "given", "touch", "ran", cwd=tmp_path)
    finally:
        assert small_lab.plink("heal", cwd=HERE).returncode == 0
    assert done.returncode == 1
    errors = [line for line in done.stderr.splitlines() if line.startswith("plink: error")]
    assert len(errors) == 1
    assert victim in errors[0]
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "ran").exists()
