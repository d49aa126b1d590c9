"""`plink launch --runner slurm` on a Slurm of sixteen lab hosts: the order holds, or nothing runs; nothing is left."""

import json
import os
import random
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from plink.model.hosts import Hosts, render_hosts
from tests.conftest import Lab, plink
from tests.lab.jobs import Running, write_hosts, write_script
from tests.lab.slurm import PATIENCE_S, Cluster, cluster
from tests.lab.waiting import until
from tests.reaper import remove_folder
from tests.runners.elastic.tally import expected

pytestmark = [pytest.mark.lab, pytest.mark.slurm]

TOUCH = "import os\nopen(f'ran-{os.environ[\"RANK\"]}', 'w')\n"
# Turns the order round from the given call on, as an srun does that minds the file's nodes and not their order.
DISOBEY = """#!/bin/sh
echo call >>{folder}/calls
if [ $(wc -l <{folder}/calls) -ge {first} ]; then
  tac "$SLURM_HOSTFILE" >{folder}/turned
  export SLURM_HOSTFILE={folder}/turned
fi
exec {srun} "$@"
"""
GATHER = """
import os, torch.distributed as dist
dist.init_process_group("gloo")
all_of_them = [None] * dist.get_world_size()
dist.all_gather_object(all_of_them, os.uname().nodename)
if dist.get_rank() == 0:
    print(" ".join(all_of_them))
dist.barrier()
dist.destroy_process_group()
"""


@pytest.fixture(scope="module")
def slurm_of_the_lab(lab: Lab) -> Iterator[Cluster]:
    """Slurm on all hosts of the lab."""
    # Not in a folder of pytest's: a socket's path has to be short.
    folder = Path(tempfile.mkdtemp(prefix="plink-slurm-"))
    remove_folder(folder)
    with cluster(lab, folder) as made:
        yield made
    shutil.rmtree(folder)


@pytest.fixture
def slurm(slurm_of_the_lab: Cluster) -> Iterator[Cluster]:
    """The same, with an empty queue."""
    yield slurm_of_the_lab
    slurm_of_the_lab.clear()


def shuffled(lab: Lab, seed: int, count: int = 16) -> list[str]:
    """Some of the hosts, in a random order."""
    return random.Random(seed).sample(lab.hosts.names, count)


def write_slots(lab: Lab, folder: Path, slots: dict[str, int]) -> None:
    """A hosts file with these hosts and slots."""
    hosts_by_name = lab.hosts.by_name()
    members = tuple(replace(hosts_by_name[name], slots=count) for name, count in slots.items())
    (folder / "hosts.txt").write_text(render_hosts(Hosts(members, lab.name)))


def launch(slurm: Cluster, folder: Path, *words: str, **more: str) -> tuple[int, str, str]:
    """(exit code, standard output, standard error) of a launch with the hosts file there."""
    return run(slurm, folder, "launch", "--runner", "slurm", *words, **more)


def run(slurm: Cluster, folder: Path, command: str, *words: str, **more: str) -> tuple[int, str, str]:
    """As :func:`launch`, of any command that takes hosts and an order."""
    done = plink(command, "--order", "given", "--hosts", "hosts.txt", *words, cwd=folder, **slurm.environment, **more)
    return done.returncode, done.stdout, done.stderr


def nothing_is_left(slurm: Cluster) -> None:
    """No job of Slurm's stays."""
    until(lambda: not slurm.jobs(), PATIENCE_S, "the allocation to be given back")


def disobedient(folder: Path, first: int) -> str:
    """A PATH with an srun before the real one."""
    bin_folder = folder / "bin"
    bin_folder.mkdir()
    (bin_folder / "srun").write_text(DISOBEY.format(folder=folder, first=first, srun=shutil.which("srun")))
    (bin_folder / "srun").chmod(0o755)
    return f"{bin_folder}:{os.environ['PATH']}"


def test_a_random_order_of_sixteen(slurm: Cluster, tmp_path: Path) -> None:
    """The proof holds, and so do the ranks' own words."""
    names = shuffled(slurm.lab, 1)
    write_hosts(slurm.lab, tmp_path, names=names)
    code, out, err = launch(slurm, tmp_path, "--json", "hostname")
    assert code == 0, err
    proof = json.loads(out)["proof"]
    assert proof["held"] is True
    assert [row["hostname"] for row in proof["ranks"]] == names
    width = len(str(len(names) - 1))
    assert all(f"[{rank:>{width}}] {name}" in err.splitlines() for rank, name in enumerate(names))
    nothing_is_left(slurm)


