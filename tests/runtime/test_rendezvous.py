"""`torchrun --rdzv-backend=plink`: torchruns on loopback, each told by PLINK_NODE which host it is.

One test starts them as users do; the others fork them (:class:`tests.runtime.torchruns.ForkedTorchruns`).
"""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.ports import free_port
from tests.runtime.ranks import ROOT, wait_until
from tests.runtime.torchruns import GATHER, Ended, ForkedTorchruns, Torchruns, install

# Each starts several processes; one path of each kind is quick.
pytestmark = pytest.mark.extended

# Says who it is without PyTorch, which takes a worker longest. One write a line: the workers of a node share a pipe.
TELL = """
import json, os
mine = {key: os.environ[key] for key in ("RANK", "GROUP_RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "PLINK_NODE")}
os.write(1, b"GATHERED " + json.dumps(mine).encode() + b"\\n")
"""


@pytest.fixture
def torchruns(tmp_path: Path) -> Iterator[ForkedTorchruns]:
    """torchruns in a folder with a program; none is left afterwards."""
    (tmp_path / "train.py").write_text(TELL)
    with ForkedTorchruns(tmp_path) as started:
        yield started


@pytest.fixture
def endpoint() -> str:
    """Where nobody listens yet."""
    return f"--rdzv-endpoint=127.0.0.1:{free_port()}"


def write_order(folder: Path, names: str, name: str = "order.json") -> str:
    """An order of one-letter names; returns the file's name."""
    hosts = [f"node-{letter}" for letter in names]
    document = {"schema": "plink.order/1", "algo": "ring", "hosts": hosts, "cost": None, "lower_bound": None}
    (folder / name).write_text(json.dumps(document))
    return name


def gathered(text: str) -> list[dict[str, object]]:
    """What the workers of one torchrun said."""
    return [json.loads(line.partition("GATHERED ")[2]) for line in text.splitlines() if "GATHERED " in line]


def errors(ended: list[Ended]) -> set[str]:
    """The one line of each; none may have run anything."""
    assert all(end.code != 0 for end in ended)
    assert not any(end.out for end in ended)
    return {end.error for end in ended}


@pytest.mark.quick
def test_ranks_follow_the_order(torchruns: ForkedTorchruns, endpoint: str, tmp_path: Path) -> None:
    """Three nodes started in another order than plink's, hosts with different slots; addresses would sort otherwise."""
    (tmp_path / "train.py").write_text(GATHER)
    (tmp_path / "order.txt").write_text("node-c slots=1\nnode-a slots=2\nnode-b slots=1\n")
    for node, slots in (("node-a", 2), ("node-b", 1), ("node-c", 1)):
        torchruns.start(endpoint, "--nnodes=3", f"--nproc-per-node={slots}", "train.py",
                        PLINK_ORDER="order.txt", PLINK_NODE=node)  # fmt: skip
    ended = torchruns.ended()
    assert [end.code for end in ended] == [0, 0, 0], ended
    expected = [[0, "node-c"], [1, "node-a"], [2, "node-a"], [3, "node-b"]]
    reports = [report for end in ended for report in gathered(end.out)]
    assert len(reports) == 4
    assert all(report["all"] == expected and report["MASTER_ADDR"] == "127.0.0.1" for report in reports)
    assert [[report["GROUP_RANK"] for report in gathered(end.out)] for end in ended] == [["1", "1"], ["2"], ["0"]]
    assert not any("Traceback" in end.err for end in ended)


def test_a_restart_keeps_the_order(torchruns: ForkedTorchruns, endpoint: str, tmp_path: Path) -> None:
    """One worker fails once: every node starts its workers again, at the same place."""
    once = """
import os, pathlib, time
started = pathlib.Path("started-" + os.environ["RANK"])
if not started.exists():
    started.touch()
    if os.environ["RANK"] == "1": raise SystemExit(7)
    time.sleep(600)
"""
    (tmp_path / "train.py").write_text(once + TELL)
    order = write_order(tmp_path, "ba")
    for node in ("node-a", "node-b"):
        torchruns.start(endpoint, "--nnodes=2", "--max-restarts=1", "train.py", PLINK_ORDER=order, PLINK_NODE=node)
    ended = torchruns.ended()
    assert [end.code for end in ended] == [0, 0], ended
    reports = [report for end in ended for report in gathered(end.out)]
    assert sorted((report["RANK"], report["PLINK_NODE"]) for report in reports) == [("0", "node-b"), ("1", "node-a")]


