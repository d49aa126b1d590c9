"""An elastic job on real hosts: one comes, one is evicted, one dies, and the result is exact."""

import json
import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from plink.model.hosts import render_hosts
from tests.conftest import Lab, typed
from tests.lab.jobs import Running
from tests.lab.test_elastic import PROGRAM, node
from tests.lab.waiting import until
from tests.runners.elastic.tally import expected

pytestmark = pytest.mark.lab
SHARDS, WAIT_S = 8, 150


def status(folder: Path) -> dict[str, Any]:
    """What ``plink elastic status`` says; empty before there is a job that answers."""
    done = typed("elastic", "status", "last", "--json", cwd=folder)
    document: dict[str, Any] = json.loads(done.stdout) if done.returncode == 0 else {}
    return document


def members(folder: Path) -> set[str]:
    """Hosts of the job."""
    return {host["name"] for host in status(folder).get("hosts", [])}


def test_exact_after_an_eviction_and_a_death(small_lab: Lab, tmp_path: Path, start: Callable[..., Running]) -> None:
    reliable, *others = small_lab.hosts.members
    first = (replace(reliable, tier="reliable"), *(replace(host, tier="transient") for host in others[:2]))
    for name, group in (("hosts.txt", first), ("more.txt", (replace(others[2], tier="transient"),))):
        (tmp_path / name).write_text(render_hosts(replace(small_lab.hosts, members=group)))
    job = start(
        "elastic", "run", "--hosts", "hosts.txt", "--max-hosts", "8", "--timeout", "500s",
        "--env", "OMP_NUM_THREADS=1", str(PROGRAM), "--out", str(tmp_path / "out.json"),
        "--shards", str(SHARDS), "--clocks", "1000000", "--until", str(tmp_path / "over"), "--work-s", "0.02",
    )  # fmt: skip
    until(lambda: status(tmp_path).get("begun", -1) > 3, WAIT_S, "the first clocks")
    done = typed("elastic", "add", "last", "--hosts", "more.txt", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    until(lambda: others[2].name in members(tmp_path), WAIT_S, "the added host to join")
    done = typed("elastic", "evict", "last", others[0].name, "--in", "20s", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    until(lambda: others[0].name not in members(tmp_path), WAIT_S, "the evicted host to leave")
    os.kill(node(small_lab, others[1].name), signal.SIGKILL)
    (tmp_path / "over").touch()  # which takes more clocks, and each the shards of the host that died
    assert job.ends(WAIT_S) == 0, job.err
    result = json.loads((tmp_path / "out.json").read_text())
    wanted = expected(SHARDS, result["n"][0][0])
    assert {key: result[key] for key in wanted} == wanted
