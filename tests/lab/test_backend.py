"""`plink launch --backend` on real hosts: two levels by what was probed, and a host without plink."""

from pathlib import Path

import pytest

from tests.conftest import Lab, plink
from tests.lab.jobs import write_hosts

pytestmark = pytest.mark.lab


SUMS = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
x = torch.full((300_000,), float(dist.get_rank()))
for _ in range(3):
    x.fill_(float(dist.get_rank()))
    dist.all_reduce(x)
print(type(dist.group.WORLD).__name__, x.unique().tolist())
"""


def test_two_levels_by_what_was_probed(small_lab: Lab, tmp_path: Path) -> None:
    """Probed first, then grouped, then run; without destroy_process_group, as scripts are."""
    write_hosts(small_lab, tmp_path)
    (tmp_path / "sums.py").write_text(SUMS)
    done = plink("probe", "hosts.txt", "--count", "200", "--no-shared-links", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    done = plink("launch", "--hosts", "hosts.txt", "--order", "given", "--backend", "2lha", "--timeout", "60s",
                 "sums.py", cwd=tmp_path)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [f"[{rank}] PlinkProcessGroup [6.0]" for rank in range(4)]
    assert "[0] plink: all-reduces of 4 ranks by " in done.stderr


def test_a_host_without_plink_is_named(small_lab: Lab, tmp_path: Path) -> None:
    """Its ranks would all-reduce by Gloo, and nobody would know."""
    write_hosts(small_lab, tmp_path)
    (tmp_path / "sums.py").write_text(SUMS)
    bare = tmp_path / "bare"
    bare.mkdir()
    (bare / "python3").symlink_to("/usr/bin/python3")
    done = plink("launch", "--hosts", "hosts.txt", "--order", "given", "--backend", "ring", "--python",
                 str(bare / "python3"), "sums.py", cwd=tmp_path)  # fmt: skip
    assert done.returncode == 1
    assert "--backend needs plink in the hosts' Python (install the wheel: docs/install.md)" in done.stderr
    assert small_lab.hosts.names[0] in done.stderr