def test_slots_that_differ(slurm: Cluster, tmp_path: Path) -> None:
    """A host's ranks stand in a block, however many each host takes."""
    slots = dict(zip(shuffled(slurm.lab, 7, 4), (2, 1, 4, 3), strict=True))
    write_slots(slurm.lab, tmp_path, slots)
    code, out, err = launch(slurm, tmp_path, "sh", "-c", "echo $RANK $LOCAL_RANK $(hostname)")
    assert code == 0, err
    printed = sorted(line.partition("] ")[2] for line in out.splitlines())
    blocks = [(name, local) for name, count in slots.items() for local in range(count)]
    assert printed == [f"{rank} {local} {name}" for rank, (name, local) in enumerate(blocks)]


def test_an_order_that_is_lost_at_once(slurm: Cluster, tmp_path: Path) -> None:
    """The tiny job finds out; nothing of the user's runs."""
    names = shuffled(slurm.lab, 11)
    write_hosts(slurm.lab, tmp_path, names=names)
    code, out, err = launch(
        slurm, tmp_path, "--json", write_script(tmp_path, TOUCH), PATH=disobedient(tmp_path, first=1)
    )
    assert code == 1
    assert "wrong placement: 16 of 16 ranks" in err
    assert f"rank  0: assigned to {names[0]}, runs on {names[-1]}" in err
    assert json.loads(out)["proof"]["held"] is False
    assert not list(tmp_path.glob("ran-*"))
    nothing_is_left(slurm)


def test_an_order_that_is_lost_the_second_time(slurm: Cluster, tmp_path: Path) -> None:
    """An srun that obeys for the tiny job and not for the job is caught too."""
    write_hosts(slurm.lab, tmp_path, names=shuffled(slurm.lab, 12))
    code, _, err = launch(slurm, tmp_path, write_script(tmp_path, TOUCH), PATH=disobedient(tmp_path, first=2))
    assert code == 1, err
    assert "16/16 ranks placed; starting" in err
    assert "wrong placement" in err.splitlines()[-1]
    assert not list(tmp_path.glob("ran-*"))
    assert (tmp_path / "calls").read_text().count("call") == 2
    nothing_is_left(slurm)


def test_the_first_rank_that_fails(slurm: Cluster, tmp_path: Path) -> None:
    """It is named with its host, its exit code and its last words; the others end with it."""
    names = shuffled(slurm.lab, 13, 4)
    write_hosts(slurm.lab, tmp_path, names=names)
    script = "if [ $RANK = 2 ]; then echo last words >&2; exit 7; fi; exec sleep 120"
    code, out, err = launch(slurm, tmp_path, "--json", "sh", "-c", script)
    assert code == 7, err
    failure = json.loads(out)["failure"]
    assert (failure["rank"], failure["host"], failure["code"]) == (2, names[2], 7)
    assert "last words" in failure["last_lines"]
    assert f"rank 2 on {names[2]} was the first to fail, with exit code 7" in err
    nothing_is_left(slurm)


def test_all_hosts_that_lack_the_program_are_named(slurm: Cluster, tmp_path: Path) -> None:
    """srun ends the other ranks when one ends: they have reported by then."""
    names = shuffled(slurm.lab, 25, 4)
    write_hosts(slurm.lab, tmp_path, names=names)
    code, _, err = launch(slurm, tmp_path, "nosuch.py")
    assert code == 1
    assert all(name in err.splitlines()[-1] for name in names), err
    nothing_is_left(slurm)


def test_arguments_and_environment_arrive_unchanged(slurm: Cluster, tmp_path: Path) -> None:
    """No shell sees them, and Slurm's patterns (%h, %t) mean nothing."""
    write_hosts(slurm.lab, tmp_path, names=shuffled(slurm.lab, 14, 2))
    words = ["it's", 'a "b"', "two\nlines", "$(touch evil)", "`touch evil`", "*", "", "%h %t", "--label", "\\n"]
    tell = write_script(tmp_path, "import json, os, sys\nprint(json.dumps([sys.argv[1:], os.environ['SAY']]))\n")
    code, out, err = launch(slurm, tmp_path, "--env", "SAY=$(touch evil)\n'", tell, *words)
    assert code == 0, err
    reports = [json.loads(line.partition("] ")[2]) for line in out.splitlines()]
    assert reports == [[words, "$(touch evil)\n'"]] * 2
    assert not (tmp_path / "evil").exists()


