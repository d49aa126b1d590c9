"""`plink launch --runner mpirun` and `mpich`: the launchers themselves, over the lab hosts' own sshd."""

import json
import os
import random
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Lab, plink
from tests.lab.jobs import Running, write_hosts, write_script
from tests.lab.test_launch import TELL, ranks_printed
from tests.lab.traces import HERE, guests
from tests.lab.waiting import until
from tests.stand_ins import program

PROGRAMS = {"mpirun": "mpirun", "mpich": "mpiexec.hydra"}
FILES = {"mpirun": "hostfile", "mpich": "machinefile"}
OPEN_MPI = shutil.which("mpirun") is not None and b"Open MPI" in subprocess.run(
    ["mpirun", "--version"], capture_output=True, check=False
).stdout  # fmt: skip
THERE = {"mpirun": OPEN_MPI, "mpich": shutil.which("mpiexec.hydra") is not None}
RUNNERS = [
    pytest.param(name, marks=pytest.mark.skipif(not there, reason=f"needs {PROGRAMS[name]}"))
    for name, there in THERE.items()
]

pytestmark = pytest.mark.lab
each_runner = pytest.mark.parametrize("runner", RUNNERS)

TOUCH = "import os\nopen(f'ran-{os.environ[\"RANK\"]}', 'w')\n"
HANG = "import time\ndef waiting():\n    time.sleep(100)\nprint('begun', flush=True)\nwaiting()\n"


