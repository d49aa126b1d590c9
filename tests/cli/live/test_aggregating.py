"""`plink launch --backend`: ranks of this machine aggregate by it."""

from pathlib import Path

import pytest

from tests.features.launch.test_backend import STAR, local, write_schedule

SUMS = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
x = torch.full((50_000,), float(dist.get_rank()))
dist.all_reduce(x)
print(type(dist.group.WORLD).__name__, x[0].item(), x[-1].item())
dist.destroy_process_group()
"""


@pytest.mark.parametrize("backend", ["ring", "FILE"])
def test_an_unmodified_program_aggregates_by_it(backend: str, tmp_path: Path) -> None:
    """By an algorithm's name, or by a schedule of one's own; rank 0 says so."""
    (tmp_path / "sums.py").write_text(SUMS)
    name = write_schedule(tmp_path, STAR) if backend == "FILE" else backend
    code, out, err = local(tmp_path, name)
    assert code == 0, err
    assert sorted(out.splitlines()) == [f"[{rank}] PlinkProcessGroup 3.0 3.0" for rank in range(3)]
    algo = "star" if backend == "FILE" else backend
    assert f"plink: all-reduces of any size: {algo}" in err
    assert "[0] plink: all-reduces of 3 ranks by " in err
