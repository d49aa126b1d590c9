"""``plink probe hosts.txt``, ``plink reorder --algo ring``, ``plink launch train.py``: as a user types them."""

import json
from pathlib import Path

import numpy as np
import pytest

from plink.model.network import read_network
from tests.conftest import Lab, plink
from tests.lab.jobs import write_script
from tests.lab.traces import guests
from tests.lab.waiting import until

pytestmark = pytest.mark.lab

SCRIPT = """
import os, sys
print("I am", os.environ["RANK"], "on", os.uname().nodename, *sys.argv[1:])
"""


def test_network_file_holds_every_pair(small_lab: Lab, probed: Path) -> None:
    network = read_network(probed / ".plink/network.json")
    assert network.hosts == small_lab.hosts
    assert np.isfinite(network.latency_us).all()
    assert network.errors == []
    assert {path.name for path in (probed / ".plink").iterdir()} >= {".gitignore", "network.json"}


def test_ranks_run_in_the_order_that_was_found(small_lab: Lab, probed: Path) -> None:
    """The order keeps rack mates adjacent where the round trips say so; rank k runs on the k-th host of it."""
    done = plink("reorder", "--algo", "ring", cwd=probed)
    assert done.returncode == 0, done.stderr
    assert "read .plink/network.json (" in done.stderr
    order = json.loads((probed / ".plink/order.json").read_text())
    assert sorted(order["hosts"]) == small_lab.hosts.names
    assert order["lower_bound"] <= order["cost"] <= order["baseline"]["given"]
    write_script(probed, SCRIPT)
    done = plink("launch", "train.py", "--epochs", "3", cwd=probed)
    assert done.returncode == 0, done.stderr
    expected = {f"[{rank}] I am {rank} on {host} --epochs 3" for rank, host in enumerate(order["hosts"])}
    assert set(done.stdout.splitlines()) == expected
    until(lambda: not guests(small_lab), 200, "agents and sessions to be gone")


def test_swapped_hosts_are_caught_before_the_program_runs(small_lab: Lab, probed: Path, tmp_path: Path) -> None:
    """Two hosts got each other's address since they were measured: the placement check fails and nothing runs."""
    first, second = (small_lab.hosts.members[k].address for k in (0, 1))
    swapped = (probed / "hosts.txt").read_text().replace(first, "@").replace(second, first).replace("@", second)
    (tmp_path / "hosts.txt").write_text(swapped)
    (tmp_path / ".plink").mkdir()
    (tmp_path / ".plink/network.json").write_bytes((probed / ".plink/network.json").read_bytes())
    done = plink("launch", "--hosts", "hosts.txt", "--order", "given", "touch", "ran", cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    names = small_lab.hosts.names
    for rank, actual in enumerate((names[1], names[0], names[2], names[3])):
        line = next(line for line in done.stderr.splitlines() if f"rank {rank}:" in line)
        assert f"assigned to {names[rank]}, runs on {actual}" in line
        assert ("<-" in line) == (rank < 2)
    assert "nothing was run" in done.stderr.splitlines()[-1]
    assert not (tmp_path / "ran").exists()
