"""Whether a launch goes by what was measured before."""

import contextlib
import datetime
from pathlib import Path

import numpy as np
import pytest

from benchmarks.clouds import three_tier
from plink.errors import PlinkError
from plink.features.launch.order import job_order
from plink.features.launch.request import JobRequest, LaunchSettings
from plink.features.order.request import OrderRequest
from plink.features.order.run import find_order
from plink.model.hosts import Host, Hosts, render_hosts
from plink.model.network import read_network
from plink.records import workspace
from tests.networks import details_from


class WouldProbe(Exception):
    """Raised instead of probing."""


def refuse(hosts: Hosts) -> None:
    raise WouldProbe


@pytest.mark.parametrize(("hours", "probes"), [(0.5, False), (2.0, True), (None, False)])
def test_a_copied_file_is_as_old_as_its_measurement(
    hours: float | None, probes: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is new; one that does not say when it was measured is as old as it is."""
    monkeypatch.chdir(tmp_path)
    made = three_tier(8, seed=4).network(np.random.default_rng(1))
    document = made.to_json()
    if hours is not None:
        at = datetime.datetime.now(datetime.UTC) - datetime.timedelta(hours=hours)
        document["measured_at"] = at.strftime("%Y-%m-%dT%H:%M:%SZ")
    workspace.prepare()
    type(made)(made.hosts, made.latency_us, details=details_from(document)).write(workspace.NETWORK)
    Path("hosts.txt").write_text(render_hosts(made.hosts))
    options = JobRequest(Path("hosts.txt"), algo="tree", settings=LaunchSettings(max_network_age_s=3600))
    if probes:
        with pytest.raises(WouldProbe):
            job_order(options, refuse)
    else:
        assert len(job_order(options).hosts) == 8


def test_some_of_the_hosts_are_ordered_by_the_file_of_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is probed, and neither the measurement nor the order of all is replaced."""
    monkeypatch.chdir(tmp_path)
    network = three_tier(16, seed=4).network(np.random.default_rng(1))
    workspace.prepare()
    network.write(workspace.NETWORK)
    find_order(network, OrderRequest("ring"), lambda _: None, lambda: False)[0].write(workspace.ORDER)
    before = {path: path.read_bytes() for path in (workspace.NETWORK, workspace.ORDER)}
    members = network.hosts.members[1::2]
    Path("hosts.txt").write_text(render_hosts(Hosts(members)))
    order = job_order(JobRequest(Path("hosts.txt")), may_probe=False)
    assert set(order.hosts) == set(members)
    indices = [network.hosts.names.index(host.name) for host in order.hosts]
    listed = [network.hosts.names.index(host.name) for host in members]

    def ring_us(ranks: list[int]) -> float:
        return float(network.rtt_us[ranks, np.roll(ranks, -1)].sum())

    assert ring_us(indices) <= ring_us(listed)
    assert order.network is not None  # the preflight compares with it
    assert {path: path.read_bytes() for path in before} == before


def test_measurement_of_other_hosts_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the probe that replaces it measures nothing."""
    monkeypatch.chdir(tmp_path)
    network = three_tier(8, seed=4).network(np.random.default_rng(1))
    workspace.prepare()
    network.write(workspace.NETWORK)
    others = tuple(Host(f"other-{k}", f"127.0.0.{k}", port=1) for k in (1, 2, 3))
    Path("hosts.txt").write_text(render_hosts(Hosts(others)))
    with contextlib.suppress(PlinkError):
        job_order(JobRequest(Path("hosts.txt")))
    copies = [path for path in workspace.FOLDER.glob("network*.json") if path != workspace.NETWORK]
    assert [read_network(path).fingerprint() for path in copies] == [network.fingerprint()]