def test_output_is_complete(slurm: Cluster, tmp_path: Path) -> None:
    """Lines longer than srun's buffers, many lines, both streams, each with its rank."""
    write_hosts(slurm.lab, tmp_path, names=shuffled(slurm.lab, 15, 2))
    text = (
        "import sys\nfor size in (0, 1023, 1024, 1025, 2048, 50001): print('\u00e9' * size)\n"
        "for number in range(5000): print('line', number)\nprint('aside', file=sys.stderr)\n"
    )
    code, out, err = launch(slurm, tmp_path, write_script(tmp_path, text))
    assert code == 0, err
    for rank in range(2):
        lines = [line.removeprefix(f"[{rank}] ") for line in out.splitlines() if line.startswith(f"[{rank}]")]
        assert [len(line) for line in lines[:6]] == [0, 1023, 1024, 1025, 2048, 50001]
        assert lines[6:] == [f"line {number}" for number in range(5000)]
        assert f"[{rank}] aside" in err.splitlines()


def test_a_job_of_pytorch_runs_in_the_order(slurm: Cluster, tmp_path: Path) -> None:
    """An all-gather over Gloo finds every rank of the group where the order has it."""
    names = shuffled(slurm.lab, 16, 3)
    write_slots(slurm.lab, tmp_path, dict(zip(names, (1, 2, 1), strict=True)))
    code, out, err = launch(slurm, tmp_path, write_script(tmp_path, GATHER))
    assert code == 0, err
    assert out.split()[1:] == [names[0], names[1], names[1], names[2]]


def test_a_job_that_takes_too_long(slurm: Cluster, tmp_path: Path) -> None:
    """It is ended with the stacks of all ranks, and exit code 124."""
    write_hosts(slurm.lab, tmp_path, names=shuffled(slurm.lab, 17, 3))
    script = write_script(tmp_path, "import time\ndef hang():\n    time.sleep(120)\nprint('begun')\nhang()\n")
    code, out, err = launch(slurm, tmp_path, "--timeout", "8s", "--json", script)
    assert code == 124, err
    assert json.loads(out)["timed_out"] is True
    for rank in range(3):
        assert f'[{rank}]   File "{tmp_path / script}", line 3 in hang' in err
    nothing_is_left(slurm)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGKILL, -signal.SIGKILL)])
def test_a_launch_that_is_ended_leaves_nothing(
    slurm: Cluster, tmp_path: Path, start: Callable[..., Running], number: int, code: int
) -> None:
    """Ctrl-C, or plink's sudden death: no rank and no allocation outlives it."""
    write_hosts(slurm.lab, tmp_path, names=shuffled(slurm.lab, 18, 3))
    script = write_script(tmp_path, "import time\nprint('begun', flush=True)\ntime.sleep(120)\n")
    running = start(
        "launch", "--runner", "slurm", "--order", "given", "--hosts", "hosts.txt", script, **slurm.environment
    )
    running.await_lines(3, "begun", PATIENCE_S)
    running.process.send_signal(number)
    assert running.ends(PATIENCE_S) == code
    nothing_is_left(slurm)


def test_ctrl_c_while_nodes_are_waited_for(slurm: Cluster, tmp_path: Path, start: Callable[..., Running]) -> None:
    """The user is told what is waited for, and nothing stays in the queue."""
    names = shuffled(slurm.lab, 22, 2)
    slurm.ask("salloc", "--no-shell", "--exclusive", "--nodes=1", f"--nodelist={names[0]}", "--job-name=other")
    (other,) = slurm.jobs()
    write_hosts(slurm.lab, tmp_path, names=names)
    running = start(
        "launch", "--runner", "slurm", "--order", "given", "--hosts", "hosts.txt", "true", **slurm.environment
    )
    until(lambda: "queued and waiting for resources" in running.err, PATIENCE_S, "salloc to say that it waits")
    running.process.send_signal(signal.SIGINT)
    assert running.ends(PATIENCE_S) == 130
    until(lambda: slurm.jobs() == [other], PATIENCE_S, "the queue to hold the other job only")
    slurm.ask("scancel", other.split()[0])
    nothing_is_left(slurm)


