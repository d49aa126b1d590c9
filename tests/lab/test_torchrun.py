"""`plink launch --runner torchrun`: one torchrun a host, its workers held at the gate until the order is proven."""

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import Lab, plink
from tests.lab.jobs import write_hosts, write_script
from tests.lab.traces import guests
from tests.lab.waiting import until

pytestmark = pytest.mark.lab

GATHER = """
import json, os
import torch.distributed as dist
dist.init_process_group("gloo")
found = [None] * dist.get_world_size()
dist.all_gather_object(found, [dist.get_rank(), os.uname().nodename])
print(json.dumps(found))
dist.destroy_process_group()
"""


def write_order(lab: Lab, folder: Path, seed: int) -> list[str]:
    """A random order of the lab's hosts, two slots each."""
    write_hosts(lab, folder, slots=2)
    names = lab.hosts.names
    order = random.Random(seed).sample(names, len(names))
    (folder / "order.txt").write_text("\n".join(order) + "\n")
    return order


WORDS = ("launch", "--hosts", "hosts.txt", "--order", "order.txt", "--runner", "torchrun")


def test_ranks_follow_the_order(small_lab: Lab, tmp_path: Path) -> None:
    """Every rank on its host, told by the ranks themselves over Gloo, by the proof, and by the commands rehearsed."""
    order = write_order(small_lab, tmp_path, 11)
    script = write_script(tmp_path, GATHER)
    done = plink(*WORDS, "--json", script, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    run = json.loads(done.stdout)
    assert [row["hostname"] for row in run["proof"]["ranks"]] == [host for host in order for _ in range(2)]
    expected = [[rank, order[rank // 2]] for rank in range(8)]
    rank_lines = [line for line in done.stderr.splitlines() if line.startswith("[") and "[[" in line]
    assert sorted(line[1] for line in rank_lines) == list("01234567")
    assert all(json.loads(line.partition("] ")[2]) == expected for line in rank_lines)
    until(lambda: not guests(small_lab), 10, "torchruns and agents to be gone")


# Two hosts are given each other's node rank.
BROKEN = """
import sys
from plink.cli.entry import run
from runners.job import fleet_runner
real = fleet_runner.torchrun_commands
swap = {"--node-rank=1": "--node-rank=2", "--node-rank=2": "--node-rank=1"}
fleet_runner.torchrun_commands = lambda *args: (
    (name, [swap.get(word, word) for word in words], env) for name, words, env in real(*args))
sys.exit(run(sys.argv[1:]))
"""


def test_a_broken_order_is_caught(small_lab: Lab, tmp_path: Path) -> None:
    """What torchrun was told differently is not believed: nothing of the user's is run."""
    order = write_order(small_lab, tmp_path, 12)
    words = [sys.executable, "-c", BROKEN, *WORDS, "touch", "ran"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1
    assert f"rank 2, assigned to {order[1]}, is on {order[2]}: started on {order[2]}" in done.stderr
    assert not (tmp_path / "ran").exists()
    until(lambda: not guests(small_lab), 10, "torchruns and agents to be gone")


def test_the_worker_that_failed_is_named(small_lab: Lab, tmp_path: Path) -> None:
    """Its rank, host, code and last words; the others end."""
    order = write_order(small_lab, tmp_path, 13)
    text = (
        "import os, sys, time\nif os.environ['RANK'] == '5':\n    print('last words')\n    sys.exit(3)\ntime.sleep(99)"
    )
    done = plink(*WORDS, write_script(tmp_path, text), cwd=tmp_path)
    assert done.returncode == 3, done.stderr
    assert f"rank 5 on {order[2]} was the first to fail, with exit code 3" in done.stderr
    assert "[5] last words" in done.stdout
    until(lambda: not guests(small_lab), 10, "torchruns and agents to be gone")
