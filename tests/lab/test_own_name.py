"""plink on one of the hosts, whose own name stands for a loopback address there (`127.0.1.1 NAME`: Debian, Ubuntu)."""

import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from plink.model.hosts import Hosts
from probes.measurements import Measurements
from probes.methods import ProbeSettings
from probes.session import ProbeSession
from runners.job.fleet_runner import FleetRunner
from runners.job.runner import Job, RunContext, RunObserver
from runners.lab import kernel
from runners.ssh.connector import SshConnector
from runners.ssh.settings import Identity
from tests.conftest import Lab
from tests.lab.waiting import until

pytestmark = pytest.mark.lab
LOOPBACK = "127.0.1.1"


@pytest.fixture
def connector(small_lab: Lab, tmp_path: Path) -> Iterator[SshConnector]:
    """The first host's sshd listens at its loopback address as well."""
    first, state = small_lab.hosts.members[0], small_lab.state
    pid = tmp_path / "sshd.pid"
    (tmp_path / "sshd.conf").write_text(
        state.file(first.name, "sshd.conf")
        .read_text()
        .replace(f"ListenAddress {first.address}", f"ListenAddress {LOOPBACK}")
        .replace(str(state.file(first.name, "sshd.pid")), str(pid))
    )
    known_hosts = state.identity.known_hosts.read_text()
    (key,) = [line.split(" ", 1)[1] for line in known_hosts.splitlines() if line.startswith(f"{first.address} ")]
    (tmp_path / "known").write_text(f"{known_hosts}{LOOPBACK} {key}\n")
    words = ["ip", "netns", "exec", small_lab.blueprint.namespace(first.name)]
    sshd = subprocess.Popen([*words, "/usr/sbin/sshd", "-D", "-f", str(tmp_path / "sshd.conf")])
    try:
        until(lambda: pid.exists() and bool(pid.read_text().strip()), 10, "sshd")
        yield SshConnector(identity=Identity(state.identity.key, tmp_path / "known"))
    finally:
        sshd.terminate()
        sshd.wait()


def as_seen_there(lab: Lab) -> Hosts:
    """Two hosts as the first of them, called by its own name, resolves them."""
    first, second = lab.hosts.members[:2]
    return Hosts((replace(first, address=LOOPBACK), second))


def test_it_is_probed(small_lab: Lab, connector: SshConnector) -> None:
    hosts = as_seen_there(small_lab)
    with kernel.inside(small_lab.blueprint.namespace(hosts.names[0])):
        result = Measurements(hosts)
        with ProbeSession(result, connector, ProbeSettings(count=60), time.monotonic) as session:
            session.start(lambda phase, done, total: None)
            session.measure([(0, 1)], "stamp", lambda: None)
    assert result.errors == {}
    assert (result.latency[~np.eye(2, dtype=bool)] > 0).all()
    addresses = [machine.address for machine in result.machines if machine is not None]
    assert addresses == [host.address for host in small_lab.hosts.members[:2]]


def test_it_takes_part_in_a_job(small_lab: Lab, connector: SshConnector, tmp_path: Path) -> None:
    """The other host reaches it, and uses its own network for that."""
    hosts = as_seen_there(small_lab)
    printed: dict[int | None, str] = {}
    program = "import os; print(os.environ['MASTER_ADDR'], os.environ['GLOO_SOCKET_IFNAME'])"
    job = Job(sys.executable, ("-c", program), (str(tmp_path),), (sys.executable,), {})
    observer = RunObserver(lambda rank, _, line: printed.update({rank: line.strip()}))
    watch = RunContext(observer, time.monotonic)
    with kernel.inside(small_lab.blueprint.namespace(hosts.names[0])):
        assert FleetRunner("ssh", connector).run(job, hosts, watch).exit_code == 0
    first = small_lab.hosts.members[0]
    assert printed == dict.fromkeys((0, 1), f"{first.address} eth0")
