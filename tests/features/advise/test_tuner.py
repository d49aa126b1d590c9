"""Files for NCCL's tuners, read back as the documentation of each says they are read."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from msgspec import structs

import plink
from plink.errors import InputError, NoAnswer
from plink.features.advise.tuner import tuner_lines
from plink.model.document import UNSET
from plink.model.hosts import Host, Hosts
from plink.model.network_file import LibraryCostsEntry, SizeCosts
from tests.conftest import typed
from tests.features.test_library import racks_of_1_gbps

_READ_ALIKE = ("rccl-tuner", "nccl-tuner")
SIZES = [1 << 20, (4 << 20) - 1, 4 << 20, 5_000_000, 64 << 20, 1 << 30, 3 << 30]


def by_nccl(lines: list[str], nodes: int, ranks: int, size: int) -> tuple[str, str] | None:
    """Apply the first row that matches, as NVIDIA's example plugin and RCCL's tuner do: bounds included, -1 is any.
    Return algorithm and protocol."""
    for line in lines:
        if line.startswith("#") or not line:
            continue
        kind, low, high, algo, proto, channels, of_nodes, of_ranks = (word.strip() for word in line.split(","))
        assert kind == "allreduce"
        assert channels == "-1" or (algo, channels) == ("tree", "2")
        assert algo in ("tree", "ring")
        assert proto in ("ll", "ll128", "simple")
        if int(low) <= size <= int(high) and int(of_nodes) in (-1, nodes) and int(of_ranks) in (-1, ranks):
            return algo, proto
    return None


def by_ncclx(lines: list[str], nodes: int, local: int, size: int) -> tuple[str, str] | None:
    """The same for NCCLX: bytes of a rank in an interval, ranks of a node; commas in brackets separate nothing."""
    for line in lines:
        if line.startswith("#") or not line:
            continue
        _, interval, algo, proto, _, of_nodes, of_local = re.split(r",(?![^\[]*\])", line)
        low, high = map(int, interval.strip("[]").split(","))
        if low <= size // (nodes * local) <= high and int(of_nodes) == nodes and of_local in ("*", str(local)):
            return algo, proto
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
        choice = by_nccl(taken, 16, 16, size)
        assert by_nccl(taken, 16, 17, size) is None
        if size % 16 == 0:
            assert by_ncclx(of_rank, 16, 1, size) == choice
        if size < 4 << 20:
            assert choice is None
        elif size.bit_count() == 1 and size <= 1 << 30:
            request = plink.CostRequest(size_bytes=size)
            costs = {name: plink.cost(network, order, request, algo=f"nccl-{name}") for name in ("ring", "tree")}
            (least, fast), (most, _) = sorted((cost.cost_us, name) for name, cost in costs.items())
            assert choice == ((fast, "simple") if most / least >= 1.05 else None)


def calibrated(tree_up_to: float | None) -> plink.Network:
    """Ring and tree timed on 16 hosts: the tree has two lines and starts at once, the ring three. What NCCL takes by
    itself is known where a size is given."""
    lines = {
        "nccl-tree": ((0, 100, 0.5), (300_000, 400, 0.2)),
        "nccl-ring": ((0, 80_000, 0.1), (90_000, 80_000, 0.05), (400_000, 80_000, 0)),
    }
    entries = [
        LibraryCostsEntry(
            algo=algo,
            pieces=[SizeCosts(from_bytes=size, fixed_us=us, byte_ns=ns) for size, us, ns in pieces],
            timings=11, error=0.01, measured_at="2026-01-01T00:00:00Z",
        )
        for algo, pieces in lines.items()
    ]  # fmt: skip
    if tree_up_to is not None:
        entries.append(
            LibraryCostsEntry(
                algo="nccl", tree_up_to_bytes=tree_up_to, timings=11, error=0.01, measured_at="2026-01-01T00:00:00Z"
            )
        )
    network = racks_of_1_gbps(16, 4)
    return replace(network, details=structs.replace(network.details, library_costs=entries))


def test_small_sizes_have_rows_once_they_were_timed() -> None:
    """From 64 KiB on, by the protocol that the timings were of; RCCL and NCCL read the same. NCCL's example plugin
    takes one channel where a row names none, and a tree's halves need two."""
    network = calibrated(None)
    lines, of_nccl = (list(tuner_lines(kind, network, plink.tuner_rows(network))) for kind in _READ_ALIKE)
    assert [line.replace(",2,16,16", ",-1,16,16") for line in of_nccl] == lines
    assert sum(",2,16,16" in line for line in of_nccl) == sum(",tree," in line for line in lines) > 0
    for size, protocol in ((32 << 10, None), (64 << 10, "ll"), (256 << 10, "ll"), (512 << 10, "simple")):
        assert by_nccl(lines, 16, 16, size) == (protocol and ("tree", protocol))
    large = by_nccl(lines, 16, 16, 256 << 20)
    assert large == ("ring", "simple")


