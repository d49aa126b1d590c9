"""`plink launch --autotune` with ranks on this machine, and `plink runs replay` of what it kept."""

import json
from pathlib import Path

from tests.conftest import plink

SUMS = """
import dataclasses, os, time, torch, torch.distributed as dist
from plink.runtime.allreduce.aggregation import aggregation_from_environment
# Whichever is faster on this machine: the engine does it.
given = aggregation_from_environment()
os.environ |= dataclasses.replace(given, smallest_bytes=0).to_environment()
dist.init_process_group("gloo")
rank, began, k = dist.get_rank(), time.time(), 0
while True:
    data = torch.full((200_000,), float(rank + k))
    dist.all_reduce(data)
    assert data.unique().tolist() == [6.0 + 4 * k], (k, data.unique())
    k += 1
    over = torch.tensor([float(time.time() - began > 6)])
    dist.broadcast(over, 0)
    if over:
        break
print("rounds", k)
dist.destroy_process_group()
"""


def test_a_job_that_is_tuned_is_kept_and_replayed(tmp_path: Path) -> None:
    """Sums are right, whatever is decided on a machine as busy as this one."""
    (tmp_path / "sums.py").write_text(SUMS)
    done = plink("launch", "--runner", "local", "--slots", "4", "--backend", "flat", "--autotune",
                 "--set", "autotune-every=200ms", "--timeout", "100s", "sums.py", cwd=tmp_path)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert len({line[4:] for line in done.stdout.splitlines()}) == 1, done.stdout
    assert "autotune: ranks report throughput every 0.2 s" in done.stderr
    (log,) = tmp_path.glob(".plink/runs/*/autotune.jsonl")
    head, *stretches = map(json.loads, log.read_text().splitlines())
    assert head["schema"] == "plink.autotune/1"
    assert head["hosts"] == ["localhost"] * 4
    assert len(stretches) > 2
    assert all(row["seconds"] > 0 and row["action"] and row["reason"] for row in stretches)
    assert sum(row["jobs"] for row in stretches) <= int(done.stdout.split()[-1])
    for name in ("last", str(log)):
        replayed = plink("runs", "replay", name, "--json", cwd=tmp_path)
        assert replayed.returncode == 0, replayed.stderr
        report = json.loads(replayed.stdout)
        assert report["as_logged"] is True
        assert [row["action"] for row in report["stretches"]] == [row["action"] for row in stretches]
    shown = plink("runs", "replay", "last", cwd=tmp_path)
    assert "load max/min" in shown.stdout
    again = plink("runs", "rerun", "last", "--timeout", "100s", cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    assert len(list(tmp_path.glob(".plink/runs/*/autotune.jsonl"))) == 2
    changed = log.read_text().replace(stretches[0]["action"], "finetune", 1)
    log.write_text(changed)
    differs = plink("runs", "replay", str(log), cwd=tmp_path)
    assert differs.returncode == 1
    assert ":2: finetune was decided then, " in differs.stderr