def test_inside_an_allocation(slurm: Cluster, tmp_path: Path) -> None:
    """Steps of the user's own allocation, which stays; a host outside it is refused by Slurm, and nothing runs."""
    names = shuffled(slurm.lab, 19, 4)
    slurm.ask("salloc", "--no-shell", "--nodes=4", f"--nodelist={','.join(names)}", "--job-name=mine")
    (job_id,) = slurm.ask("squeue", "--noheader", "--format=%A", "--name=mine").split()
    inside = {"SLURM_JOB_ID": job_id, "SLURM_NNODES": "4", "SLURM_JOB_NUM_NODES": "4", "SLURM_NTASKS": "4"}
    write_hosts(slurm.lab, tmp_path, names=names[:3])
    words = ("--launcher-args=--exclusive", "sh", "-c", "echo $SLURM_JOB_ID $(hostname)")
    code, out, err = launch(slurm, tmp_path, *words, **inside)
    assert code == 0, err
    assert sorted(out.splitlines()) == [f"[{rank}] {job_id} {name}" for rank, name in enumerate(names[:3])]
    assert slurm.jobs() == [f"{job_id} RUNNING"]
    other = next(name for name in slurm.lab.hosts.names if name not in names)
    write_hosts(slurm.lab, tmp_path, names=[names[0], other])
    code, _, err = launch(slurm, tmp_path, write_script(tmp_path, TOUCH), **inside)
    assert code == 1
    assert "Requested node configuration is not available" in err
    assert not list(tmp_path.glob("ran-*"))
    slurm.ask("scancel", job_id)
    nothing_is_left(slurm)


def test_options_of_the_users(slurm: Cluster, tmp_path: Path) -> None:
    """They reach salloc as far as it knows them; what Slurm does not like is said in its words."""
    write_hosts(slurm.lab, tmp_path, names=shuffled(slurm.lab, 20, 2))
    ask = ["squeue", "--noheader", "--format=%l %k"]
    code, out, err = launch(slurm, tmp_path, "--launcher-args", "--mpi=none --time=3 --comment='a b'", *ask)
    assert code == 0, err
    assert out.splitlines()[0].endswith("3:00 a b")
    code, _, err = launch(slurm, tmp_path, "--launcher-args=--partition=nowhere", *ask)
    assert code == 1
    assert "Invalid partition name" in err.splitlines()[-1]
    assert plink("launch", "--runner", "local", "--launcher-args=-v", "--hosts", "hosts.txt", "true",
                 cwd=tmp_path).returncode == 2  # fmt: skip


def test_submit(slurm: Cluster, tmp_path: Path) -> None:
    """The same launch from sbatch's queue, with hosts and order as they were, and every word as it was."""
    names = shuffled(slurm.lab, 21, 3)
    write_slots(slurm.lab, tmp_path, dict(zip(names, (1, 2, 1), strict=True)))
    tell = write_script(tmp_path, "import os, sys\nprint(os.uname().nodename, sys.argv[1:], os.environ['SAY'])\n")
    words = ["--env", "SAY=$(x) 'y'", tell, "two\nlines", "it's", "--json"]
    code, out, err = run(slurm, tmp_path, "submit", *words)
    assert code == 0, err
    job_id = out.split()[-1]
    nothing_is_left(slurm)
    printed = (tmp_path / f"slurm-{job_id}.out").read_text()
    for rank, name in enumerate([names[0], names[1], names[1], names[2]]):
        assert f"[{rank}] {name} {words[-3:]!r} $(x) 'y'" in printed.splitlines()
    code, out, err = run(slurm, tmp_path, "submit", "--dry-run", *words)
    assert code == 0, err
    assert "/job.sh\n#!/bin/sh\n#SBATCH --job-name=plink\n#SBATCH --nodes=3\n" in out
    assert slurm.jobs() == []


