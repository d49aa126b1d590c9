"""A PyTorch job by 2LHA with Autotune: every sum is right while a host slows down and gets less to do."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import Lab, plink
from tests.lab.jobs import Running
from tests.lab.waiting import until

pytestmark = pytest.mark.lab

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
    over.fill_(float(rank == 0 and (os.path.exists(sys.argv[1]) or time.time() - began > 500)))
    dist.broadcast(over, 0)
print("group", type(dist.group.WORLD).__name__)
dist.destroy_process_group()
"""


@pytest.fixture
def healed(small_lab: Lab) -> Iterator[None]:
    """Whatever was done to the lab is undone."""
    yield
    assert small_lab.plink("heal", cwd=Path("/")).returncode == 0


@pytest.mark.extended
def test_slow_host_gets_less_to_aggregate(
    small_lab: Lab, probed: Path, tmp_path: Path, start: Callable[..., Running], healed: None
) -> None:
    (tmp_path / "hosts.txt").write_bytes((probed / "hosts.txt").read_bytes())
    (tmp_path / ".plink").mkdir()
    (tmp_path / ".plink/network.json").write_bytes((probed / ".plink/network.json").read_bytes())
    (tmp_path / "steps.py").write_text(STEPS)
    running = start("launch", "--hosts", "hosts.txt", "--order", "given", "--backend", "2lha",
                    "--autotune", "--set", "autotune-every=300ms", "--timeout", "500s", "--env", "OMP_NUM_THREADS=1",
                    "steps.py", str(tmp_path / "over"))  # fmt: skip
    running.await_lines(15, "step", 200)
    slow = small_lab.hosts.names[2]
    logs = lambda: list(tmp_path.glob(".plink/runs/*/autotune.jsonl"))  # noqa: E731

    def load() -> list[int]:
        """Chunks that each rank aggregates by the newest whole row of the log."""
        rows = [json.loads(line) for line in logs()[0].read_text().split("\n")[:-1]] if logs() else []
        masters = [row["local_masters"] for row in rows if "local_masters" in row]
        return np.bincount(np.ravel(masters[-1]), minlength=4).tolist() if masters else []

    before = until(load, 200, "the first row of the log")
    assert small_lab.plink("shape", slow, "--rate", "20mbit", cwd=tmp_path).returncode == 0
    until(lambda: load() and load()[2] < max(1, before[2]), 200, "the slow host to get less")
    (tmp_path / "over").touch()
    assert running.ends(200) == 0, running.err
    assert "[0] group PlinkProcessGroup" in running.out
    assert plink("runs", "replay", str(logs()[0]), cwd=tmp_path).returncode == 0
