"""Versions of parameters: kept as long as somebody needs them, and in no more memory than that takes."""

import torch
from torch import nn

from plink.runtime.pipeline.versions import Leaves, StashedVersions


def parameters() -> dict[str, nn.Parameter]:
    return {"a": nn.Parameter(torch.zeros(3)), "b": nn.Parameter(torch.zeros(2, 2))}


def step(versions: StashedVersions, own: dict[str, nn.Parameter], oldest: int) -> None:
    versions.advance(oldest)
    for parameter in own.values():
        parameter.data.add_(1)


def values(leaves: Leaves) -> set[float]:
    return {value for leaf in leaves.values() for value in leaf.flatten().tolist()}


def test_a_version_in_use_stays_as_it_is() -> None:
    own = parameters()
    versions = StashedVersions(own, lambda leaves: None)
    first = versions.acquire(0)
    step(versions, own, 1)
    assert values(first) == {0.0}
    assert values(versions.acquire(1)) == {1.0}
    assert versions.count == 2
    versions.release(0)
    assert versions.count == 1


def test_memory_of_released_versions_is_used_again() -> None:
    own = parameters()
    versions = StashedVersions(own, lambda leaves: None)
    addresses = set()
    for number in range(20):
        versions.acquire(number)
        if number >= 2:
            versions.release(number - 2)
        step(versions, own, number + 1)
        addresses.add(own["a"].data_ptr())
        assert versions.count <= 3
    assert len(addresses) == 3


def test_nothing_is_copied_where_no_minibatch_is_in_flight() -> None:
    own = parameters()
    made: list[Leaves] = []
    versions = StashedVersions(own, made.append)
    address = own["a"].data_ptr()
    for number in range(5):
        versions.acquire(number)
        versions.release(number)
        step(versions, own, number + 1)
    assert own["a"].data_ptr() == address
    assert len(made) == 1
    assert values(versions.acquire(5)) == {5.0}


def test_a_version_that_a_later_pass_uses_is_kept() -> None:
    own = parameters()
    versions = StashedVersions(own, lambda leaves: None)
    for _ in range(3):
        step(versions, own, 1)
    assert versions.count == 3
    assert values(versions.acquire(1)) == {1.0}
    step(versions, own, 3)
    versions.release(1)
    assert versions.count == 2


def test_gradients_are_those_of_the_version_of_the_forward_pass() -> None:
    """Changed in place, a weight of a convolution would give other gradients, or an error."""
    torch.manual_seed(0)
    layer = nn.Conv2d(2, 3, 3)
    own = dict(layer.named_parameters())
    versions = StashedVersions(own, lambda leaves: None)
    image = torch.randn(1, 2, 5, 5, requires_grad=True)
    layer(image).square().sum().backward()
    expected, image.grad = image.grad, None
    leaves = versions.acquire(0)
    output = torch.func.functional_call(layer, leaves, (image,))
    step(versions, own, 1)
    output.square().sum().backward()
    assert expected is not None
    assert image.grad is not None
    assert torch.equal(image.grad, expected)


def test_versions_of_a_checkpoint_are_found_again() -> None:
    own = parameters()
    versions = StashedVersions(own, lambda leaves: None)
    for parameter in own.values():
        parameter.data.fill_(7.0)
    versions.restore(7, {5: {name: torch.full_like(value, 5.0) for name, value in own.items()}})
    assert (versions.current, versions.count) == (7, 2)
    old = versions.acquire(5)
    assert values(versions.acquire(7)) == {7.0}
    step(versions, own, 8)
    assert values(old) == {5.0}
    assert values(versions.values(7)) == {7.0}
    versions.release(5)
    assert versions.count == 2
    assert values(versions.acquire(8)) == {8.0}