def test_a_node_that_has_failed_for_good_is_not_waited_for(
    torchruns: ForkedTorchruns, endpoint: str, tmp_path: Path
) -> None:
    """Those who would start again learn at once that it has left."""
    (tmp_path / "train.py").write_text("import os, time\nif os.environ['RANK'] == '1': raise SystemExit(7)\n"
                                       "time.sleep(3)\nraise SystemExit(8)\n")  # fmt: skip
    order = write_order(tmp_path, "ba")
    torchruns.start(endpoint, "--nnodes=2", "--max-restarts=0", "train.py", PLINK_ORDER=order, PLINK_NODE="node-a")
    torchruns.start(endpoint, "--nnodes=2", "--max-restarts=3", "train.py", PLINK_ORDER=order, PLINK_NODE="node-b")
    failed, other = torchruns.ended()
    assert failed.code == 1
    assert "node-a" in other.error or "has ended" in other.error, other.error


def test_a_host_that_comes_twice(torchruns: ForkedTorchruns, endpoint: str, tmp_path: Path) -> None:
    order = write_order(tmp_path, "ab")
    for _ in range(2):
        torchruns.start(endpoint, "--nnodes=2", "train.py", PLINK_ORDER=order, PLINK_NODE="node-b")
    (line,) = errors(torchruns.ended())
    assert "RendezvousError: node-b registered twice: process " in line


def test_a_host_that_is_not_in_the_order(torchruns: ForkedTorchruns, endpoint: str, tmp_path: Path) -> None:
    order = write_order(tmp_path, "ab")
    torchruns.start(endpoint, "--nnodes=2", "train.py", PLINK_ORDER=order, PLINK_NODE="node-a")
    torchruns.start(endpoint, "--nnodes=2", "--rdzv-conf", "node=node-z", "train.py", PLINK_ORDER=order)
    assert errors(torchruns.ended()) == {"RendezvousError: node-z: not in the order"}


def test_another_number_of_nodes(torchruns: ForkedTorchruns, endpoint: str, tmp_path: Path) -> None:
    order = write_order(tmp_path, "abc")
    for node in ("node-a", "node-b"):
        torchruns.start(endpoint, "--nnodes=2", "train.py", PLINK_ORDER=order, PLINK_NODE=node)
    lines = errors(torchruns.ended())
    assert len(lines) == 1
    assert "--nnodes=2 on node-" in min(lines)
    assert "but the order has 3 hosts" in min(lines)


def test_different_orders(torchruns: ForkedTorchruns, endpoint: str, tmp_path: Path) -> None:
    for node, order in (("node-a", write_order(tmp_path, "ab")), ("node-b", write_order(tmp_path, "ba", "2.json"))):
        torchruns.start(endpoint, "--nnodes=2", "train.py", PLINK_ORDER=order, PLINK_NODE=node)
    (line,) = errors(torchruns.ended())
    assert "the nodes have different orders" in line
    assert "on node-a" in line
    assert "on node-b" in line


def test_other_processes_than_slots(torchruns: ForkedTorchruns, endpoint: str, tmp_path: Path) -> None:
    """The order has names only, the hosts file says how many ranks each takes."""
    order = write_order(tmp_path, "ab")
    (tmp_path / "hosts.txt").write_text("node-b slots=2\nnode-a slots=2\n")
    for node, slots in (("node-a", 2), ("node-b", 3)):
        torchruns.start(endpoint, "--nnodes=2", f"--nproc-per-node={slots}", "train.py",
                        PLINK_ORDER=order, PLINK_NODE=node, PLINK_HOSTS="hosts.txt")  # fmt: skip
    (line,) = errors(torchruns.ended())
    assert line.endswith("--nproc-per-node differs from the order's slots: node-b has slots=2, not 3")


