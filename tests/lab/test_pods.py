"""Pods of racks, measured: both tiers of shared links are found and within 15 % of the truth."""

import json
import os
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

import plink
from plink.model.network import Network
from tests.conftest import Lab, lab_up
from tests.lab.probing import network, probe, succeeded
from tests.lab.traces import HERE
from tests.networks import details_from, keys_of

pytestmark = pytest.mark.lab


@pytest.fixture(scope="module")
def pods() -> Iterator[Lab]:
    """Two pods of two racks of four hosts at 30 Mbit/s: racks carry two hosts' rates, pods one.

    Low rates, so that the links are the limit and not this machine's processors.
    """
    name = f"p{os.getpid()}"
    rates = ("--host-rate", "30mbit", "--uplink-rate", "60mbit", "--pod-rate", "30mbit")
    lab = lab_up(name, "--pods", "2", "--racks", "4", "--hosts-per-rack", "4", *rates, "--seed", "5")
    yield lab
    lab.plink("down", cwd=HERE)


@pytest.fixture(scope="module")
def measured(pods: Lab, tmp_path_factory: pytest.TempPathFactory) -> Network:
    """What a probe found."""
    folder = tmp_path_factory.mktemp("pods")
    succeeded(probe(pods, folder, timeout=180))
    return network(folder)


def test_both_tiers_are_found_with_their_capacities(pods: Lab, measured: Network) -> None:
    racks, outer = measured.shared_links
    pod_of = {name: pods.blueprint.pod_of(rack) for name, rack in pods.racks.items()}
    for tier, of, size, gbps, limit in ((racks, pods.racks, 4, 0.06, "link"), (outer, pod_of, 8, 0.03, "others")):
        assert [len({of[name] for name in row["members"]}) for row in tier["groups"]] == [1] * (16 // size)
        for row in tier["groups"]:
            assert len(row["members"]) == size
            assert row["out_gbps"] == pytest.approx(gbps, rel=0.15)
            assert row["in_gbps"] == pytest.approx(gbps, rel=0.15)
            assert row["out_limited_by"] == row["in_limited_by"] == limit


@pytest.mark.parametrize("algo", ["ring", "halving-doubling", "2lha"])
def test_orders_are_as_good_as_by_the_true_tree(algo: str, pods: Lab, measured: Network) -> None:
    """Within 3 %, priced by the true capacities."""
    rack_of = np.array([pods.racks[name] for name in measured.hosts.names])
    tiers = []
    for labels, gbps in ((rack_of, 0.06), (rack_of // 2, 0.03)):
        groups = [[measured.hosts.names[k] for k in np.flatnonzero(labels == label)] for label in np.unique(labels)]
        row = {"out_gbps": gbps, "in_gbps": gbps, "out_one_flow_gbps": 0.03, "in_one_flow_gbps": 0.03}
        tiers.append({"groups": [{"members": members, **row} for members in groups]})
    true = replace(measured, details=details_from(keys_of(measured) | {"shared_links": tiers}))
    request = plink.OrderRequest(algo=algo, size_bytes=16e6, model="contention", max_moves=20_000, force=True)
    costs = []
    for source in (measured, true):
        cost_request = plink.CostRequest(algo=algo, size_bytes=16e6, model="contention", random=0)
        costs.append(plink.cost(true, plink.reorder(source, request), cost_request).cost_us)
    assert costs[0] <= 1.03 * costs[1]


def test_a_pod_is_cut_off_and_healed(pods: Lab) -> None:
    def uplinks() -> dict[str, tuple[bool, int]]:
        shown = json.loads(pods.plink("status", "--json", cwd=HERE).stdout)
        return {rack["name"]: (rack["connected"], rack["rate"]) for rack in shown["links"]}

    before = uplinks()
    assert before["pod1"] == (True, 30_000_000)
    assert pods.plink("cut", "pod1", cwd=HERE).returncode == 0
    assert pods.plink("shape", "pod0", "--rate", "20mbit", cwd=HERE).returncode == 0
    assert (uplinks()["pod0"], uplinks()["pod1"][0]) == ((True, 20_000_000), False)
    assert pods.plink("heal", cwd=HERE).returncode == 0
    assert uplinks() == before
