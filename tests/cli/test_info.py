"""``plink info``: what a bug report needs, in one go, and nothing that is not for the public."""

import importlib.metadata
import json
import os
import platform
import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import plink as package
from plink.features.info import run
from plink.model.storage import read_document
from tests.conftest import NO_LAB, typed
from tests.stand_ins import program

SCHEMA = Path(__file__).parents[2] / "docs" / "schemas" / "info.schema.json"


def info(cwd: Path, **env: str) -> dict[str, Any]:
    done = typed("info", "--json", cwd=cwd, **env)
    assert done.returncode == 0, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def test_versions_are_those_of_what_is_there(tmp_path: Path) -> None:
    document = info(tmp_path)
    assert document["plink"].startswith(package.__version__)
    assert document["python"].startswith(platform.python_version())
    assert document["packages"]["torch"] == importlib.metadata.version("torch")
    assert document["cpus"] == len(os.sched_getaffinity(0))
    assert document["memory_bytes"] > 1 << 28
    assert document["entry_points"]["torch.backends"] == "plink.runtime.torch_backend:autoload"
    assert (document["lab_needs"] == []) is (NO_LAB == "")
    assert (document["results"], document["runs"]) == ({}, 0)


def test_the_document_is_as_its_schema_says(tmp_path: Path) -> None:
    from jsonschema import Draft202012Validator

    (tmp_path / ".plink").mkdir()
    (tmp_path / ".plink" / "network.json").write_text("{}")
    schema = read_document(SCHEMA)
    Draft202012Validator.check_schema(schema)
    validator = Draft202012Validator(schema)
    document = info(tmp_path, NCCL_DEBUG="INFO")
    assert list(validator.iter_errors(document)) == []
    assert list(validator.iter_errors({name: part for name, part in document.items() if name != "plink"}))


def test_nothing_is_imported_for_it(tmp_path: Path) -> None:
    """Of the libraries that it names; so that it works where one of them is what is broken."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "plink", "info"], cwd=tmp_path, capture_output=True, text=True,
        check=True,
    )  # fmt: skip
    lines = [line for line in done.stderr.splitlines() if line.startswith("import time:")]
    imported = {line.rpartition("|")[2].strip().partition(".")[0] for line in lines}
    assert imported & {"torch", "numpy", "numba", "ortools", "z3", "paramiko", "scapy", "sklearn"} == set()


def test_the_commit_of_a_checkout(tmp_path: Path) -> None:
    root = Path(package.__file__).parents[1]
    commit = re.search(r"commit (\w+)", info(tmp_path)["plink"])
    head = subprocess.run(["git", "-C", str(root), "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    if head.returncode or not (root / ".git").exists():  # git reads no checkout of another user
        assert commit is None
    else:
        assert commit is not None
        assert head.stdout.startswith(commit[1])


def test_report_names_no_user_or_host(tmp_path: Path) -> None:
    """Not even by a program that names them when it is asked for its version."""
    home = tmp_path / "home" / "gertrude"
    (home / "cluster").mkdir(parents=True)
    bin_folder = home / "bin"
    bin_folder.mkdir()
    program(bin_folder, "mpirun", f'echo "[{socket.gethostname()}:1] on 10.1.2.3 Open MPI 9.1rc2 of {home}/x"')
    program(bin_folder, "iperf3", 'echo "no address fe80::1:2:3:4, none at /home/gertrude/y 3.1"; exit 1')
    env = {"HOME": str(home), "PATH": f"{bin_folder}{os.pathsep}{os.environ['PATH']}", "LOGNAME": "gertrude"}
    secrets = {"NCCL_COMM_ID": "10.1.2.3:99", "PLINK_TOKEN": "swordfish", "GLOO_SOCKET_IFNAME": "10.1.2.3/gertrude"}
    done = typed("info", cwd=home / "cluster", **env, **secrets)
    assert done.returncode == 0
    for secret in (socket.gethostname(), "gertrude", "10.1.2", "fe80", "swordfish", str(tmp_path)):
        # As a word of its own: a machine called `vm` is not told by the kernel's name.
        assert re.search(rf"(?<![\w.-]){re.escape(secret)}(?![\w])", done.stdout) is None, secret
    assert re.search(r"mpirun +9\.1rc2\n", done.stdout)
    assert re.search(r"iperf3 +3\.1\n", done.stdout)
    assert re.search(r"PLINK_TOKEN +\(set\)\n", done.stdout)


def test_values_of_variables_that_are_known_to_be_harmless(tmp_path: Path) -> None:
    document = info(tmp_path, NCCL_DEBUG="INFO", NCCL_SOCKET_IFNAME="^lo,docker0", NCCL_TOPO_FILE="/home/x/t.xml",
                 PLINK_ORDER="", HOME_NCCL="1")["environment"]  # fmt: skip
    assert document["NCCL_DEBUG"] == "INFO"
    assert document["NCCL_SOCKET_IFNAME"] == "^lo,docker0"
    assert document["NCCL_TOPO_FILE"] == "(set)"
    assert document["PLINK_ORDER"] == "(empty)"
    assert "HOME_NCCL" not in document


def test_workspace_contents(tmp_path: Path) -> None:
    folder = tmp_path / ".plink"
    (folder / "runs" / "secret-run").mkdir(parents=True)
    (folder / "runs" / "secret-run" / "run.json").write_text("{}")
    (folder / "network.json").write_text("{}" * 10)
    os.utime(folder / "network.json", (0, 0))
    document = info(tmp_path)
    assert document["results"]["network.json"]["bytes"] == 20
    assert document["results"]["network.json"]["age_s"] > 1e9
    assert document["runs"] == 1
    assert "secret-run" not in typed("info", cwd=tmp_path).stdout


def test_programs_that_hang_or_complain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Slurm's srun without a configuration says errors only, whatever it is asked for."""
    program(tmp_path, "fping", "exec sleep 60")
    program(tmp_path, "srun", "echo 'srun: error: no configuration' >&2; exit 1")
    program(tmp_path, "tc", "echo 'tc: error: no host'; echo 'tc 22.05.8'")
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(run, "_VERSION_TIMEOUT_S", 0.5)
    programs = run.info().programs
    assert (programs["fping"], programs["srun"], programs["tc"]) == ("found", "found", "22.05.8")
