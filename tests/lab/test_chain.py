"""`plink probe hosts.txt`, `plink reorder --algo ring`, `plink launch train.py`: as a user types them."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import Lab, plink

pytestmark = pytest.mark.lab


@pytest.fixture(scope="module")
def probed(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A user's folder after `plink lab hosts > hosts.txt` and `plink probe hosts.txt`."""
    folder = tmp_path_factory.mktemp("user")
    (folder / "hosts.txt").write_text(lab.plink("hosts", cwd=folder).stdout)
    done = plink("probe", "hosts.txt", "--count", "100", "--no-shared-links", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    assert "240 of 240 round trips between 16 hosts" in done.stderr
    assert done.stderr.rstrip().endswith("-> .plink/network.json")
    return folder


@pytest.fixture(scope="module")
def reordered(probed: Path) -> Path:
    """The same folder after `plink reorder --algo ring`."""
    done = plink("reorder", "--algo", "ring", cwd=probed)
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    assert "read .plink/network.json (" in done.stderr
    assert " old)" in done.stderr
    for word in ("given", "found", "median of random orders"):
        assert word in done.stderr
    return probed


def test_hosts_of_a_rack_are_contiguous_in_the_order(lab: Lab, reordered: Path) -> None:
    """The ring leaves each of the four racks once, and costs less than the order the hosts were given in."""
    order = json.loads((reordered / ".plink/order.json").read_text())
    assert order["schema"] == "plink.order/1"
    assert sorted(order["hosts"]) == lab.hosts.names
    racks = [lab.racks[name] for name in order["hosts"]]
    assert sum(a != b for a, b in zip(racks, racks[1:] + racks[:1], strict=True)) == 4
    assert order["lower_bound"] <= order["cost"] < order["baseline"]["given"]


@pytest.fixture
def bare_host(small_lab: Lab) -> Iterator[int]:
    """A host whose home and folders for temporary files are empty and its own; gives its sshd's process id."""
    pid = small_lab.state.file(small_lab.hosts.names[0], "sshd.pid").read_text().strip()
    enter = ["nsenter", "-t", pid, "-m", "-r"]
    done = []
    try:
        for folder in ("/root", "/tmp", "/var/tmp", "/dev/shm"):
            subprocess.run([*enter, "mount", "-t", "tmpfs", "tmpfs", folder], check=True)
            done.append(folder)
        yield int(pid)
    finally:
        for folder in reversed(done):
            subprocess.run([*enter, "umount", "-l", folder], check=True)


def test_no_file_is_left_on_a_host(small_lab: Lab, bare_host: int, tmp_path: Path) -> None:
    """Agents run from memory: a probe and a launch leave home and temporary folders as empty as they were."""
    (tmp_path / "hosts.txt").write_text(small_lab.plink("hosts", cwd=tmp_path).stdout)
    for words in (("probe", "hosts.txt", "--count", "20"), ("launch", "hostname")):
        done = plink(*words, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    assert small_lab.hosts.names[0] in done.stdout
    there = ["nsenter", "-t", str(bare_host), "-m", "-r"]
    find = [*there, "find", "/root", "/tmp", "/var/tmp", "/dev/shm", "-mindepth", "1"]
    assert subprocess.run(find, capture_output=True, text=True, check=True).stdout == ""


def test_a_lab_that_went_away(small_lab: Lab, tmp_path: Path) -> None:
    """The hosts file of a lab that is down: what to type, not a time-out."""
    text = small_lab.plink("hosts", cwd=tmp_path).stdout.replace(small_lab.name, "gone")
    (tmp_path / "hosts.txt").write_text(text)
    done = plink("probe", "hosts.txt", cwd=tmp_path)
    assert done.returncode == 2
    assert "plink lab up --name gone" in done.stderr
