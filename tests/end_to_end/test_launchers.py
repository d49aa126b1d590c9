"""One rank order through each real launcher: Open MPI, torchrun, Slurm. Ranks say themselves where they are."""

import json
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import Lab, plink
from tests.lab.jobs import write_hosts
from tests.lab.slurm import Cluster, cluster
from tests.lab.traces import guests
from tests.lab.waiting import until
from tests.reaper import remove_folder

pytestmark = pytest.mark.lab
_OPEN_MPI = shutil.which("mpirun") is not None and b"Open MPI" in subprocess.run(
    ["mpirun", "--version"], capture_output=True, check=False
).stdout  # fmt: skip


@pytest.fixture(scope="module")
def slurm(small_lab: Lab) -> Iterator[Cluster]:
    """Slurm on the four hosts."""
    # Not in a folder of pytest's: a socket's path has to be short.
    folder = Path(tempfile.mkdtemp(prefix="plink-slurm-"))
    remove_folder(folder)
    with cluster(small_lab, folder) as made:
        yield made
    shutil.rmtree(folder)


def check_order(lab: Lab, folder: Path, runner: str, **environment: str) -> None:
    """Launch ``hostname`` in an order that is neither the given one nor its reverse."""
    write_hosts(lab, folder)
    order = [lab.hosts.names[k] for k in (2, 0, 3, 1)]
    (folder / "order.txt").write_text("\n".join(order) + "\n")
    words = ("launch", "--hosts", "hosts.txt", "--order", "order.txt", "--runner", runner, "--json", "hostname")
    done = plink(*words, cwd=folder, **environment)
    assert done.returncode == 0, done.stderr
    run = json.loads(done.stdout)
    assert run["proof"]["held"] is True
    assert [row["hostname"] for row in run["proof"]["ranks"]] == order
    for rank, name in enumerate(order):
        assert f"[{rank}] {name}" in done.stderr.splitlines()


@pytest.mark.skipif(not _OPEN_MPI, reason="needs Open MPI")
def test_order_through_open_mpi(small_lab: Lab, tmp_path: Path) -> None:
    check_order(small_lab, tmp_path, "mpirun")
    until(lambda: not guests(small_lab), 200, "daemons and ranks to be gone")


@pytest.mark.extended
def test_order_through_torchrun(small_lab: Lab, tmp_path: Path) -> None:
    check_order(small_lab, tmp_path, "torchrun")
    until(lambda: not guests(small_lab), 200, "torchruns and agents to be gone")


@pytest.mark.slurm
def test_order_through_slurm(slurm: Cluster, tmp_path: Path) -> None:
    check_order(slurm.lab, tmp_path, "slurm", **slurm.environment)
    until(lambda: not slurm.jobs(), 200, "the allocation to be given back")
