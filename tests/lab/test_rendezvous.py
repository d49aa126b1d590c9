"""`torchrun --rdzv-backend=plink` on lab hosts: each finds by its addresses which host of the order it is."""

import json
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from plink.model.hosts import Hosts, render_hosts
from tests.conftest import Lab
from tests.runtime.torchruns import GATHER, Ended, Torchruns

pytestmark = pytest.mark.lab


@pytest.fixture
def torchruns(tmp_path: Path) -> Iterator[Torchruns]:
    """torchruns in a folder with a program; none is left afterwards."""
    (tmp_path / "train.py").write_text(GATHER)
    with Torchruns(tmp_path) as started:
        yield started


def on_all(lab: Lab, torchruns: Torchruns, names: list[str], *words: str, **env: str) -> list[Ended]:
    """The same command on hosts, started in this order."""
    for name in names:
        network = ["nsenter", f"--net=/run/netns/{lab.blueprint.namespace(name)}"]
        torchruns.start(*words, prefix=network, GLOO_SOCKET_IFNAME="eth0", **env)
    return torchruns.ended()


def test_hosts_find_themselves(small_lab: Lab, torchruns: Torchruns, tmp_path: Path) -> None:
    """A random order; the endpoint on another host than the first; rank 0's host is the workers' master."""
    names = small_lab.hosts.names
    order = random.Random(4).sample(names, len(names))
    (tmp_path / "order.json").write_text(json.dumps({"schema": "plink.order/1", "algo": "ring", "hosts": order}))
    (tmp_path / "hosts.txt").write_text(render_hosts(small_lab.hosts))
    address = {host.name: host.address for host in small_lab.hosts}
    ended = on_all(
        small_lab, torchruns, names, f"--rdzv-endpoint={address[order[2]]}:29500", "--nnodes=4", "train.py",
        PLINK_ORDER="order.json", PLINK_HOSTS="hosts.txt",
    )  # fmt: skip
    assert [end.code for end in ended] == [0] * 4, ended
    for name, end in zip(names, ended, strict=True):
        (line,) = [line for line in end.out.splitlines() if line.startswith("GATHERED")]
        reported = json.loads(line.partition(" ")[2])
        assert reported["RANK"] == reported["GROUP_RANK"] == str(order.index(name))
        assert reported["MASTER_ADDR"] == address[order[0]]
        assert [rank for rank, _ in reported["all"]] == [0, 1, 2, 3]


def test_without_an_endpoint_the_first_host_serves(small_lab: Lab, torchruns: Torchruns, tmp_path: Path) -> None:
    """A hosts file as the order, of two hosts."""
    hosts_by_name = small_lab.hosts.by_name()
    names = small_lab.hosts.names
    (tmp_path / "order.txt").write_text(render_hosts(Hosts((hosts_by_name[names[1]], hosts_by_name[names[3]]))))
    ended = on_all(small_lab, torchruns, [names[3], names[1]], "--nnodes=2", "train.py", PLINK_ORDER="order.txt")
    assert [end.code for end in ended] == [0, 0], ended
    assert '"RANK": "1"' in ended[0].out
    assert '"RANK": "0"' in ended[1].out