def test_hosts_that_do_not_come(torchruns: ForkedTorchruns, endpoint: str, tmp_path: Path) -> None:
    """Both that came say which did not."""
    order = write_order(tmp_path, "abcd")
    for node in ("node-b", "node-c"):
        torchruns.start(endpoint, "--nnodes=4", "--rdzv-conf=join_timeout=3", "train.py",
                        PLINK_ORDER=order, PLINK_NODE=node)  # fmt: skip
    expected = "RendezvousTimeoutError: node-a, node-d: no registration within 3 s (join_timeout)"
    assert errors(torchruns.ended()) == {expected}


def _answers(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.parametrize("serves", ["good", "bad"])
def test_an_order_that_cannot_be_read(torchruns: ForkedTorchruns, endpoint: str, tmp_path: Path, serves: str) -> None:
    """The other node hears of it, too, whichever of them serves the rendezvous."""
    orders = {"good": write_order(tmp_path, "ab"), "bad": "none.json"}
    for which in sorted(orders, key=lambda which: which != serves):
        torchruns.start(
            endpoint,
            "--nnodes=2",
            "train.py",
            PLINK_ORDER=orders[which],
            PLINK_NODE={"good": "node-a", "bad": "node-b"}[which],
        )
        wait_until(lambda: _answers(int(endpoint.rpartition(":")[2])))
    (line,) = errors(torchruns.ended())
    assert "none.json" in line


def test_nobody_serves_the_endpoint(torchruns: ForkedTorchruns, tmp_path: Path) -> None:
    order = write_order(tmp_path, "ab")
    port = free_port()
    torchruns.start(f"--rdzv-endpoint=127.0.0.1:{port}", "--nnodes=2", "--rdzv-conf=join_timeout=3,is_host=0",
                    "train.py", PLINK_ORDER=order, PLINK_NODE="node-b")  # fmt: skip
    (line,) = errors(torchruns.ended())
    assert f"node-b found no rendezvous at 127.0.0.1:{port} within 3 s (Connection refused)" in line


@pytest.mark.quick
def test_an_elastic_number_of_nodes_is_refused(endpoint: str, tmp_path: Path) -> None:
    """By a torchrun that is started as users do."""
    order = write_order(tmp_path, "ab")
    with Torchruns(tmp_path) as torchruns:
        torchruns.start(endpoint, "--nnodes=1:2", "train.py", PLINK_ORDER=order, PLINK_NODE="node-a")
        (end,) = torchruns.ended()
    assert end.code != 0
    assert "--nnodes=1:2: an order is for a fixed number of nodes" in end.err


def test_the_server_of_the_rendezvous_dies(torchruns: ForkedTorchruns, endpoint: str, tmp_path: Path) -> None:
    """The other node ends its workers and says whom it lost."""
    (tmp_path / "train.py").write_text("import pathlib, os, time\npathlib.Path(os.environ['RANK']).touch()\n"
                                       "time.sleep(600)\n")  # fmt: skip
    order = write_order(tmp_path, "ab")
    server = torchruns.start(endpoint, "--nnodes=2", "train.py", PLINK_ORDER=order, PLINK_NODE="node-b")
    wait_until(lambda: _listens(endpoint))
    torchruns.start(endpoint, "--nnodes=2", "train.py", PLINK_ORDER=order, PLINK_NODE="node-a")
    wait_until(lambda: (tmp_path / "0").exists() and (tmp_path / "1").exists())
    server.kill()
    _, other = torchruns.ended()  # long before its workers would end
    assert "the torchrun that served it has ended" in other.error


def _listens(endpoint: str) -> bool:
    host, port = endpoint.partition("=")[2].split(":")
    with socket.socket() as sock:
        return sock.connect_ex((host, int(port))) == 0


@pytest.mark.quick
def test_the_entry_point_imports_nothing_and_troubles_no_other_backend(tmp_path: Path) -> None:
    """torch loads it in every torchrun: it must be cheap, and other backends must not notice."""
    code = (
        "import sys, importlib.metadata as m\n"
        "(e,) = [e for e in m.entry_points(group='torchrun.handlers') if e.value.startswith('plink.runtime.torchrun')]"
        "[:1]\ne.load()()\nprint([n for n in ('torch', 'numpy', 'plink.model.hosts') if n in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **install(tmp_path)}, cwd=tmp_path, capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr
    assert 'plink = "plink.runtime.torchrun:entry_point"' in (ROOT / "pyproject.toml").read_text()
