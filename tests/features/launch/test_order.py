"""Whether a launch goes by what was measured before."""

import datetime
from pathlib import Path

import numpy as np
import pytest

from benchmarks.clouds import three_tier
from plink.features.launch.order import job_order
from plink.features.launch.request import JobRequest, LaunchSettings
from plink.model.hosts import Hosts, render_hosts
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
