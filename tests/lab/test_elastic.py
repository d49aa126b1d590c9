"""An elastic job on real hosts, over real SSH, as its user sees it."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from plink.model.hosts import render_hosts
from tests.conftest import Lab, lab_up, plink
from tests.lab.jobs import Running
from tests.lab.waiting import until
from tests.runners.elastic.tally import expected

pytestmark = pytest.mark.lab

PROGRAM = Path(__file__).parents[1] / "runners/elastic/tally.py"
SHARDS, CLOCKS = 8, 120


def status(folder: Path) -> dict[str, Any]:
    """By the command; empty before there is any."""
    done = plink("elastic", "status", "last", "--json", cwd=folder)
    document: dict[str, Any] = json.loads(done.stdout) if done.returncode == 0 else {}
    return document


def test_two_racks_that_lose_each_other_for_10_s(small_lab: Lab, tmp_path: Path, start: Callable[..., Running]) -> None:
    """The launcher hears hosts of both all the time, so nobody is given up; what comes out is exact."""
    hosts = [replace(host, tier="transient" if k else "reliable") for k, host in enumerate(small_lab.hosts.members)]
    (tmp_path / "hosts.txt").write_text(render_hosts(replace(small_lab.hosts, members=tuple(hosts))))
    job = start(
        "elastic", "run", "--hosts", "hosts.txt", "--timeout", "100s", "--env", "OMP_NUM_THREADS=1",
        str(PROGRAM), "--out", str(tmp_path / "out.json"), "--shards", str(SHARDS), "--clocks", "60",
        "--work-s", "0.05",
    )  # fmt: skip
    until(lambda: status(tmp_path).get("begun", -1) > 3, 40, "the first clocks")
    done = plink("lab", "cut", "rack0", "--from", "rack1", "--name", small_lab.name, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    try:
        begun = status(tmp_path)["begun"]
        time.sleep(10)
        assert status(tmp_path)["begun"] <= begun + 2
    finally:
        plink("lab", "heal", "--name", small_lab.name, cwd=tmp_path)
    assert job.ends(100) == 0, job.err
    result, wanted = json.loads((tmp_path / "out.json").read_text()), expected(SHARDS, 60)
    assert {key: result[key] for key in wanted} == wanted


def test_interrupted_job_is_restored_on_hosts_with_private_folders(
    tmp_path: Path, start: Callable[..., Running]
) -> None:
    """Only the two reliable hosts share the folder of checkpoints, as docs/elastic.md says."""
    checkpoints = tmp_path / "kept"
    checkpoints.mkdir()
    name = f"p{os.getpid()}"
    words = ("--racks", "2", "--hosts-per-rack", "2", "--private-folder", f"{checkpoints}=node-[03-04]")
    try:
        lab = lab_up(name, *words)
        hosts = [replace(host, tier="transient" if k > 1 else "reliable") for k, host in enumerate(lab.hosts.members)]
        (tmp_path / "hosts.txt").write_text(render_hosts(replace(lab.hosts, members=tuple(hosts))))
        job_words = ("elastic", "run", "--hosts", "hosts.txt", "--timeout", "100s")
        settings = ("--stage-thresholds", "0.5:0.9", "--checkpoint", str(checkpoints), "--checkpoint-every", "1s")
        program = (str(PROGRAM), "--out", str(tmp_path / "out.json"), "--shards", str(SHARDS), "--clocks", "200")
        first = start(*job_words, *settings, *program, "--work-s", "0.05")
        until(lambda: (status(tmp_path).get("checkpoint") or -1) > 5, 60, "a checkpoint")
        assert status(tmp_path)["stage"] == 3
        first.process.send_signal(signal.SIGINT)
        assert first.ends(30) == 130
        again = start(*job_words, "--restore", str(checkpoints), *settings, *program)
        assert again.ends(100) == 0, again.err
    finally:
        plink("lab", "down", "--name", name, cwd=tmp_path)
    result, wanted = json.loads((tmp_path / "out.json").read_text()), expected(SHARDS, 200)
    assert {key: result[key] for key in wanted} == wanted


def node(lab: Lab, name: str) -> int:
    """The process of a host's node."""
    words = ["ip", "netns", "pids", f"plink.{lab.name}.{name}"]
    for pid in subprocess.run(words, capture_output=True, text=True, check=True).stdout.split():
        if b"elastic.node" in Path(f"/proc/{pid}/cmdline").read_bytes():
            return int(pid)
    raise AssertionError(f"no node on {name}")