@pytest.mark.parametrize("tree_up_to", [0, 1e6, 1e9])
def test_rows_are_only_of_sizes_for_which_nccl_takes_the_slower(tree_up_to: float) -> None:
    """Else they are those of a network whose choice was not timed."""
    network, without = calibrated(tree_up_to), calibrated(None)
    lines, all_lines = (list(tuner_lines("rccl-tuner", each, plink.tuner_rows(each))) for each in (network, without))
    for size in (1 << k for k in range(10, 30)):
        clear = by_nccl(all_lines, 16, 16, size)
        own = "tree" if size <= tree_up_to else "ring"
        assert by_nccl(lines, 16, 16, size) == (None if clear is None or clear[0] == own else clear)


@pytest.mark.parametrize("hosts", [9, 15])
def test_ncclx_takes_the_row_of_a_power_of_two(hosts: int) -> None:
    """It rounds a rank's share down, so that no row may begin a byte later."""
    network = racks_of_1_gbps(hosts, 3)
    rows = plink.tuner_rows(network)
    lines = list(tuner_lines("ncclx", network, rows))
    assert rows
    for row in rows:
        assert by_ncclx(lines, hosts, 1, row.min_bytes) == (row.algorithm, row.protocol)


def test_a_row_holds_within_its_sizes() -> None:
    """Not at powers of two alone: a tree's segments make its times jump."""
    network = calibrated(None)
    rng = np.random.default_rng(4)
    for row in plink.tuner_rows(network):
        for size in [row.min_bytes, *rng.uniform(row.min_bytes, min(row.max_bytes, 1 << 26), 6).astype(int).tolist()]:
            request = plink.CostRequest(size_bytes=size, random=0)
            ring, tree = (plink.cost(network, None, request, algo=f"nccl-{name}").cost_us for name in ("ring", "tree"))
            assert (ring / tree if row.algorithm == "tree" else tree / ring) >= 1.05


@pytest.mark.parametrize("slots", [2, 8])
def test_hosts_with_several_ranks_are_one_node_of_a_tree(slots: int) -> None:
    """NCCL's trees are of hosts: their times are those of one rank a host, the ring's grow."""
    single = racks_of_1_gbps(8, 2)
    several = replace(single, hosts=Hosts(tuple(replace(host, slots=slots) for host in single.hosts)))
    for model in ("contention", "simulated", "alpha-beta", "latency"):
        request = plink.CostRequest(size_bytes=64e6, model=model, random=0)
        costs = [plink.cost(network, None, request, algo="nccl-tree").cost_us for network in (single, several)]
        assert costs[1] == pytest.approx(costs[0], rel=1e-6)
    order = plink.reorder(several, plink.OrderRequest("nccl-tree", 64e6, max_moves=500, force=True))
    assert order.cost <= costs[0] if order.model == "latency" else order.cost > 0


def test_files_need_rates_and_equal_slots() -> None:
    network = racks_of_1_gbps(6, 2)
    alone = replace(network, details=structs.replace(network.details, shared_links=UNSET, host_flows=UNSET))
    uneven = replace(network, hosts=Hosts((replace(network.hosts.members[0], slots=2), *network.hosts.members[1:])))
    for refused in (alone, uneven):
        with pytest.raises(NoAnswer):
            plink.tuner_rows(refused)


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
