"""Comparison of a program's groups with those that its order was priced for, in real processes of PyTorch."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plink.errors import PlinkError
from plink.model.mesh import MESH_VARIABLE, Mesh
from plink.runtime.mesh_groups import verify_mesh
from tests.runtime.ranks import results_of, run_ranks

Sizes = tuple[int, ...]
Names = tuple[str, ...] | None


def with_device_mesh(sizes: Sizes, names: Names) -> str:
    """Be a rank of a program that makes this mesh; return what is wrong with it."""
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh

    mesh = init_device_mesh("cpu", sizes, mesh_dim_names=names)
    try:
        assert verify_mesh(mesh)
        return "" if names is None or verify_mesh(mesh[names[-1]]) else "the groups of one axis alone are not compared"
    except PlinkError as error:
        return str(error)
    finally:
        dist.destroy_process_group()


def with_new_groups(groups: Sequence[Sequence[int]]) -> str:
    """Be a rank of a program that makes its groups along tp by itself, as Megatron-LM does."""
    import torch.distributed as dist

    dist.init_process_group("gloo")
    made = [dist.new_group(list(ranks)) for ranks in groups]
    (mine,) = (group for group, ranks in zip(made, groups, strict=True) if dist.get_rank() in ranks)
    try:
        verify_mesh({"tp": dist.get_process_group_ranks(mine)})
        return ""
    except PlinkError as error:
        return str(error)
    finally:
        dist.destroy_process_group()


def test_device_mesh_that_was_priced() -> None:
    assert results_of(run_ranks(with_device_mesh, 4, (2, 2), ("pp", "tp"), PLINK_MESH="pp=2,tp=2")) == [""] * 4


@pytest.mark.extended
@pytest.mark.parametrize(
    ("sizes", "names", "words"),
    [
        ((2, 2), ("tp", "pp"), "along tp 0 is in the group 0 1; in the program it is 0 2"),
        ((4,), ("tp",), "in the program it is 0 1 2 3"),
        ((2, 2), ("pp", "dp"), "no axis dp"),
        ((2, 2), None, "mesh_dim_names"),
    ],
)
def test_device_mesh_that_was_not_priced(sizes: Sizes, names: Names, words: str) -> None:
    for error in results_of(run_ranks(with_device_mesh, 4, sizes, names, PLINK_MESH="pp=2,tp=2,cp=1")):
        assert words in error


@pytest.mark.extended
def test_groups_that_the_program_makes_by_itself() -> None:
    right, wrong = [[0, 1], [2, 3]], [[0, 2], [1, 3]]
    assert results_of(run_ranks(with_new_groups, 4, right, PLINK_MESH="pp=2,tp=2")) == [""] * 4
    errors = results_of(run_ranks(with_new_groups, 4, wrong, PLINK_MESH="pp=2,tp=2"))
    assert all("group 0 1" in error for error in errors)
    assert ["program it is 0 2" in error for error in errors] == [True, False, True, False]


@given(st.lists(st.integers(1, 4), min_size=1, max_size=4), st.data())
def test_only_the_groups_of_the_mesh_pass(sizes: list[int], data: st.DataObject) -> None:
    axes = tuple((f"axis{k}", size) for k, size in enumerate(sizes))
    mesh = Mesh(axes, ())
    names = data.draw(st.lists(st.sampled_from([name for name, _ in axes]), min_size=1, unique=True))
    ranks = data.draw(st.permutations(data.draw(st.sampled_from(mesh.groups(names).tolist()))))
    other = data.draw(st.permutations(range(mesh.ranks)))[: len(ranks)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(MESH_VARIABLE, mesh.file().mesh)
        patch.setenv("WORLD_SIZE", str(mesh.ranks))
        assert verify_mesh({"+".join(names): ranks})
        if len(other) > 1 and sorted(other) not in np.sort(mesh.groups(names), axis=1).tolist():
            with pytest.raises(PlinkError, match="in the program"):
                verify_mesh({"+".join(names): other})
        patch.setenv("WORLD_SIZE", str(mesh.ranks + 1))
        with pytest.raises(PlinkError, match="ranks"):
            verify_mesh({"+".join(names): ranks})
        patch.delenv(MESH_VARIABLE)
        assert not verify_mesh({"+".join(names): other})
