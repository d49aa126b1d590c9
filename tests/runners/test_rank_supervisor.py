"""Under launchers of others: no process that a program started outlives it, its rank_supervisor or the launcher."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from runners.launchers.frames import ERR, EXIT, OUT, FrameDecoder
from tests.child_hosts import WAIT_S
from tests.lab.waiting import until
from tests.marked import Marked, parent_of

START = (
    "import os, sys\n"
    "from plink.transport.supervisor import supervise\n"
    "from runners.launchers.shim import FORWARDED_SIGNALS, RankSupervisor\n"
    "supervise(FORWARDED_SIGNALS, ends_with_parent=True)\n"
    "os._exit(RankSupervisor(sys.argv[1:], os.getcwd(), dict(os.environ)).run(None))\n"
)
DAEMON = "setsid -f sh -c 'trap \"\" TERM; sleep 304; true'"


class Launcher:
    """Starts a program as a launcher does, by a shell in its stead."""

    def __init__(self, folder: Path, marked: Marked) -> None:
        self._out, self._env = folder / "out", {**os.environ, **marked.env}
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(self, *argv: str) -> "subprocess.Popen[bytes]":
        """The launcher; the program's process id is the first that it prints."""
        words = ["sh", "-c", '"$@"; exit $?', "sh", sys.executable, "-c", START, *argv]
        with self._out.open("wb") as out:
            self._processes.append(subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=out, env=self._env))
        return self._processes[-1]

    def frames(self, kind: str) -> str:
        """What came out so far."""
        frames = FrameDecoder()
        result = [frame for line in self._out.read_text().split("\n") for frame in frames.add(line)]
        return "".join(data for cached, data in result if cached == kind)

    def pid(self) -> int:
        """Of the program."""
        return int(until(lambda: self.frames(OUT), WAIT_S, "the program to start").split()[0])

    def close(self) -> None:
        """Of what a failed test has left."""
        for process in self._processes:
            process.kill()
            process.wait()


@pytest.fixture
def launcher(tmp_path: Path, marked: Marked) -> Iterator[Launcher]:
    """One that is gone afterwards."""
    started = Launcher(tmp_path, marked)
    yield started
    started.close()


def test_daemon_of_a_program_ends_with_it(launcher: Launcher, marked: Marked) -> None:
    """And a line says so; the exit code is the program's."""
    process = launcher.start("sh", "-c", f"{DAEMON}; echo $$")
    assert process.wait(WAIT_S) == 0
    assert json.loads(launcher.frames(EXIT))["code"] == 0
    assert "sleep" in launcher.frames(ERR) or "sh" in launcher.frames(ERR)
    assert marked.gone()


def supervisor(launcher: Launcher, program: int) -> int:
    return parent_of(parent_of(program))


def rank_supervisor(launcher: Launcher, program: int) -> int:
    return parent_of(program)


def the_launcher(launcher: Launcher, program: int) -> int:
    return parent_of(supervisor(launcher, program))


@pytest.mark.parametrize("victim", [supervisor, rank_supervisor, the_launcher])
def test_whoever_is_killed_nothing_is_left(
    launcher: Launcher, marked: Marked, victim: Callable[[Launcher, int], int]
) -> None:
    process = launcher.start("bash", "-c", f"{DAEMON}; echo $$; sleep 304; true")
    os.kill(victim(launcher, launcher.pid()), signal.SIGKILL)
    assert process.wait(WAIT_S) != 0
    assert marked.gone()


def test_signal_to_everything_reaches_the_program_once(launcher: Launcher) -> None:
    """The supervisor and the rank_supervisor get it both, as from Slurm."""
    program = (
        "import os, signal, sys\n"
        "count = 0\n"
        "def more(number, frame):\n    global count\n    count += 1\n    print('signal', flush=True)\n"
        "signal.signal(signal.SIGUSR1, more)\n"
        "signal.signal(signal.SIGUSR2, lambda number, frame: sys.exit(10 + count))\n"
        "print(os.getpid(), flush=True)\n"
        "while True: signal.pause()\n"
    )
    process = launcher.start(sys.executable, "-c", program)
    pid = launcher.pid()
    for times in (1, 2):
        for target in (supervisor(launcher, pid), rank_supervisor(launcher, pid)):
            os.kill(target, signal.SIGUSR1)
        until(lambda times=times: launcher.frames(OUT).count("signal") >= times, WAIT_S, "the signal")
    os.kill(supervisor(launcher, pid), signal.SIGUSR2)
    assert process.wait(WAIT_S) == 12


def test_signals_that_come_both_ways_count_once_each_in_any_order() -> None:
    """A supervisor may pass on the first only after the second came."""
    program = (
        "import os, signal\n"
        "from plink.transport.supervisor import on_signal\n"
        "on_signal(signal.SIGUSR1, lambda number, frame: print('signal'))\n"
        "passed_on = signal.SIGRTMIN + signal.SIGUSR1\n"
        "for number in (signal.SIGUSR1, signal.SIGUSR1, passed_on, passed_on): os.kill(os.getpid(), number)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=WAIT_S, check=True)
    assert done.stdout == "signal\nsignal\n"


def test_agent_that_stays_stopped_is_ended_with_all_below_it(marked: Marked) -> None:
    code = (
        "import os, signal, subprocess, time\n"
        "from plink.transport.supervisor import supervise\n"
        "supervise((), stopped_limit_s=1.0)\n"
        "subprocess.Popen(['setsid', 'sleep', '304'])\n"
        "os.kill(os.getpid(), signal.SIGSTOP)\n"
        "time.sleep(304)\n"
    )
    process = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **marked.env}, timeout=WAIT_S, check=False
    )
    assert process.returncode != 0
    assert marked.gone()


def test_process_groups_are_ended_where_there_are_no_subreapers(marked: Marked, tmp_path: Path) -> None:
    code = (
        "import ctypes, os, sys\n"
        "real = ctypes.CDLL(None)\n"
        "class Kernel:\n    prctl = staticmethod(lambda *words: -1 if words[0] == 36 else real.prctl(*words))\n"
        "ctypes.CDLL = lambda name: Kernel\n"
        "from plink.transport.supervisor import ProcessTree, supervise\n"
        "pid = os.getpid()\n"
        "supervise(())\n"
        "assert os.getpid() == pid\n"
        "tree, (read, write) = ProcessTree(), os.pipe()\n"
        "def become():\n    os.dup2(write, 1)\n    os.execvp('sh', ['sh', '-c', 'sleep 304 & echo started; exit 3'])\n"
        "child = tree.fork(become)\n"
        "os.read(read, 1)\n"
        "while tree.exit_code(child) is None: pass\n"
        "tree.end(0.1)\n"
        "sys.exit(tree.exit_code(child))\n"
    )
    process = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **marked.env}, timeout=WAIT_S, check=False
    )
    assert process.returncode == 3
    assert marked.gone()
