"""Where tensors on a GPU go. There is none here: NCCL is a Gloo group that counts what it is asked for."""

from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist

from plink.runtime import requested_backend, torch_backend
from plink.runtime.allreduce.backend import PlinkProcessGroup

CUDA = torch.device("cuda")


class Options:
    """As ``ProcessGroupNCCL.Options``."""


def fake_nccl(store: Any, rank: int, size: int, options: Options) -> Any:
    """As ``ProcessGroupNCCL(...)``; a time-out is all that it must be told."""
    return dist.ProcessGroupGloo(store, rank, size, options._timeout)  # type: ignore[attr-defined]


fake_nccl.Options = Options  # type: ignore[attr-defined]


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch with NCCL on a machine with a GPU, as far as anybody asks."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(dist, "is_nccl_available", lambda: True)
    monkeypatch.setattr(dist, "ProcessGroupNCCL", fake_nccl, raising=False)
    monkeypatch.setattr(requested_backend, "gloo_requested", False)


def group() -> Any:
    """Of one rank."""
    return PlinkProcessGroup(dist.HashStore(), 0, 1, timedelta(seconds=10))


def test_nccl_serves_what_is_on_a_gpu(gpu: None) -> None:
    """In the group, and in the one of C++ to which calls from Python go."""
    made = group()
    assert made._get_backend(CUDA) is made._cuda.group is made._native._get_backend(CUDA)
    assert made._cuda.is_nccl
    assert made._get_backend(torch.device("cpu")) is made._gloo


@pytest.mark.parametrize("backend", ["gloo", "cpu:gloo"])
def test_a_script_that_says_gloo_has_gloo_for_them(backend: str, gpu: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Gloo takes tensors on GPUs as well, of several ranks on one GPU too, which NCCL does not."""
    assert torch_backend._translate(backend) == "plink"
    monkeypatch.setattr(requested_backend, "gloo_requested", torch_backend._is_gloo(backend))
    made = group()
    assert made._get_backend(CUDA) is made._gloo


def test_without_nccl_gloo_serves_them(gpu: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it does in torch."""
    monkeypatch.setattr(dist, "is_nccl_available", lambda: False)
    made = group()
    assert made._get_backend(CUDA) is made._gloo


def test_what_asks_for_nccl_is_left_as_it_is(gpu: None) -> None:
    """Nothing is put in the place of what torch would choose for GPUs."""
    for backend in (None, "nccl", "cpu:gloo,cuda:nccl", "cpu:plink,cuda:nccl"):
        assert torch_backend._translate(backend) == backend
    assert not requested_backend.gloo_requested


def test_a_device_that_nothing_serves_is_an_error_that_names_it() -> None:
    """No crash, and no tensor that is taken for another."""
    with pytest.raises(RuntimeError, match="device type meta"):
        group().allreduce([torch.ones(3, device="meta")])
