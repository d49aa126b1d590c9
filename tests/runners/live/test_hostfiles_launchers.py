"""The launchers themselves read what is written for them, and put every rank where it was asked for.

Remote hosts are played by this machine: an ``ssh`` that runs the command in a UTS namespace with the host's name, which
is what the ranks then print. Launchers that are missing are skipped.
"""

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from plink.model.hosts import Host, Hosts
from plink.model.order import RankOrder
from runners.hostfiles import render
from tests.ports import free_port, free_ports
from tests.stand_ins import program

HOSTS = Hosts((Host("hc", "hc"), Host("ha", "ha", slots=2), Host("hb", "hb")))
ORDER = RankOrder(algo="ring", hosts=("hc", "ha", "hb"))
PLACES = ["0 hc", "1 ha", "2 ha", "3 hb"]
TIMEOUT_S = 120.0

SSH = """\
while [ "${1#-}" != "$1" ]; do shift; done
host=$1; shift
exec unshare --uts sh -c 'hostname "$1"; shift; exec sh -c "$*"' sh "$host" "$@"
"""

needs_hosts = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("unshare") is None, reason="needs root and unshare, for host names"
)


def needs(launcher: str) -> pytest.MarkDecorator:
    """Skipped where the launcher is not installed."""
    return pytest.mark.skipif(shutil.which(launcher) is None, reason=f"needs {launcher}")


def ssh(folder: Path) -> str:
    """An ``ssh`` whose hosts are all here."""
    return str(program(folder, "ssh", SSH))


def written(name: str, folder: Path, hosts: Hosts = HOSTS) -> str:
    """The file of a format."""
    path = folder / name
    path.write_text(render(name, hosts, ORDER))
    return str(path)


def lines(*words: str) -> list[str]:
    """What a launcher's ranks printed, sorted."""
    done = subprocess.run(words, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stderr
    return sorted(done.stdout.splitlines())


@needs_hosts
@needs("mpirun.openmpi")
@pytest.mark.parametrize(
    ("name", "options"), [("openmpi", ["--map-by", "seq", "--hostfile"]), ("openmpi-rankfile", ["--rankfile"])]
)
def test_open_mpi(name: str, options: list[str], tmp_path: Path) -> None:
    if name == "openmpi-rankfile" and (os.cpu_count() or 1) < 2:
        pytest.skip("needs a core for each of a host's ranks")
    launch = ["mpirun.openmpi", "--allow-run-as-root", "--mca", "plm_rsh_agent", ssh(tmp_path), *options]
    say = "echo $OMPI_COMM_WORLD_RANK $(hostname)"
    assert lines(*launch, written(name, tmp_path), "-n", "4", "sh", "-c", say) == PLACES


@needs_hosts
@needs("mpiexec.hydra")
def test_mpich(tmp_path: Path) -> None:
    launch = ["mpiexec.hydra", "-launcher", "ssh", "-launcher-exec", ssh(tmp_path), "-f", written("mpich", tmp_path)]
    assert lines(*launch, "-n", "4", "sh", "-c", "echo $PMI_RANK $(hostname)") == PLACES


def together(commands: list[list[str]], **environment: str) -> list[str]:
    """What each of the commands printed, run at the same time; all must have ended well."""
    started = [
        subprocess.Popen(
            words,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
        )
        for words in commands
    ]
    try:
        printed = [process.communicate(timeout=TIMEOUT_S) for process in started]
    finally:
        for process in started:
            process.kill()
    assert [process.returncode for process in started] == [0] * len(started), [error for _, error in printed]
    return [out for out, _ in printed]


# Rank by rank, where it stands: gathered, so that it is the ranks of the process group and not the variables only.
GATHER = """
import os, torch.distributed as dist
dist.init_process_group("gloo")
mine = (os.environ["PLACE"], int(os.environ["LOCAL_RANK"]))
all_of_them = [None] * dist.get_world_size()
dist.all_gather_object(all_of_them, mine)
if dist.get_rank() == 0:
    print(all_of_them)
dist.barrier()
dist.destroy_process_group()  # without it a rank that is torn down late may abort
"""
GATHERED = "[('hc', 0), ('ha', 0), ('ha', 1)]\n"
TWO = Hosts((Host("hc", "127.0.0.1"), Host("ha", "127.0.0.2", slots=2)))


@pytest.mark.parametrize("name", ["torchrun", "torchrun-env"])
def test_torchrun(name: str, tmp_path: Path) -> None:
    """Static rendezvous keeps the order; hosts with different numbers of slots too."""
    program = tmp_path / "gather.py"
    program.write_text(GATHER)
    text = render(name, TWO, ORDER).replace("29500", str(free_port()))
    commands = []
    for line in text.splitlines():
        command, place = line.split("  # ")
        script = command if name == "torchrun" else f'env {command} {sys.executable} "$@"'
        commands.append(["env", f"PLACE={place}", "sh", "-c", script, "sh", str(program)])
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    assert "".join(together(commands, PATH=path, GLOO_SOCKET_IFNAME="lo")) == GATHERED


TRAIN = """
import sys, numpy as np, lightgbm as lgb
machines, port = sys.argv[1], int(sys.argv[2])
x = np.random.default_rng(port).normal(size=(200, 3))
options = dict(objective="binary", tree_learner="data", num_threads=1, num_leaves=4, verbosity=2, machines=machines,
               num_machines=machines.count(",") + 1, local_listen_port=port)
lgb.train(options, lgb.Dataset(x, (x[:, 0] > 0).astype(int)), num_boost_round=1)
"""


@pytest.mark.skipif(importlib.util.find_spec("lightgbm") is None, reason="needs lightgbm")
def test_lightgbm(tmp_path: Path) -> None:
    """Each process takes its line's number for its rank; the ports are put out of order to tell it from their order."""
    text = render("lightgbm", Hosts((Host("hc", "127.0.0.1", slots=3),)), ORDER)
    low, middle, high = sorted(free_ports(3))
    ports = [high, low, middle]
    places = [line.split()[0] for line in text.splitlines()]
    machines = ",".join(f"{place}:{port}" for place, port in zip(places, ports, strict=True))
    for rank, printed in enumerate(together([[sys.executable, "-c", TRAIN, machines, str(port)] for port in ports])):
        assert f"Local rank: {rank}, total number of machines: 3" in printed