def test_options_of_a_submission(slurm: Cluster, tmp_path: Path) -> None:
    """They are sbatch's, and plink's own win: jobs run as they do without, and plink says where their output is."""
    names = shuffled(slurm.lab, 24, 3)
    write_slots(slurm.lab, tmp_path, dict(zip(names, (1, 2, 1), strict=True)))
    other = next(name for name in slurm.lab.hosts.names if name not in names)
    options = f"-o 'of %j.txt' --exclusive --no-requeue --export=PATH,PYTHONPATH -c 2 -n 2 -N 2 -w {other} -m block"
    script = "echo $(hostname) $SLURM_CPUS_PER_TASK"
    code, out, err = run(slurm, tmp_path, "submit", "--launcher-args", options, "sh", "-c", script)
    assert code == 0, err
    path = tmp_path / f"of {out.split()[-1]}.txt"
    assert str(path) in err
    nothing_is_left(slurm)
    printed = path.read_text().splitlines()
    assert all(f"[{rank}] {names[k]} 2" in printed for rank, k in enumerate((0, 1, 1, 2))), printed
    code, out, err = run(slurm, tmp_path, "submit", "--launcher-args=--array=0-1", "hostname")
    assert code == 0, err
    nothing_is_left(slurm)
    for task in range(2):
        assert f"[3] {names[2]}" in (tmp_path / f"slurm-{out.split()[-1]}_{task}.out").read_text().splitlines()


def test_an_elastic_job_on_nodes_of_two_jobs(slurm: Cluster, tmp_path: Path, start: Callable[..., Running]) -> None:
    """The reliable host is a node of one job of Slurm's, the transient ones come with another, which is cancelled,
    so that they are warned; hosts that nobody was given are refused. What comes out is exact."""
    program = Path(__file__).parents[1] / "runners/elastic/tally.py"
    names = shuffled(slurm.lab, 23, 4)
    hosts_by_name = slurm.lab.hosts.by_name()
    members = [replace(hosts_by_name[name], tier="transient" if k else "reliable") for k, name in enumerate(names)]
    for file, those in (("hosts.txt", members[:1]), ("more.txt", members[1:3]), ("none.txt", members[3:])):
        (tmp_path / file).write_text(render_hosts(Hosts(tuple(those), slurm.lab.name)))
    slurm.ask("salloc", "--no-shell", "--nodes=1", f"--nodelist={names[0]}", "--job-name=kept")
    slurm.ask("salloc", "--no-shell", "--nodes=2", f"--nodelist={','.join(names[1:3])}", "--job-name=spot")
    job = start(
        "elastic", "run", "--runner", "slurm", "--hosts", "hosts.txt", "--timeout", "100s",
        "--preemption-grace", "4s", "--max-hosts", "4", "--env", "OMP_NUM_THREADS=1", str(program),
        "--out", str(tmp_path / "out.json"), "--shards", "8", "--clocks", "100", "--work-s", "0.05",
        **slurm.environment,
    )  # fmt: skip

    def request(*words: str) -> tuple[int, str]:
        done = plink("elastic", *words, cwd=tmp_path, **slurm.environment)
        return done.returncode, done.stdout + done.stderr

    def state(key: str) -> object:
        code, out = request("status", "last", "--json")
        return json.loads(out).get(key) if code == 0 else None

    until(lambda: (state("begun") or -1) > 3, PATIENCE_S, "the first clocks")  # type: ignore[operator]
    assert request("add", "last", "--hosts", "more.txt")[0] == 0
    until(lambda: state("workers") == 3, PATIENCE_S, "work for all hosts")
    reason = "no running job of yours has this node; allocate it with salloc or sbatch"
    assert request("add", "last", "--hosts", "none.txt") == (
        1,
        f"plink: asked for: {names[3]}\nplink: error: {names[3]}: {reason}\n",
    )
    slurm.ask("scancel", "--name=spot")
    until(lambda: state("workers") == 1, PATIENCE_S, "the others' end")
    assert job.ends(100) == 0, job.err
    result, wanted = json.loads((tmp_path / "out.json").read_text()), expected(8, 100)
    assert {key: result[key] for key in wanted} == wanted
    (log,) = tmp_path.glob(".plink/runs/*/elastic.jsonl")
    lines = [json.loads(line) for line in log.read_text().splitlines()[1:]]
    events = [(line["host"], line["event"]) for line in lines if line["what"] == "host"]
    assert {event for host, event in events if host in names[1:3]} == {"joined", "warned", "released", "left"}, events
    assert not [line for line in lines if line["what"] == "rolled back"]
    slurm.ask("scancel", "--name=kept")
    nothing_is_left(slurm)
