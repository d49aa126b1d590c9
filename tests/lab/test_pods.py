"""Pods of racks, measured: both tiers of shared links are found and within 15 % of the truth."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import Lab, lab_up
from tests.lab.probing import network, probe, succeeded
from tests.lab.traces import HERE

pytestmark = pytest.mark.lab


@pytest.fixture(scope="module")
def pods() -> Iterator[Lab]:
    """Two pods of two racks of four hosts at 60 Mbit/s: racks carry two hosts' rates, pods as much as one rack."""
    name = f"p{os.getpid()}"
    rates = ("--host-rate", "60mbit", "--uplink-rate", "120mbit", "--pod-rate", "120mbit")
    lab = lab_up(name, "--pods", "2", "--racks", "4", "--hosts-per-rack", "4", *rates, "--seed", "5")
    yield lab
    lab.plink("down", cwd=HERE)


def test_both_tiers_are_found_with_their_capacities(pods: Lab, tmp_path: Path) -> None:
    succeeded(probe(pods, tmp_path, timeout=180))
    racks, outer = network(tmp_path).shared_links
    pod_of = {name: pods.blueprint.pod_of(rack) for name, rack in pods.racks.items()}
    for tier, of, size in ((racks, pods.racks, 4), (outer, pod_of, 8)):
        assert [len({of[name] for name in row["members"]}) for row in tier["groups"]] == [1] * (16 // size)
        for row in tier["groups"]:
            assert len(row["members"]) == size
            assert row["out_gbps"] == pytest.approx(0.12, rel=0.15)
            assert row["in_gbps"] == pytest.approx(0.12, rel=0.15)
            assert row["out_limited_by"] == row["in_limited_by"] == "link"


def test_a_pod_is_cut_off_and_healed(pods: Lab) -> None:
    def uplinks() -> dict[str, tuple[bool, int]]:
        shown = json.loads(pods.plink("status", "--json", cwd=HERE).stdout)
        return {rack["name"]: (rack["connected"], rack["rate"]) for rack in shown["racks"]}

    before = uplinks()
    assert before["pod1"] == (True, 120_000_000)
    assert pods.plink("cut", "pod1", cwd=HERE).returncode == 0
    assert pods.plink("shape", "pod0", "--rate", "20mbit", cwd=HERE).returncode == 0
    assert (uplinks()["pod0"], uplinks()["pod1"][0]) == ((True, 20_000_000), False)
    assert pods.plink("heal", cwd=HERE).returncode == 0
    assert uplinks() == before
