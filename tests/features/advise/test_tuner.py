"""Files for NCCL's tuners, read back as the documentation of each says they are read."""

import re
from pathlib import Path

import numpy as np
import pytest

import plink
from plink.errors import InputError
from plink.features.advise.tuner import tuner_lines
from plink.model.hosts import Host, Hosts
from tests.conftest import typed
from tests.features.test_library import racks_of_1_gbps

SIZES = [1 << 20, (4 << 20) - 1, 4 << 20, 5_000_000, 64 << 20, 1 << 30, 3 << 30]


def by_nccl(lines: list[str], nodes: int, ranks: int, size: int) -> str | None:
    """Apply the first row that matches, as NVIDIA's example plugin does: bounds included, -1 is any."""
    for line in lines:
        if line.startswith("#") or not line:
            continue
        kind, low, high, algo, proto, _, of_nodes, of_ranks = (word.strip() for word in line.split(","))
        assert (kind, proto) == ("allreduce", "simple")
        if int(low) <= size <= int(high) and int(of_nodes) in (-1, nodes) and int(of_ranks) in (-1, ranks):
            return algo
    return None


def by_ncclx(lines: list[str], nodes: int, local: int, size: int) -> str | None:
    """The same for NCCLX: bytes of a rank in an interval, ranks of a node; commas in brackets separate nothing."""
    for line in lines:
        if line.startswith("#") or not line:
            continue
        _, interval, algo, _, _, of_nodes, of_local = re.split(r",(?![^\[]*\])", line)
        low, high = map(int, interval.strip("[]").split(","))
        if low <= size // (nodes * local) <= high and int(of_nodes) == nodes and of_local in ("*", str(local)):
            return algo
    return None


@pytest.mark.parametrize("seed", range(3))
def test_the_file_takes_the_faster_algorithm_where_it_is_clearly_faster(seed: int) -> None:
    network = racks_of_1_gbps(16, 4)
    names = list(np.random.default_rng(seed).permutation(network.hosts.names))
    order = plink.RankOrder(algo="given", hosts=tuple(names))
    rows = plink.tuner_rows(network, order)
    taken = list(tuner_lines("nccl-tuner", network, rows))
    of_rank = list(tuner_lines("ncclx", network, rows))
    for size in SIZES:
        algo = by_nccl(taken, 16, 16, size)
        assert by_nccl(taken, 16, 17, size) is None
        if size % 16 == 0:
            assert by_ncclx(of_rank, 16, 1, size) == algo
        if size < 4 << 20:
            assert algo is None
        elif size.bit_count() == 1 and size <= 1 << 30:
            request = plink.CostRequest(size_bytes=size)
            costs = {name: plink.cost(network, order, request, algo=f"nccl-{name}") for name in ("ring", "tree")}
            (least, fast), (most, _) = sorted((cost.cost_us, name) for name, cost in costs.items())
            assert algo == (fast if most / least >= 1.05 else None)


def test_one_rank_has_no_choice() -> None:
    alone = plink.Network(Hosts((Host("a", "10.0.0.1"),)), np.zeros((1, 1)), None, {})
    with pytest.raises(InputError):
        plink.tuner_rows(alone)


def test_the_command_prints_the_file_and_refuses_what_it_has_itself(tmp_path: Path) -> None:
    racks_of_1_gbps(8, 2).write(tmp_path / "n.json")
    done = typed("advise", "n.json", "--format", "nccl-tuner", cwd=tmp_path)
    assert done.returncode == 0
    assert done.stdout.startswith("#")
    assert "no order" in done.stderr
    for words in (["--format", "x"], ["--format", "ncclx", "--size", "1MB"]):
        assert typed("advise", "n.json", *words, cwd=tmp_path).returncode == 2
