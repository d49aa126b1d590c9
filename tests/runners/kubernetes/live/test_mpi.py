"""An MPIJob's pods with the real mpirun: rank k is on the node of rank k whichever worker got which node.

The operator is played by the test: a host file by the workers' numbers, and its environment for the launcher. Workers
are this machine with another host name; what they become instead of sshd is a program that waits, and an ``ssh`` runs
commands under the worker's host name.
"""

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from plink.model.hosts import Host, Hosts
from tests.runners.kubernetes.kubelet import Ended, Kubelet, ended
from tests.runners.kubernetes.written import job, written

pytestmark = [
    pytest.mark.skipif(
        os.geteuid() != 0 or shutil.which("unshare") is None, reason="needs root and unshare, for host names"
    ),
    pytest.mark.skipif(shutil.which("mpirun.openmpi") is None, reason="needs mpirun.openmpi"),
]

HOSTS = Hosts((Host("node-b", "node-b"), Host("node-c", "node-c", slots=2), Host("node-a", "node-a")))
AS = ["unshare", "--uts", "sh", "-c", 'hostname "$1"; shift; exec "$@"', "sh"]
SSH = """#!/bin/sh
while :; do
  case "$1" in -o) shift 2;; -*) shift;; *) break;; esac
done
host=${1%%.*}; shift
exec env -i HOME="$HOME" PATH="$PATH" unshare --uts sh -c 'hostname "$1"; shift; exec sh -c "$*"' sh "$host" "$@"
"""


def run(
    folder: Path, nodes: Sequence[str], *words: str, meddle: str = "", refused: Sequence[int] = ()
) -> tuple[Ended, list[Ended]]:
    """The launcher and the workers, number 0 first, of a job whose workers are on these nodes.

    :param refused: workers that end by themselves, however long after the launcher.
    """
    (folder / "bin").mkdir()
    (folder / "bin" / "ssh").write_text(SSH)
    (folder / "bin" / "ssh").chmod(0o755)
    mpirun = folder / "bin" / "mpirun"
    mpirun.write_text(f'#!/bin/sh\n{meddle}\nexec mpirun.openmpi "$@"\n')
    mpirun.chmod(0o755)
    names = [f"x-worker-{index}" for index in range(len(nodes))]
    (folder / "hostfile").write_text("".join(f"{name}.x.team.svc slots=2\n" for name in names))
    operator = {
        "OMPI_MCA_orte_keep_fqdn_hostnames": "true",
        "OMPI_MCA_orte_default_hostfile": str(folder / "hostfile"),
        "OMPI_MCA_plm_rsh_args": "-o ConnectionAttempts=10",
        "OMPI_MCA_orte_set_default_slots": "2",
        "OMPI_MCA_plm_rsh_agent": str(folder / "bin" / "ssh"),  # a stand-in for ssh on the path
        "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
    }
    documents = written(job(*words, env={"MINE": "a $(b)"}), HOSTS, kind="mpijob", name="x")
    with Kubelet(documents, folder, folder=str(folder), sshd=["/bin/sleep", "600"]) as kubelet:
        launcher = kubelet.start("Launcher", "x-launcher", "anywhere", *AS, "x-launcher", **operator)
        workers = [kubelet.start("Worker", name, node, *AS, name) for name, node in zip(names, nodes, strict=True)]
        done = ended(launcher)
        for number in refused:
            workers[number].wait(timeout=60)
        for worker in workers:
            worker.terminate()
        return done, [ended(worker) for worker in workers]


SHOW = 'echo "$OMPI_COMM_WORLD_RANK $RANK $LOCAL_RANK $(hostname) $MINE $1"'


@pytest.mark.parametrize("nodes", [("node-a", "node-b", "node-c"), ("node-c", "node-a", "node-b")])
def test_ranks_follow_the_nodes_and_not_the_workers_numbers(nodes: tuple[str, ...], tmp_path: Path) -> None:
    launcher, _ = run(tmp_path, nodes, "sh", "-c", SHOW, "sh", "it's $(x)")
    assert launcher.code == 0, launcher.err
    worker = {node: f"x-worker-{index}" for index, node in enumerate(nodes)}
    rest = "a $(b) it's $(x)"
    assert sorted(launcher.lines) == [
        f"0 0 0 {worker['node-b']} {rest}",
        f"1 1 0 {worker['node-c']} {rest}",
        f"2 2 1 {worker['node-c']} {rest}",
        f"3 3 0 {worker['node-a']} {rest}",
    ]
    assert {line["rank"]: (line["host"], line["node"]) for line in launcher.proof} == {
        0: ("node-b", "node-b"), 1: ("node-c", "node-c"), 2: ("node-c", "node-c"), 3: ("node-a", "node-a"),
    }  # fmt: skip
    assert "4/4 ranks placed; starting " in launcher.err


SWAP = """f={folder}/plink-hostfile
case " $* " in *" {when} "*) tac $f > $f.new && mv $f.new $f;; esac"""


def test_an_mpirun_that_places_otherwise_starts_nothing(tmp_path: Path) -> None:
    """As one would that follows the operator's own host file."""
    swap = SWAP.format(folder=tmp_path, when="check")
    launcher, _ = run(tmp_path, ("node-a", "node-b", "node-c"), "touch", str(tmp_path / "ran"), meddle=swap)
    assert launcher.code == 125
    assert "mpirun put rank 0 on the node node-a, which has the ranks 3; nothing was run" in launcher.err
    assert "mpirun did not place every rank on its node" in launcher.err
    assert not (tmp_path / "ran").exists()


def test_an_mpirun_that_places_otherwise_the_second_time_is_ended(tmp_path: Path) -> None:
    swap = SWAP.format(folder=tmp_path, when="rank")
    launcher, _ = run(tmp_path, ("node-a", "node-b", "node-c"), "sleep", "60", meddle=swap)
    assert launcher.code == 125
    assert "on the node node-a, which has the ranks 3; it was not started" in launcher.err


def test_a_worker_on_another_node_ends_the_job(tmp_path: Path) -> None:
    launcher, workers = run(tmp_path, ("node-a", "node-b", "node-x"), "touch", str(tmp_path / "ran"), refused=[2])
    assert launcher.code == 125
    assert "on the node node-x, which is not one of the job's nodes" in launcher.err
    assert workers[2].code == 125
    assert not (tmp_path / "ran").exists()
