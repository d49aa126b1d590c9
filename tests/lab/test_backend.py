"""`plink launch --backend` on real hosts: two levels by what was probed, and a host without plink."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import Lab, plink
from tests.lab.jobs import Running, write_hosts
from tests.lab.waiting import until

pytestmark = [pytest.mark.lab, pytest.mark.slow]


@pytest.fixture
def healed(small_lab: Lab) -> Iterator[None]:
    """Whatever was done to the lab is undone."""
    yield
    assert plink("lab", "heal", "--name", small_lab.name, cwd=Path("/")).returncode == 0


SUMS = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
x = torch.full((300_000,), float(dist.get_rank()))
for _ in range(3):
    x.fill_(float(dist.get_rank()))
    dist.all_reduce(x)
print(dist.get_backend(), x.unique().tolist())
"""


def test_two_levels_by_what_was_probed(small_lab: Lab, tmp_path: Path) -> None:
    """Probed first, then grouped, then run; without destroy_process_group, as scripts are."""
    write_hosts(small_lab, tmp_path)
    (tmp_path / "sums.py").write_text(SUMS)
    done = plink("probe", "hosts.txt", "--count", "200", "--no-shared-links", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    done = plink("launch", "--hosts", "hosts.txt", "--given", "--backend", "2lha", "--timeout", "60s", "sums.py",
                 cwd=tmp_path)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [f"[{rank}] plink [6.0]" for rank in range(4)]
    assert "[0] plink: all-reduces of 4 ranks by " in done.stderr


def test_a_host_without_plink_is_named(small_lab: Lab, tmp_path: Path) -> None:
    """Its ranks would all-reduce by Gloo, and nobody would know."""
    write_hosts(small_lab, tmp_path)
    (tmp_path / "sums.py").write_text(SUMS)
    bare = tmp_path / "bare"
    bare.mkdir()
    (bare / "python3").symlink_to("/usr/bin/python3")
    done = plink("launch", "--hosts", "hosts.txt", "--given", "--backend", "ring", "--python", str(bare / "python3"),
                 "sums.py", cwd=tmp_path)  # fmt: skip
    assert done.returncode == 1
    assert "--backend needs plink in the Python there (install the wheel: docs/install.md)" in done.stderr
    assert small_lab.hosts.names[0] in done.stderr


STEPS = """
import os, sys, time, torch, torch.distributed as dist
dist.init_process_group("gloo")
rank, began, k = dist.get_rank(), time.time(), 0
over = torch.zeros(1)
while not over:
    data = torch.full((250_000,), float(rank + k % 5))
    dist.all_reduce(data)
    assert data.unique().tolist() == [6.0 + 4 * (k % 5)], (k, data.unique())
    if rank == 0:
        print("step", k, flush=True)
    k += 1
    over.fill_(float(rank == 0 and (os.path.exists(sys.argv[1]) or time.time() - began > 120)))
    dist.broadcast(over, 0)
"""


def test_a_host_that_slows_down_gets_less_to_do(
    small_lab: Lab, tmp_path: Path, start: Callable[..., Running], healed: None
) -> None:
    """In mid-run, however long its steps take; every sum on the way is right."""
    write_hosts(small_lab, tmp_path)
    (tmp_path / "steps.py").write_text(STEPS)
    running = start("launch", "--hosts", "hosts.txt", "--given", "--backend", "flat", "--autotune", "--autotune-every",
                    "500ms", "--timeout", "200s", "--env", "OMP_NUM_THREADS=1", "steps.py", str(tmp_path / "over"),
                    )  # fmt: skip
    slow = small_lab.hosts.names[2]
    running.await_lines(60, "step", 90)
    done = plink("lab", "shape", slow, "--rate", "20mbit", "--name", small_lab.name, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    until(lambda: "all masters dealt anew" in running.err, 60, "that it is noticed")
    (tmp_path / "over").touch()
    assert running.ends(60) == 0, running.err
    (log,) = tmp_path.glob(".plink/runs/*/autotune.jsonl")
    head, *rows = map(json.loads, log.read_text().splitlines())
    load = [np.bincount(np.ravel(row["local_masters"]), minlength=4) for row in rows if "local_masters" in row]
    assert np.bincount(np.ravel(head["local_masters"])).tolist() == [4] * 4
    assert load[0].argmin() == 2
    assert load[-1][2] < 4
    assert [row["epoch"] for row in rows] == sorted(row["epoch"] for row in rows)
    assert plink("autotune", "replay", str(log), cwd=tmp_path).returncode == 0
