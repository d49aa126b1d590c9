"""``plink info``: what a bug report needs, in one go, and nothing that is not for the public."""

import importlib.metadata
import json
import os
import platform
import re
import socket
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import plink as package
from plink.cli import environment_report
from plink.model.storage import read_document
from tests.conftest import NO_LAB, typed

SCHEMA = Path(__file__).parents[2] / "docs" / "schemas" / "info.schema.json"


def info(*words: str, cwd: Path, **env: str) -> dict[str, Any]:
    done = typed("info", "--json", *words, cwd=cwd, **env)
    assert done.returncode == 0, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def program(folder: Path, name: str, body: str) -> None:
    """A program of that name."""
    path = folder / name
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def test_versions_are_those_of_what_is_there(tmp_path: Path) -> None:
    document = info(cwd=tmp_path)
    assert document["plink"]["version"] == package.__version__
    assert document["python"]["version"] == platform.python_version()
    assert document["packages"]["torch"] == importlib.metadata.version("torch")
    assert document["hardware"]["cpus"] == os.cpu_count()
    assert document["hardware"]["memory_bytes"] > 1 << 28
    assert document["entry_points"]["torch.backends"] == "plink.runtime.torch_backend:autoload"
    assert document["lab"]["possible"] is (NO_LAB == "")
    assert document["workspace"] == {}


def test_the_document_is_as_its_schema_says(tmp_path: Path) -> None:
    from jsonschema import Draft202012Validator

    (tmp_path / ".plink").mkdir()
    (tmp_path / ".plink" / "network.json").write_text("{}")
    schema = read_document(SCHEMA)
    Draft202012Validator.check_schema(schema)
    validator = Draft202012Validator(schema)
    for words in ([], ["--full"]):
        document = info(*words, cwd=tmp_path, NCCL_DEBUG="INFO")
        assert list(validator.iter_errors(document)) == []
    for key in ("plink", "packages", "lab"):
        assert list(validator.iter_errors({name: part for name, part in document.items() if name != key}))
    assert list(validator.iter_errors(document | {"schema": "plink.info/9"}))


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
    document = info(cwd=tmp_path)["plink"]
    if not (root / ".git").exists():
        assert document["source"] == "installed"
        return
    head = subprocess.run(["git", "-C", str(root), "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    assert document["source"] == "checkout"
    if head.returncode:  # git reads no checkout of another user
        assert document["commit"] is None
    else:
        assert head.stdout.startswith(document["commit"])


def test_report_names_no_user_or_host(tmp_path: Path) -> None:
    """Not even by a program that names them when it is asked for its version, nor by an error."""
    home = tmp_path / "home" / "gertrude"
    (home / "cluster").mkdir(parents=True)
    bin_folder = home / "bin"
    bin_folder.mkdir()
    program(bin_folder, "mpirun", f'echo "[{socket.gethostname()}:1] Open MPI 9.1 of {home}/x on 10.1.2.3"')
    program(bin_folder, "iperf3", 'echo "no address fe80::1:2:3:4, none at /home/gertrude/y 3.1"; exit 1')
    env = {"HOME": str(home), "PATH": f"{bin_folder}{os.pathsep}{os.environ['PATH']}", "LOGNAME": "gertrude"}
    secrets = {"NCCL_COMM_ID": "10.1.2.3:99", "PLINK_TOKEN": "swordfish", "GLOO_SOCKET_IFNAME": "10.1.2.3/gertrude"}
    done = typed("info", cwd=home / "cluster", **env, **secrets)
    assert done.returncode == 0
    for secret in (socket.gethostname(), "gertrude", "10.1.2.3", "fe80", "swordfish", str(tmp_path)):
        assert not _contains_word(secret, done.stdout), secret
    assert "[<host>:1] Open MPI 9.1 of ~/x on <address>" in done.stdout
    assert "PLINK_TOKEN" in done.stdout
    assert "--full" in done.stderr
    full = info("--full", cwd=home / "cluster", **env, **secrets)
    assert full["names"]["hostname"] == socket.gethostname()
    assert full["names"]["folder"] == str(home / "cluster")
    assert full["pytorch"]["gloo"] is True
    assert "swordfish" not in json.dumps(full)


def _contains_word(word: str, text: str) -> bool:
    """As a word of its own: a machine called ``vm`` is not told by the kernel's name."""
    return re.search(rf"(?<![\w.-]){re.escape(word)}(?![\w])", text) is not None


def test_values_of_variables_that_are_known_to_be_harmless(tmp_path: Path) -> None:
    document = info(cwd=tmp_path, NCCL_DEBUG="INFO", NCCL_SOCKET_IFNAME="^lo,docker0", NCCL_TOPO_FILE="/home/x/t.xml",
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
    document = info(cwd=tmp_path)["workspace"]
    assert document["network.json"]["bytes"] == 20
    assert document["network.json"]["age_s"] > 1e9
    assert document["runs"]["count"] == 1
    shown = typed("info", cwd=tmp_path)
    assert "secret-run" not in shown.stdout
    assert "1 runs" in shown.stdout


def test_a_program_that_hangs_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path, "fping", "exec sleep 60")
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(environment_report, "_VERSION_TIMEOUT_S", 0.2)
    assert "does not answer" in environment_report._programs()["fping"]


def test_complaints_are_no_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Slurm's srun without a configuration says errors only, whatever it is asked for."""
    program(tmp_path, "srun", "echo 'srun: error: no configuration' >&2; exit 1")
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    assert environment_report._programs()["srun"] == "found"
    program(tmp_path, "srun", "echo 'srun: error: no host'; echo 'slurm 22.05.8'")
    assert environment_report._programs()["srun"] == "slurm 22.05.8"
