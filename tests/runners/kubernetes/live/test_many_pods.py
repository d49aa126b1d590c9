"""Sixteen pods at once, and pods whose ranks are PyTorch's, run for real."""

import random
import sys
from pathlib import Path

import pytest

from plink.model.hosts import Host, Hosts
from tests.runners.kubernetes.kubelet import Kubelet
from tests.runners.kubernetes.test_pods import TWO
from tests.runners.kubernetes.written import job, written


@pytest.mark.parametrize("seed", range(2))
def test_sixteen_nodes_in_a_random_order(seed: int, tmp_path: Path) -> None:
    names = [f"node-{number:02d}" for number in range(16)]
    random.Random(seed).shuffle(names)
    placed = random.Random(seed + 100).sample(names, len(names))
    hosts = Hosts(tuple(Host(name, name) for name in names))
    with Kubelet(written(job("sh", "-c", 'echo "$RANK $PLINK_NODE"'), hosts), tmp_path) as kubelet:
        pods = kubelet.job(*placed)
    assert [pod.code for pod in pods] == [0] * 16, [pod.err for pod in pods]
    message = sorted((int(line.split()[0]), line.split()[1]) for pod in pods for line in pod.lines)
    assert message == list(enumerate(names))


GATHER = """
import os, torch.distributed as dist
dist.init_process_group("gloo")
all_of_them = [None] * dist.get_world_size()
dist.all_gather_object(all_of_them, os.environ["PLINK_NODE"])
if dist.get_rank() == 0:
    print(all_of_them)
dist.barrier()
dist.destroy_process_group()
"""


def test_pytorch_gathers_over_gloo_in_the_order_asked_for(tmp_path: Path) -> None:
    (tmp_path / "gather.py").write_text(GATHER)
    document = job(sys.executable, str(tmp_path / "gather.py"))
    with Kubelet(written(document, TWO), tmp_path) as kubelet:
        pods = kubelet.job("node-a", "node-b")
    assert [pod.code for pod in pods] == [0, 0], [pod.err for pod in pods]
    assert pods[1].lines == ["[0] ['node-b', 'node-b', 'node-a', 'node-a']"]
