"""Whether a launch goes by what was measured before."""

import contextlib
import datetime
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.clouds import three_tier
from plink.errors import PlinkError, UsageError
from plink.features.launch.order import job_order
from plink.features.launch.request import JobRequest, LaunchSettings
from plink.model.hosts import HUB, Host, Hosts, render_hosts
from plink.model.network import Network, read_network
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


def test_roles_are_those_of_the_hosts_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A host that was measured as a worker, and is a hub now, takes no rank."""
    monkeypatch.chdir(tmp_path)
    network = three_tier(8, seed=4).network(np.random.default_rng(1))
    workspace.prepare()
    network.write(workspace.NETWORK)
    first, *others = network.hosts.members
    Path("hosts.txt").write_text(render_hosts(Hosts((replace(first, role=HUB, slots=0), *others))))
    order = job_order(JobRequest(Path("hosts.txt")), may_probe=False)
    assert {host.name for host in order.hosts} == {host.name for host in others}


@pytest.mark.parametrize(("hosts", "rates", "is_kept"), [(8, False, False), (8, True, True), (3, False, True)])
def test_measurement_that_has_more_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hosts: int, rates: bool, is_kept: bool
) -> None:
    """Rates, or further hosts; also where the probe that replaces it, for it is too old, measures nothing."""
    monkeypatch.chdir(tmp_path)
    members = tuple(Host(f"node-{k}", f"127.0.0.{k + 1}", port=1) for k in range(8))
    network = replace(three_tier(8, seed=4).network(np.random.default_rng(1)), hosts=Hosts(members))
    if rates:
        network = replace(network, bandwidth_gbps=np.full((8, 8), 10.0))
    workspace.prepare()
    network.write(workspace.NETWORK)
    Path("hosts.txt").write_text(render_hosts(Hosts(members[:hosts])))
    with contextlib.suppress(PlinkError):
        job_order(JobRequest(Path("hosts.txt"), settings=LaunchSettings(max_network_age_s=0)))
    copies = [path for path in workspace.FOLDER.glob("network*.json") if path != workspace.NETWORK]
    assert [read_network(path).fingerprint() for path in copies] == [network.fingerprint()] * is_kept


@pytest.mark.parametrize("dry_run", [False, True])
def test_a_dry_run_leaves_the_last_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dry_run: bool) -> None:
    monkeypatch.chdir(tmp_path)
    network = three_tier(8, seed=4).network(np.random.default_rng(1))
    workspace.prepare()
    network.write(workspace.NETWORK)
    Path("hosts.txt").write_text(render_hosts(network.hosts))
    job_order(JobRequest(Path("hosts.txt"), algo="tree"), may_probe=False)
    before = workspace.ORDER.read_bytes()
    order = job_order(JobRequest(Path("hosts.txt"), algo="ring", dry_run=dry_run), may_probe=False)
    assert order.source == "plink (ring)"
    assert (workspace.ORDER.read_bytes() == before) == dry_run


def test_a_probe_that_measured_nothing_is_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It leaves a file without a round trip where there is none, which is not kept under another name."""
    monkeypatch.chdir(tmp_path)
    members = tuple(Host(f"node-{k}", f"127.0.0.{k + 1}", port=1) for k in range(4))
    nothing = np.where(np.eye(4, dtype=bool), 0.0, np.nan)
    workspace.prepare()
    Network(Hosts(members), nothing, bandwidth_gbps=nothing).write(workspace.NETWORK)
    Path("hosts.txt").write_text(render_hosts(Hosts(members)))
    for options in (JobRequest(Path("hosts.txt")), JobRequest()):
        with pytest.raises(UsageError, match="nothing was measured"):
            job_order(options, may_probe=False)
        with pytest.raises(PlinkError, match="refused"):
            job_order(options)
    assert [path.name for path in workspace.FOLDER.glob("network*.json")] == ["network.json"]


@pytest.mark.parametrize("unknown", ["pairs", "lost"])
def test_hosts_that_were_away_are_probed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unknown: str) -> None:
    """Some of those of the file, which were away when it was measured; of all of its hosts they are what it has."""
    monkeypatch.chdir(tmp_path)
    network = three_tier(8, seed=4).network(np.random.default_rng(1))
    rtt, names = network.latency_us.copy(), network.hosts.names
    if unknown == "pairs":
        rtt[2] = rtt[:, 2] = np.nan
    details = details_from({} if unknown == "pairs" else {"lost_hosts": {names[2]: "its agent was lost"}})
    workspace.prepare()
    Network(network.hosts, rtt, details=details).write(workspace.NETWORK)
    for members, is_known in ((network.hosts.members[:5], False), (network.hosts.members[3:], True)):
        Path("hosts.txt").write_text(render_hosts(Hosts(members)))
        if is_known:
            assert len(job_order(JobRequest(Path("hosts.txt")), may_probe=False).hosts) == len(members)
        else:
            with pytest.raises(UsageError, match="were away"):
                job_order(JobRequest(Path("hosts.txt")), may_probe=False)


@pytest.mark.parametrize("hubs", [0, 1])
def test_an_order_of_some_hosts_needs_their_file(hubs: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the job would begin on all of them, and write over the order. An order of before the measurement is old."""
    monkeypatch.chdir(tmp_path)
    network = three_tier(8, seed=4).network(np.random.default_rng(1))
    workspace.prepare()
    network.write(workspace.NETWORK)
    members = network.hosts.members
    with_hubs = (*members[:4], *(replace(host, role=HUB, slots=0) for host in members[4 : 4 + hubs]))
    Path("hosts.txt").write_text(render_hosts(Hosts(with_hubs)))
    assert len(job_order(JobRequest(Path("hosts.txt")), may_probe=False).hosts) == 4
    order = workspace.ORDER.read_text()
    for algo in (None, "tree"):
        with pytest.raises(UsageError, match="--hosts"):
            job_order(JobRequest(algo=algo), may_probe=False)
    assert workspace.ORDER.read_text() == order
    os.utime(workspace.ORDER, (0, 0))
    assert len(job_order(JobRequest(), may_probe=False).hosts) == 8
