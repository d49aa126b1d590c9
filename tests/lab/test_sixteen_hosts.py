"""16 hosts in a random order: every rank runs where the order says, and a broken order is caught before it runs.

So for the ranks that plink starts itself and for its torchruns.
"""

import json
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.files import write
from tests.conftest import Lab, plink
from tests.lab.jobs import write_hosts, write_script
from tests.lab.test_proof import ran
from tests.lab.traces import guests
from tests.lab.waiting import until

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

pytestmark = pytest.mark.lab

SEED = 3
ENDS_S = 240
# Says which rank it is and at which address, which no two hosts share, and leaves a trace of having run.
WHO = """
import json, os, socket
open(f"ran-{os.environ['RANK']}", "w").close()
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
    sock.connect((os.environ["MASTER_ADDR"], 9))
    print(json.dumps([int(os.environ["RANK"]), sock.getsockname()[0]]))
"""
Order = list[str]


@pytest.fixture(autouse=True)
def _nothing_left(lab: Lab) -> Iterator[None]:
    """However a job of this file ended, nothing of it runs on a host a little later."""
    yield
    until(lambda: not guests(lab), 10, "agents, torchruns and ranks to be gone")


def prepared(lab: Lab, folder: Path) -> Order:
    """A random order of the 16 hosts, beside their hosts file, who they are, and the program."""
    write_hosts(lab, folder)
    write_script(folder, WHO)
    names = lab.hosts.names
    (folder / ".plink").mkdir()
    machines = [{"hostname": host.name, "addresses": [host.address]} for host in lab.hosts]
    network = {"hosts": [host.to_json() for host in lab.hosts], "lab": lab.name, "machines": machines}
    latency = [[0 if a == b else 100 for a in names] for b in names]
    document = {"schema": "plink.network/1", "latency_us": latency, "bandwidth_gbps": None}
    write(folder / ".plink" / "network.json", document | network)
    order = random.Random(SEED).sample(names, len(names))
    write_order(folder, "order.txt", order)
    return order


def write_order(folder: Path, name: str, order: Order) -> None:
    (folder / name).write_text("\n".join(order) + "\n")


def addresses(lab: Lab, order: Order) -> list[str]:
    hosts_by_name = lab.hosts.by_name()
    return [hosts_by_name[name].address for name in order]


def words(runner: str, *more: str) -> tuple[str, ...]:
    return "launch", "--hosts", "hosts.txt", "--order", "order.txt", "--runner", runner, *more


@pytest.mark.parametrize("runner", ["ssh", "torchrun"])
def test_the_proof_and_the_ranks_agree_with_the_order(runner: str, lab: Lab, tmp_path: Path) -> None:
    order = prepared(lab, tmp_path)
    done = plink(*words(runner, "--json", "train.py"), cwd=tmp_path, timeout=ENDS_S)
    assert done.returncode == 0, done.stderr
    run = json.loads(done.stdout)
    assert run["proof"]["held"] is True
    assert [row["rank"] for row in run["proof"]["ranks"]] == list(range(16))
    assert [row["host"] for row in run["proof"]["ranks"]] == order
    assert [row["hostname"] for row in run["proof"]["ranks"]] == order
    assert [row["addresses"] for row in run["proof"]["ranks"]] == [[address] for address in addresses(lab, order)]
    logs = tmp_path / ".plink" / "runs" / run["id"] / "logs"
    reports = [json.loads((logs / f"rank-{rank}.out").read_text()) for rank in range(16)]
    assert reports == [list(pair) for pair in enumerate(addresses(lab, order))]


def test_swapped_torchrun_node_ranks_are_caught(lab: Lab, tmp_path: Path) -> None:
    """Two hosts' torchruns get each other's node rank."""
    order = prepared(lab, tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", BROKEN, *words("torchrun", "train.py")],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=ENDS_S,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    for rank, actual in ((1, 2), (2, 1)):
        (line,) = [line for line in done.stderr.splitlines() if f"rank {rank:>2}: assigned to {order[rank]}" in line]
        assert line.endswith(f"runs on {order[actual]}  <- started on {order[actual]}")
    assert "nothing was run" in done.stderr.splitlines()[-1]
    assert ran(tmp_path) == []
