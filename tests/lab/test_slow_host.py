"""A host with a tenth of the others' rate is found by probe and doctor as typed, and nobody else is blamed."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from plink.model.network import read_network
from solvers.costs.fabric import fabric_of
from tests.conftest import Lab, lab_up, plink
from tests.lab.probing import probe, succeeded
from tests.lab.traces import HERE

pytestmark = pytest.mark.lab

SLOW_GBPS, USUAL_GBPS = 0.02, 0.2


@pytest.fixture(scope="module")
def nine_hosts() -> Iterator[Lab]:
    """Three racks of three hosts at 200 Mbit/s each, one of them at 20."""
    lab = lab_up(f"h5r{os.getpid()}", "--racks", "3", "--hosts-per-rack", "3", "--host-rate", "200mbit", "--seed", "7")
    yield lab
    lab.plink("down", cwd=HERE)


def slow_hosts(findings: list[dict[str, object]]) -> list[object]:
    """The hosts that are slow by their bandwidth."""
    return [finding["hosts"] for finding in findings if finding["kind"] == "slow host (bandwidth)"]


def test_slow_host_is_found_by_probe_and_doctor(nine_hosts: Lab, tmp_path: Path) -> None:
    slow = nine_hosts.hosts.names[4]
    assert nine_hosts.plink("shape", slow, "--rate", "20mbit", cwd=HERE).returncode == 0
    done = probe(nine_hosts, tmp_path, "--count", "400")
    succeeded(done)
    assert [line for line in done.stderr.splitlines() if "slow host" in line and slow in line]
    network = read_network(tmp_path / "n.json")
    fabric = fabric_of(network)
    index = network.hosts.names.index(slow)
    assert fabric.host_out_gbps[index] == pytest.approx(SLOW_GBPS, rel=0.3)
    usual = [rate for host, rate in enumerate(fabric.host_out_gbps.tolist()) if host != index]
    assert usual == pytest.approx([USUAL_GBPS] * 8, rel=0.2)
    validated = plink("doctor", "n.json", "--json", cwd=tmp_path)
    assert slow_hosts(json.loads(validated.stdout)["findings"]) == [[slow]]
    # In a process of its own: it enters the lab, and ends with it.
    examined = plink("doctor", str(nine_hosts.state.hosts_file), "--json", cwd=tmp_path)
    assert slow_hosts(json.loads(examined.stdout)["findings"]) == [[slow]]


def test_healthy_hosts_are_not_blamed(nine_hosts: Lab, tmp_path: Path) -> None:
    assert nine_hosts.plink("heal", cwd=HERE).returncode == 0
    done = probe(nine_hosts, tmp_path, "--count", "400")
    succeeded(done)
    assert "slow host" not in done.stderr