@each_runner
def test_random_order_on_sixteen_hosts(lab: Lab, runner: str, tmp_path: Path) -> None:
    """The proof holds, and the ranks' own host names say the same."""
    write_hosts(lab, tmp_path)
    names = list(lab.hosts.names)
    random.Random(4).shuffle(names)
    (tmp_path / "order.txt").write_text("\n".join(names) + "\n")
    words = ("launch", "--hosts", "hosts.txt", "--order", "order.txt", "--runner", runner, "--json", "hostname")
    done = plink(*words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["proof"]["held"] is True
    assert [row["hostname"] for row in document["proof"]["ranks"]] == names
    assert document["exits"] == {str(rank): 0 for rank in range(16)}
    for rank, name in enumerate(names):
        assert f"[{rank:>2}] {name}" in done.stderr.splitlines()


@each_runner
@pytest.mark.parametrize(("from_the", "is_dry_run"), [(1, False), (2, False), (1, True)])
def test_an_order_that_is_broken_on_purpose(
    small_lab: Lab, runner: str, from_the: int, is_dry_run: bool, tmp_path: Path
) -> None:
    """By a launcher that turns its file around, at once or only when it starts the job itself: nothing was run."""
    write_hosts(small_lab, tmp_path)
    real, file = shutil.which(PROGRAMS[runner]), FILES[runner]
    folder = tmp_path / "bin"
    program(
        folder, PROGRAMS[runner], f"case $* in *--version*) exec {real} --version;; esac\necho >>{folder}/times\n"
        f"if [ $(wc -l <{folder}/times) -ge {from_the} ]; then tac {file} >turned; mv turned {file}; fi\n"
        f'exec {real} "$@"'
    )  # fmt: skip
    words = ("launch", "--hosts", "hosts.txt", "--order", "given", "--runner", runner, "--json")
    words += ("--dry-run",) if is_dry_run else ()
    done = plink(*words, write_script(tmp_path, TOUCH), cwd=tmp_path, PATH=f"{folder}:{os.environ['PATH']}")
    assert done.returncode == 1, done.stderr
    assert "wrong placement: " in done.stderr
    if is_dry_run:
        return
    assert "  <- " in done.stderr
    if from_the == 1:
        assert f"rank 0: assigned to {small_lab.hosts.names[0]}, runs on {small_lab.hosts.names[3]}  <-" in done.stderr
    assert json.loads(done.stdout)["proof"]["held"] is False
    assert list(tmp_path.glob("ran-*")) == []


@each_runner
def test_environment_and_arguments(small_lab: Lab, runner: str, tmp_path: Path) -> None:
    """Two slots a host, in reverse; whatever a shell, or the launcher, would take for its own comes through."""
    write_hosts(small_lab, tmp_path, slots=2, names=list(reversed(small_lab.hosts.names)))
    words = ["a b", "it's", '"q"', "$(id)", "two\nlines", ":", "-x", "--", "", "[3] ", "\udcff"]
    script = write_script(tmp_path, TELL)
    options = ("--runner", runner, "--env", "MY_NAME=a b=c", "--set", "master-port=29511")
    done = plink("launch", "--hosts", "hosts.txt", "--order", "given", *options, script, "--", *words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    ranks = ranks_printed(done.stdout)
    assert [rank["host"] for rank in ranks] == [name for name in reversed(small_lab.hosts.names) for _ in range(2)]
    for rank, printed in enumerate(ranks):
        assert printed["args"] == ["--", *words]
        assert printed["cwd"] == str(tmp_path)
        env = printed["env"]
        assert isinstance(env, dict)
        assert env["RANK"] == str(rank)
        assert env["WORLD_SIZE"] == "8"
        assert env["MASTER_ADDR"] == small_lab.hosts.members[-1].address
        assert env["MASTER_PORT"] == "29511"
        assert env["GLOO_SOCKET_IFNAME"] == "eth0"
        assert env["MY_NAME"] == "a b=c"


@each_runner
def test_environment_values_are_in_no_command(small_lab: Lab, runner: str, tmp_path: Path) -> None:
    """Commands are for every user of a host to read; the lab's hosts share a process table with this test."""
    write_hosts(small_lab, tmp_path)
    text = (
        "import glob, os, zlib, base64\n"
        "mine = os.environ['SECRET']\n"
        "for path in glob.glob('/proc/[0-9]*/cmdline'):\n"
        "    try: words = open(path, 'rb').read().split(b'\\0')\n"
        "    except OSError: continue\n"
        "    for word in words:\n"
        "        if word.startswith(b'eN'): word = zlib.decompress(base64.b64decode(word))\n"
        "        if mine.encode() in word and b'plink' not in words: print('seen in', path, words[:4])\n"
        "print('PLINK_USER_ENVIRONMENT' in os.environ, mine == 'hu' + 'sh ' * 99, os.environ['PLINK_ADDRESSES'])\n"
    )
    script = write_script(tmp_path, text)
    secret = "hu" + "sh " * 99
    done = plink(
        "launch", "--hosts", "hosts.txt", "--order", "given", "--runner", runner, "--env", f"SECRET={secret}", script,
        cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    addresses = ",".join(host.address for host in small_lab.hosts)
    assert sorted(done.stdout.splitlines()) == [f"[{rank}] False True {addresses}" for rank in range(4)]


@each_runner
def test_a_host_that_cannot_reach_the_first(small_lab: Lab, runner: str, tmp_path: Path) -> None:
    """Its packets are not answered. It is named before anything is run, also by a rehearsal (one of the two here)."""
    write_hosts(small_lab, tmp_path)
    first, other = small_lab.hosts.members[0], small_lab.hosts.members[2]
    rule = ["ip", "netns", "exec", small_lab.blueprint.namespace(first.name), "ip", "rule"]
    subprocess.run([*rule, "add", "to", other.address, "blackhole"], check=True)
    try:
        words = ("launch", "--hosts", "hosts.txt", "--order", "given", "--runner", runner, "--set", "master-port=29511")
        more = ("--dry-run",) if runner == "mpich" else ()
        done = plink(*words, *more, write_script(tmp_path, TOUCH), cwd=tmp_path)
    finally:
        subprocess.run([*rule, "del", "to", other.address, "blackhole"], check=True)
    assert done.returncode == 1, done.stderr
    assert done.stderr.splitlines()[-1] == (
        f"plink: error: {other.name}: cannot reach port 29511 of {first.address} ({first.name}, rank 0's host): "
        "timed out; nothing was run"
    )
    assert list(tmp_path.glob("ran-*")) == []


@each_runner
def test_much_output_arrives_whole(small_lab: Lab, runner: str, tmp_path: Path) -> None:
    """Short lines, some of which Open MPI would lose for its marks; marks in what is printed; no end at the end."""
    write_hosts(small_lab, tmp_path)
    text = "for i in range(10000): print(i, '[1,2]<stdout>:[3] |')\nprint('\\x1e\\\\', end='')\n"
    done = plink(
        "launch",
        "--hosts",
        "hosts.txt",
        "--order",
        "given",
        "--runner",
        runner,
        write_script(tmp_path, text),
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.split("\n")
    for rank in range(4):
        own = [line.removeprefix(f"[{rank}] ") for line in lines if line.startswith(f"[{rank}] ")]
        assert own == [*(f"{i} [1,2]<stdout>:[3] |" for i in range(10000)), "\x1e\\"]


@each_runner
def test_the_first_rank_that_fails(small_lab: Lab, runner: str, tmp_path: Path) -> None:
    """It is named with its code and its last lines, and ends the others."""
    write_hosts(small_lab, tmp_path)
    text = "import os, sys, time\nif os.environ['RANK'] == '2': sys.exit('because')\ntime.sleep(100)\n"
    done = plink(
        "launch",
        "--hosts",
        "hosts.txt",
        "--order",
        "given",
        "--runner",
        runner,
        write_script(tmp_path, text),
        cwd=tmp_path,
    )
    assert done.returncode == 1
    assert "plink: [2] because" in done.stderr
    assert done.stderr.splitlines()[-1].endswith("rank 2 on node-03 was the first to fail, with exit code 1")
    until(lambda: not guests(small_lab), 10, "the ranks to be gone")


@each_runner
def test_time_is_over(small_lab: Lab, runner: str, tmp_path: Path) -> None:
    """Every rank shows where it hangs before it is ended."""
    write_hosts(small_lab, tmp_path)
    words = ("launch", "--hosts", "hosts.txt", "--order", "given", "--runner", runner, "--timeout", "2s", "--json")
    done = plink(*words, write_script(tmp_path, HANG), cwd=tmp_path)
    assert done.returncode == 124
    document = json.loads(done.stdout)
    assert document["timed_out"] is True
    for rank in range(4):
        assert any(line.startswith(f"[{rank}]") and "in waiting" in line for line in done.stderr.splitlines())
    until(lambda: not guests(small_lab), 10, "the ranks to be gone")


@each_runner
def test_ctrl_c(small_lab: Lab, runner: str, tmp_path: Path, start: Callable[..., Running]) -> None:
    """Once: the job ends in order, and nothing of it is left on any host."""
    write_hosts(small_lab, tmp_path)
    running = start(
        "launch", "--hosts", "hosts.txt", "--order", "given", "--runner", runner, write_script(tmp_path, HANG)
    )
    running.await_lines(4, "begun")
    assert len(guests(small_lab)) >= 8
    running.process.send_signal(2)
    assert running.ends(15) == 130
    until(lambda: not guests(small_lab), 10, "the ranks to be gone")


@each_runner
def test_plink_is_killed(small_lab: Lab, runner: str, tmp_path: Path, start: Callable[..., Running]) -> None:
    """kill -9: the launcher ends with it, and ranks that ignore SIGTERM, too."""
    write_hosts(small_lab, tmp_path)
    script = write_script(tmp_path, f"import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n{HANG}")
    running = start("launch", "--hosts", "hosts.txt", "--order", "given", "--runner", runner, script)
    running.await_lines(4, "begun")
    running.process.kill()
    until(lambda: not guests(small_lab), 15, "the ranks to be gone")


@each_runner
def test_a_host_that_is_cut_off(small_lab: Lab, runner: str, tmp_path: Path, start: Callable[..., Running]) -> None:
    """It ends the job after 30 s, as with our own runner, and is named as the hosts file has it."""
    write_hosts(small_lab, tmp_path)
    running = start(
        "launch", "--hosts", "hosts.txt", "--order", "given", "--runner", runner, write_script(tmp_path, HANG)
    )
    running.await_lines(4, "begun")
    try:
        assert small_lab.plink("cut", small_lab.hosts.names[2], cwd=HERE).returncode == 0
        assert running.ends(60) == 1
    finally:
        assert small_lab.plink("heal", cwd=HERE).returncode == 0
    assert f"the connection to {small_lab.hosts.names[2]} was lost" in running.err
    until(lambda: not guests(small_lab), 45, "the ranks to be gone")


@each_runner
def test_a_dry_run(small_lab: Lab, runner: str, tmp_path: Path) -> None:
    """The order is proven and the command shown with its files; the program is not run, missing things are named."""
    write_hosts(small_lab, tmp_path)
    words = ("launch", "--hosts", "hosts.txt", "--order", "given", "--runner", runner, "--dry-run", "--json")
    done = plink(*words, write_script(tmp_path, TOUCH), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["commands"][0]["argv"][0] == PROGRAMS[runner]
    assert small_lab.hosts.members[0].address in next(
        text for name, text in document["files"].items() if name.endswith(FILES[runner])
    )
    assert list(tmp_path.glob("ran-*")) == []
    done = plink(*words, "missing.py", cwd=tmp_path)
    assert done.returncode == 1
    assert "no such " in done.stderr
