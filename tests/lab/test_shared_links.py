"""What racks share, measured: within 15 % of the truth at each oversubscription, which no pairwise test can see."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import Lab, lab_up
from tests.lab.probing import document, probe, succeeded
from tests.lab.traces import HERE

pytestmark = pytest.mark.lab


@pytest.fixture(scope="module")
def racks() -> Iterator[Lab]:
    """Two racks of four hosts at 50 Mbit/s each: slow enough that two cores carry all of them beside other work."""
    name = f"h4r{os.getpid()}"
    lab = lab_up(name, "--racks", "2", "--hosts-per-rack", "4", "--host-rate", "50mbit", "--seed", "5")
    yield lab
    lab.plink("down", cwd=HERE)


@pytest.mark.parametrize("uplink_mbit", [50, 200])
def test_the_capacity_of_an_uplink_is_found(uplink_mbit: int, racks: Lab, tmp_path: Path) -> None:
    """4:1 and 1:1 (there the hosts are the limit, so the uplink carries at least that)."""

    for rack in ("rack0", "rack1"):
        assert racks.plink("shape", rack, "--rate", f"{uplink_mbit}mbit", cwd=HERE).returncode == 0
    done = probe(racks, tmp_path, "--count", "400")
    succeeded(done)
    (tier,) = document(tmp_path)["shared_links"]
    rows = tier["groups"]
    members = [{racks.racks[name] for name in row["members"]} for row in rows]
    assert sorted(members, key=min) == [{0}, {1}]
    for row in rows:
        assert len(row["members"]) == 4
        for direction in ("out", "in"):
            assert row[f"{direction}_gbps"] == pytest.approx(uplink_mbit / 1000, rel=0.15)
            low, high = row["interval"][f"{direction}_gbps"]
            assert low <= row[f"{direction}_gbps"] <= high
        if uplink_mbit == 50:
            assert row["out_limited_by"] == row["in_limited_by"] == "others"  # of two links either may be the limit
    assert "share at least " in done.stderr
