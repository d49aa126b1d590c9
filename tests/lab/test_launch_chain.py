"""`plink launch` with nothing but hosts: measured and put in order first, unless that is at hand and young enough."""

import datetime
import json
from pathlib import Path

import pytest

from tests.conftest import Lab, plink
from tests.lab.jobs import write_hosts

pytestmark = pytest.mark.lab
PROBED = "12 of 12 round trips between 4 hosts"


def launched(folder: Path, *words: str) -> str:
    """What it said on standard error."""
    done = plink("launch", "--hosts", "hosts.txt", *words, "true", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "4/4 ranks placed; starting" in done.stderr
    return done.stderr


def test_what_is_measured_when(small_lab: Lab, tmp_path: Path) -> None:
    write_hosts(small_lab, tmp_path)
    network = tmp_path / ".plink" / "network.json"
    first = launched(tmp_path)
    assert "nothing was measured of these 4 hosts here yet: probing them" in first
    assert PROBED in first
    assert "ring of 4 hosts" in first

    again = launched(tmp_path)
    assert PROBED not in again
    assert "read .plink/order.json" in again

    other = launched(tmp_path, "--algo", "halving-doubling")
    assert PROBED not in other
    assert "halving-doubling of 4 hosts" in other

    old = datetime.datetime.now(datetime.UTC) - datetime.timedelta(hours=3)  # a copy is as old as its measurement
    document = json.loads(network.read_text())
    network.write_text(json.dumps(document | {"measured_at": old.isoformat()}))
    assert PROBED not in launched(tmp_path, "--set", "max-network-age=4h")
    assert PROBED not in launched(tmp_path, "--set", "max-network-age=1h", "--order", "given")
    too_old = launched(tmp_path, "--set", "max-network-age=1h")
    assert "3 h old, more than max-network-age: probing" in too_old
    assert PROBED in too_old


def test_a_job_of_some_of_the_measured_hosts(small_lab: Lab, tmp_path: Path) -> None:
    """It is ordered by the measurement of all, which stays; so are the schedules of its backend."""
    write_hosts(small_lab, tmp_path)
    assert plink("probe", "hosts.txt", "--count", "200", cwd=tmp_path).returncode == 0
    measured = (tmp_path / ".plink" / "network.json").read_text()
    lines = (tmp_path / "hosts.txt").read_text().splitlines()
    some = [line for line in lines if not line.startswith("node-02")]
    assert len(some) == len(lines) - 1
    (tmp_path / "hosts.txt").write_text("\n".join(some) + "\n")
    for words in ((), ("--backend", "auto")):
        done = plink("launch", "--hosts", "hosts.txt", *words, "true", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert "3 of the 4 hosts of .plink/network.json" in done.stderr
        assert "probing them" not in done.stderr
        assert "3/3 ranks placed; starting" in done.stderr
    assert (tmp_path / ".plink" / "network.json").read_text() == measured
    order = json.loads((tmp_path / ".plink" / "order.json").read_text())
    assert sorted(order["hosts"]) == ["node-01", "node-03", "node-04"]


def test_missing_script_is_reported_before_probing(small_lab: Lab, tmp_path: Path) -> None:
    """And before an order is searched for."""
    write_hosts(small_lab, tmp_path)
    done = plink("launch", "--hosts", "hosts.txt", "nosuch.py", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert "nosuch.py" in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / ".plink").exists()
    probed = ("probe", "hosts.txt", "--count", "50", "--no-shared-links")
    assert plink(*probed, cwd=tmp_path).returncode == 0
    done = plink("launch", "--hosts", "hosts.txt", "nosuch.py", cwd=tmp_path)
    assert done.returncode == 1
    assert "nosuch.py" in done.stderr
    assert not (tmp_path / ".plink" / "order.json").exists()


def test_two_hosts_have_nothing_to_be_ordered(small_lab: Lab, tmp_path: Path) -> None:
    write_hosts(small_lab, tmp_path, names=small_lab.hosts.names[:2])
    done = plink("launch", "--hosts", "hosts.txt", "true", cwd=tmp_path)
    assert done.returncode == 0
    assert done.stderr == "plink: 2/2 ranks placed; starting true\n"


def test_a_plan_says_the_order_and_the_environment(small_lab: Lab, tmp_path: Path) -> None:
    """And its slots must be the hosts file's."""
    write_hosts(small_lab, tmp_path)
    assert plink("probe", "hosts.txt", "--count", "50", "--no-shared-links", cwd=tmp_path).returncode == 0
    assert plink("plan", "--algo", "ring", "-o", "p.json", cwd=tmp_path).returncode == 0
    launched(tmp_path, "--order", "p.json")
    done = plink("launch", "--order", "p.json", "true", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    write_hosts(small_lab, tmp_path, slots=3)
    done = plink("launch", "--hosts", "hosts.txt", "--order", "p.json", "true", cwd=tmp_path)
    assert done.returncode == 2
    assert "1 slots, the hosts file 3; plan again" in done.stderr.splitlines()[-1]
