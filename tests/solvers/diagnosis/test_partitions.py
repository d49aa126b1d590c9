"""Hosts that cannot reach each other are found among pairs that failed by themselves, in full and in sparse files."""

import numpy as np
import numpy.typing as npt
import pytest

from plink.model.diagnosis import Finding
from plink.model.hosts import Host, Hosts
from plink.model.network import Matrix, Network
from solvers.diagnosis.findings import diagnose
from tests.networks import details_from
from tests.solvers.synthetic import racks

SIZE, RACKS, SPARSE = 16, 12, 0.15
Mask = npt.NDArray[np.bool_]


def parted(failing: Mask, latency: Matrix, groups: npt.NDArray[np.intp], sparse: bool, lost: int) -> list[Finding]:
    """The partitions of hosts in racks, where pairs of ``failing`` fail that are tried, and ``lost`` others at random.

    A sparse file has the pairs in racks and some between these.
    """
    rng = np.random.default_rng(3)
    n = len(latency)
    drawn = np.triu(rng.random((n, n)) < (SPARSE if sparse else 1.0), 1)
    tried = (drawn | drawn.T | (groups[:, None] == groups)) & ~np.eye(n, dtype=bool)
    failed = failing & tried
    candidates = np.argwhere(np.triu(tried & ~failing, 1))
    for i, j in candidates[rng.choice(len(candidates), lost, replace=False)].tolist():
        failed[i, j] = failed[j, i] = True
    rows = np.where(tried & ~failed, latency, np.nan)
    np.fill_diagonal(rows, 0.0)
    hosts = Hosts(tuple(Host(f"h{i}", f"10.0.0.{i}") for i in range(n)))
    errors = [{"from": f"h{i}", "to": f"h{j}", "why": "no answer"} for i, j in np.argwhere(failed).tolist()]
    network = Network(hosts, rows, None, details_from({"errors": errors, "plan": "adaptive" if sparse else "all"}))
    return [item for item in diagnose(network, groups, {}) if item.kind == "partition"]


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("lost", [0, 10, 40])
def test_failures_by_chance_are_no_partition(sparse: bool, lost: int) -> None:
    latency, groups = racks([SIZE] * RACKS, 1)
    assert parted(np.zeros(latency.shape, dtype=bool), latency, groups, sparse, lost) == []


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("lost", [0, 10, 40])
@pytest.mark.parametrize("far_racks", [range(1, RACKS), [1]], ids=["from all", "from a rack"])
def test_cut_rack_is_found_among_failures_by_chance(sparse: bool, lost: int, far_racks: list[int]) -> None:
    latency, groups = racks([SIZE] * RACKS, 1)
    here, there = groups == 0, np.isin(groups, far_racks)
    failing = (here[:, None] & there) | (there[:, None] & here)
    (finding,) = parted(failing, latency, groups, sparse, lost)
    hosts = [int(name[1:]) for name in finding.hosts]
    assert set(hosts) <= set(np.flatnonzero(here | there).tolist())
    assert len(hosts) > (here | there).sum() / 2
    assert finding.severity == "error"


@pytest.mark.parametrize("sparse", [False, True])
def test_host_without_a_way_to_a_rack_is_a_partition(sparse: bool) -> None:
    latency, groups = racks([SIZE] * RACKS, 1)
    host, there = int(np.flatnonzero(groups == 0)[0]), groups == 1
    failing = np.zeros(latency.shape, dtype=bool)
    failing[host, there] = failing[there, host] = True
    (finding,) = parted(failing, latency, groups, sparse, 0)
    assert f"h{host}" in finding.hosts
    assert len(finding.hosts) == finding.pairs + 1
