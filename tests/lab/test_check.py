"""``plink check --measure`` on the lab: the model against the clock, by three libraries, and what goes wrong."""

import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.conftest import Lab, plink
from tests.lab.jobs import write_hosts
from tests.runtime.ranks import wait_until

pytestmark = pytest.mark.lab
NO_MPI = shutil.which("mpirun") is None or importlib.util.find_spec("mpi4py") is None
SMALL = ("--size", "2MB", "--orders", "5", "--repeats", "2")


def measured(lab: Lab, folder: Path) -> Path:
    """The folder, with the network of the lab's hosts in it."""
    write_hosts(lab, folder)
    done = plink("probe", "hosts.txt", "--count", "1000", "-o", "cloud.json", cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def sixteen(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return measured(lab, tmp_path_factory.mktemp("sixteen"))


@pytest.fixture(scope="module")
def probed(small_lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four hosts."""
    return measured(small_lab, tmp_path_factory.mktemp("four"))


@pytest.mark.parametrize(
    ("hosts", "algo"),
    [
        ("sixteen", "gloo"),
        pytest.param("probed", "openmpi-ring", marks=pytest.mark.skipif(NO_MPI, reason="needs mpi4py")),
    ],
)
def test_the_model_ranks_orders_as_the_clock_does(hosts: str, algo: str, request: pytest.FixtureRequest) -> None:
    """Five orders of racks whose hosts share what one has: costs differ by a factor of four (of two among four hosts),
    and no two change over but by a great mistake. No all-reduce is faster than the links allow: nothing takes a short
    cut past the lab's network."""
    probed: Path = request.getfixturevalue(hosts)
    words = ("check", "cloud.json", "--measure", "--algo", algo, *SMALL)
    more = ("--min-spearman", "0.6", "--junit", "check.xml", "-o", f"{algo}.json", "--json")
    done = plink(*words, *more, cwd=probed, timeout=400)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    (entry,) = document["checks"]
    assert document["ok"]
    assert entry["spearman"] >= 0.6
    assert entry["model"] == "contention"
    assert json.loads((probed / f"{algo}.json").read_text()) == document
    assert ElementTree.parse(probed / "check.xml").getroot().get("failures") == "0"
    for run in entry["runs"]:
        assert len(run["achieved_s"]) == 2
        assert sorted(run["hosts"]) == sorted(entry["runs"][0]["hosts"])
        n = len(run["hosts"])
        assert min(run["achieved_s"]) > 0.8 * 2 * (n - 1) / n * 2e6 * 8 / 200e6
    # And again without hosts, from what was left.
    again = plink("check", "--results", f"{algo}.json", "--json", cwd=probed)
    assert json.loads(again.stdout)["checks"][0]["spearman"] == entry["spearman"]
    anew = plink("check", "cloud.json", "--results", f"{algo}.json", "--json", cwd=probed)
    assert json.loads(anew.stdout)["checks"][0]["spearman"] == entry["spearman"]


def test_failed_job_is_one_line_and_a_ci_annotation(probed: Path) -> None:
    words = ("check", "cloud.json", "--measure", *SMALL, "--junit", "failed.xml", "-o", "failed.json")
    done = plink(*words, "--env", "MASTER_PORT=nothing", cwd=probed, timeout=120)
    assert done.returncode == 1
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("plink: error:")]
    assert "gloo: rank" in line
    assert "invalid literal for int()" in line
    assert ElementTree.parse(probed / "failed.xml").getroot().get("errors") == "1"
    assert not (probed / "failed.json").exists()


def test_a_job_that_takes_too_long_is_ended(probed: Path) -> None:
    words = ("check", "cloud.json", "--measure", "--size", "64MB", "--timeout", "2s", "-o", "late.json")
    done = plink(*words, cwd=probed, timeout=120)
    assert done.returncode == 1
    assert "--timeout" in done.stderr


@pytest.mark.skipif(shutil.which("nvidia-smi") is not None, reason="there may be a GPU")
def test_nccl_without_a_gpu_names_the_host_and_keeps_a_choice(probed: Path) -> None:
    words = ("check", "cloud.json", "--measure", *SMALL, "--algo", "nccl-ring", "--env", "NCCL_ALGO=Tree")
    done = plink(*words, cwd=probed, timeout=120)
    assert done.returncode == 1
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("plink: error:")]
    assert "on node-" in line
    assert "finds no CUDA GPU here" in line
    assert "NCCL_ALGO=Tree is kept" in done.stderr


def ranks_that_time(folder: Path) -> dict[int, int]:
    """The processes of the job by rank; its workspace is below the folder."""
    processes = {}
    for entry in Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes()
            variables = dict(pair.partition(b"=")[::2] for pair in (entry / "environ").read_bytes().split(b"\0"))
        except OSError:  # no process, or it has ended
            continue
        if variables.get(b"PLINK_TEST_FOLDER") == str(folder).encode() and b"order_timing.py" in words:
            processes[int(variables[b"RANK"])] = int(entry.name)
    return processes


def test_a_rank_that_dies_is_named_and_ends_the_others(probed: Path, tmp_path: Path) -> None:
    """They would wait for it, by NCCL for ever."""
    options = ("--size", "256MB", "--orders", "2", "--repeats", "50", "--env", f"PLINK_TEST_FOLDER={tmp_path}")
    job = subprocess.Popen(
        [sys.executable, "-m", "plink", "check", "cloud.json", "--measure", *options, "-o", "dead.json"],
        cwd=probed, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        wait_until(lambda: len(ranks_that_time(tmp_path)) == 4)
        os.kill(ranks_that_time(tmp_path)[2], signal.SIGKILL)
        _, errors = job.communicate(timeout=60)
    finally:
        job.kill()
    assert job.returncode == 1
    host = json.loads((probed / "cloud.json").read_text())["hosts"][2]["name"]
    assert f"gloo: rank 2 on {host} failed" in errors
    assert ranks_that_time(tmp_path) == {}
