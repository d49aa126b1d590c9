"""What `plink check --measure` runs on the hosts: two processes over loopback."""

import json
import os
import resource
from typing import Any

import pytest
import torch
import torch.distributed as dist

from plink.runtime.order_timing import main, pack_config
from tests.runtime.ranks import results_of, run_ranks


def measure_with_few_files(word: str) -> None:
    """Be one rank of the program where a login may open 64 files."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    main(word)


def test_many_orders_are_not_kept_from_the_files_they_need() -> None:
    """A login has 1,024 open files as a rule, and each order takes some for every other rank."""
    request = {
        "kind": "gloo",
        "places": [[0, 1], [1, 0]] * 10,
        "sizes_bytes": [400, 4000] * 10,
        "warm_up": 1,
        "repeats": 2,
    }
    first, second = ended = run_ranks(measure_with_few_files, 2, pack_config(request))
    results_of(ended)
    rows = [json.loads(line)["seconds"] for line in first.out.splitlines()]
    assert [len(row) for row in rows] == [20, 20]
    assert min(min(row) for row in rows) > 0
    assert second.out == ""


def request_of_nccl(ranks: int) -> str:
    """Two orders of these ranks."""
    places = [list(range(ranks)), list(range(ranks))[::-1]]
    return pack_config({"kind": "nccl", "places": places, "sizes_bytes": [400, 400_000], "warm_up": 1, "repeats": 2})


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_host_without_a_gpu_says_so_in_a_line() -> None:
    (ended,) = run_ranks(main, 1, request_of_nccl(1))
    assert ended.code == 1
    assert "finds no CUDA GPU here" in ended.err
    assert "Traceback" not in ended.err


class NcclThatFails:
    """Stand-in for NCCL's process group on a machine without a GPU: connecting fails with its error."""

    Options = type("Options", (), {})
    error = ""

    def __init__(self, *_: object) -> None:
        raise dist.DistBackendError(self.error)


def measure_with_nccl_that_fails(word: str, error: str) -> None:
    """Be a rank whose GPU and NCCL are stood in for."""
    cuda: Any = torch.cuda
    cuda.is_available, cuda.device_count, cuda.set_device = (lambda: True), (lambda: 1), (lambda index: None)
    names: Any = dist
    names.is_nccl_available, names.ProcessGroupNCCL = (lambda: True), NcclThatFails
    NcclThatFails.error = error
    main(word)


@pytest.mark.parametrize(
    ("error", "line"),
    [
        ("CUDA error: out of memory\nCUDA kernel errors might be\nasynchronous", "the GPU is out of memory"),
        ("MPS client failed to connect to the MPS server\nCompile with TORCH_USE_CUDA_DSA", "MPS client failed"),
        (
            "NCCL error in: NCCLUtils.cpp:94, unhandled system error, NCCL version 2.28.9\nLast error:\nconnect to "
            "10.0.0.1<5000> failed",
            "connect to 10.0.0.1<5000> failed",
        ),
    ],
)
def test_what_nccl_reports_is_one_line(error: str, line: str) -> None:
    (ended,) = run_ranks(measure_with_nccl_that_fails, 1, request_of_nccl(1), error)
    assert ended.code == 1
    (text,) = ended.err.strip().splitlines()
    assert text.startswith(line)


def measure_as_a_host_of_its_own(word: str) -> None:
    """Be a rank that NCCL takes for one on another machine, so that ranks can share a GPU."""
    os.environ |= {"NCCL_HOSTID": f"host{os.environ['RANK']}", "NCCL_NET": "Socket", "NCCL_CUMEM_ENABLE": "0"}
    main(word)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_nccl_is_timed_on_a_gpu() -> None:
    """Sums are checked by the program."""
    ended = run_ranks(measure_as_a_host_of_its_own, 2, request_of_nccl(2))
    results_of(ended)
    rows = [json.loads(line)["seconds"] for line in ended[0].out.splitlines() if line.startswith("{")]
    assert [len(row) for row in rows] == [2, 2]
    assert min(min(row) for row in rows) > 0
