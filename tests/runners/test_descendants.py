"""However a job ends, no process that a rank started is left, and nobody else's process is touched."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace

import pytest

from tests import reaper
from tests.child_hosts import WAIT_S, ends
from tests.marked import Marked, parent_of
from tests.runners.child_jobs import ChildJobs

# Each starts several processes; one path of each kind is quick.
pytestmark = pytest.mark.extended

# How a rank may start what outlives it; each says so once it runs.
DETACH = {
    "same session": "sh -c 'sleep 304 & echo detached'",
    "setsid": "setsid -f sh -c 'echo detached; sleep 304; true'",
    "double fork": "(setsid sh -c '(sleep 304 & echo detached) &' &)",
    "no SIGTERM": "setsid -f sh -c 'trap \"\" TERM; echo detached; sleep 304; true'",
}
# Each generation leaves its session, starts the next one and ends; the last one stays.
CHAIN = """
import os, sys, time
if os.fork() == 0:
    for generation in range(50):
        os.setsid()
        if os.fork():
            os._exit(0)
    print("detached", flush=True)
    time.sleep(304)
    os._exit(0)
"""


@pytest.mark.parametrize("way", DETACH)
def test_detached_process_ends_with_a_successful_job(jobs: ChildJobs, marked: Marked, way: str) -> None:
    """The rank goes on when it has seen that its child runs, and ends well; a line says what it left."""
    script = f"mkfifo said; {DETACH[way]} > said & read line < said; echo $line"
    result = jobs.launch(jobs.job("sh", "-c", script, env=marked.env))
    assert result.exit_code == 0
    assert jobs.lines(0) == ["detached"]
    assert any("sleep" in line or "sh" in line for rank, _, line in jobs.printed if rank is None)
    assert marked.gone()


@pytest.mark.quick
def test_no_descendants_no_report(jobs: ChildJobs) -> None:
    assert jobs.launch(jobs.job("sh", "-c", "sleep 0.1 & wait")).exit_code == 0
    assert jobs.printed == []


def stop(jobs: ChildJobs) -> None:
    """Ctrl-C."""
    raise KeyboardInterrupt


@pytest.mark.quick
def test_chain_of_forks_ends_with_the_job(jobs: ChildJobs, marked: Marked) -> None:
    job = jobs.job(sys.executable, "-c", f"{CHAIN}\ntime.sleep(304)", env=marked.env)
    with pytest.raises(KeyboardInterrupt):
        jobs.launch(job, on_line=lambda: stop(jobs))
    assert jobs.lines(0) == ["detached"]
    assert marked.gone()


def test_chain_of_forks_is_caught_under_way(jobs: ChildJobs, marked: Marked) -> None:
    """The job ends while processes come and go."""
    code = CHAIN.replace("os.setsid()", "os.setsid(); time.sleep(0.02); print(generation, flush=True)")

    def on_line() -> None:
        if len(jobs.lines(0)) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        jobs.launch(jobs.job(sys.executable, "-c", f"{code}\ntime.sleep(304)", env=marked.env), on_line=on_line)
    assert marked.gone()


def cut(jobs: ChildJobs) -> None:
    """The connection is lost."""
    stdin = jobs.connector.started[0].stdin
    assert stdin is not None
    stdin.close()


def kill_agent(jobs: ChildJobs) -> None:
    os.kill(parent_of(jobs.placements[0][0].pid), signal.SIGKILL)


def kill_process_of_the_connection(jobs: ChildJobs) -> None:
    """The one that sshd, or whoever started the agent, knows."""
    jobs.connector.started[0].kill()


def terminate_process_of_the_connection(jobs: ChildJobs) -> None:
    jobs.connector.started[0].terminate()


def fail(jobs: ChildJobs) -> None:
    """Rank 0 is killed."""
    os.kill(jobs.placements[0][0].pid, signal.SIGKILL)


ENDINGS = [stop, cut, kill_agent, kill_process_of_the_connection, terminate_process_of_the_connection, fail]


@pytest.mark.parametrize("ending", ENDINGS)
def test_no_process_is_left_however_the_job_ends(
    jobs: ChildJobs, marked: Marked, ending: Callable[[ChildJobs], None]
) -> None:
    """A child in the rank's session, and a detached one; a stranger's process lives on."""
    unrelated = subprocess.Popen(["sleep", "304"], start_new_session=True)
    reaper.kill_process(unrelated.pid)

    def on_line() -> None:
        if len(jobs.lines(0)) == 1:
            ending(jobs)

    try:
        script = f"{DETACH['setsid']}; sleep 304; true"
        job = jobs.job("bash", "-c", script, env=marked.env)
        if ending is stop:
            with pytest.raises(KeyboardInterrupt):
                jobs.launch(job, on_line=on_line)
        else:
            assert jobs.launch(job, on_line=on_line).exit_code != 0
        assert marked.gone()
        assert jobs.connector.all_end()
        assert unrelated.poll() is None
    finally:
        unrelated.kill()
        unrelated.wait()


def test_time_out_ends_detached_processes(jobs: ChildJobs, marked: Marked) -> None:
    job = jobs.job("bash", "-c", f"{DETACH['no SIGTERM']}; sleep 304; true", env=marked.env)
    assert jobs.launch(replace(job, timeout_s=1.0)).timed_out
    assert marked.gone()


def test_orphans_of_a_rank_do_not_stay_zombies(jobs: ChildJobs, marked: Marked) -> None:
    """They are collected while the rank runs, as an init would."""
    code = (
        "import os, subprocess, time\n"
        "pid = int(subprocess.run(['sh', '-c', 'sleep 0.1 & echo $!'], stdout=-1, close_fds=True).stdout)\n"
        "while os.path.exists(f'/proc/{pid}'): time.sleep(0.05)\n"
    )
    job = replace(jobs.job(sys.executable, "-c", code, env=marked.env), timeout_s=WAIT_S)
    assert jobs.launch(job).exit_code == 0
    assert ends(jobs.placements[0][0].pid, within_s=0)


SIGNALS = """
import signal, time
from plink.transport import supervisor
count = []
supervisor.on_signal(signal.SIGTERM, lambda number, frame: count.append(number))
def send(*numbers):
    for number in numbers:
        signal.raise_signal(number)
own, passed_on = signal.SIGTERM, signal.SIGRTMIN + signal.SIGTERM
send(own, passed_on)
print(len(count))
time.sleep(supervisor._SAME_SIGNAL_WINDOW_S + 0.1)
send(passed_on)
print(len(count))
time.sleep(supervisor._SAME_SIGNAL_WINDOW_S + 0.1)
send(own, own)
print(len(count))
"""


def test_signal_that_comes_both_ways_counts_once() -> None:
    """And a later one counts again, whichever way it comes."""
    done = subprocess.run([sys.executable, "-c", SIGNALS], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["1", "2", "4"]
