"""What a probe says of what groups of hosts share, and an order of what it goes by."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from plink.features.measure.request import ProbeRequest
from plink.features.measure.session import measure_into
from plink.model.hosts import Host, Hosts
from plink.model.network import read_network
from probes.measurements import Measurements
from tests.conftest import typed
from tests.networks import details_from

HOSTS = Hosts(tuple(Host(name, f"10.0.0.{k}") for k, name in enumerate("abcdef", 1)))


def probed(target: Path, monkeypatch: pytest.MonkeyPatch, groups: list[dict[str, Any]]) -> Path:
    """Write what a probe that measured these groups writes: three racks of two."""
    rack = np.arange(6) // 2

    def measure(measurements: Measurements, *rest: object) -> bool:
        measurements.latency[:] = np.where(rack[:, None] == rack, 50.0, 100.0)
        measurements.details = details_from(
            {"plan": "all"} | ({"shared_links": [{"groups": groups}]} if groups else {})
        )
        return True

    monkeypatch.setattr("plink.features.measure.run.measure", measure)
    measure_into(target, Measurements(HOSTS), ProbeRequest())
    return target


def group(members: str, confidence: float) -> dict[str, Any]:
    """A group of hosts that together get 40 Mbit/s."""
    ways = {f"{way}_{key}": value for way in ("out", "in") for key, value in (("gbps", 0.04), ("limited_by", "link"))}
    return {"members": list(members), "confidence": confidence, **ways}


def test_groups_of_one_and_uncertain_groups_are_no_facts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    probed(tmp_path / "n.json", monkeypatch, [group("ab", 0.9), group("cd", 0.2), group("e", 0.9), group("f", 0.1)])
    lines = capsys.readouterr().err.splitlines()
    assert [line for line in lines if "40 Mbit/s out" in line] == [
        "plink: 2 hosts with a share 40 Mbit/s out, 40 Mbit/s in"
    ]
    (line,) = [line for line in lines if "uncertain" in line]
    assert all(word in line for word in ("c, d", "a group", "20%", "probe again", "--topology"))


def test_an_order_without_rates_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for groups in ([], [group("ab", 0.2), group("cd", 0.2), group("ef", 0.2)]):
        network = read_network(probed(tmp_path / "n.json", monkeypatch, groups))
        assert bool(network.shared_links) == bool(groups)
        done = typed("reorder", "n.json", "-o", "o.json", cwd=tmp_path)
        assert done.returncode == 0
        (line,) = [line for line in done.stderr.splitlines() if "warning" in line]
        assert "round trips alone" in line
    probed(tmp_path / "n.json", monkeypatch, [group("ab", 0.9), group("cd", 0.9), group("ef", 0.9)])
    assert "warning" not in typed("reorder", "n.json", "-o", "o.json", cwd=tmp_path).stderr
