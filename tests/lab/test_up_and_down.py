"""Labs come and go: twice, side by side, with what is known about them kept apart."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from plink.model.hosts import read_hosts
from runners.lab import kernel
from tests.conftest import Lab, lab_up, plink
from tests.lab.traces import HERE, left_of, routes_of_the_machine

pytestmark = pytest.mark.lab

SMALL = ("--racks", "2", "--hosts-per-rack", "2")


@pytest.fixture
def name() -> Iterator[str]:
    """A name for a lab that is taken down whatever happens."""
    chosen = f"ud{os.getpid()}"
    yield chosen
    plink("lab", "down", "--name", chosen, cwd=HERE)


def test_up_twice_and_down_twice(name: str, tmp_path: Path) -> None:
    """The second `up` leaves the lab as it is, the second `down` finds nothing, both say so and end with 0."""
    first = lab_up(name, *SMALL)
    assert routes_of_the_machine() == ["unreachable 198.18.0.0/15"]
    pids = {place.name: first.state.file(place.name, "sshd.pid").read_text() for place in first.blueprint.places}
    again = plink("lab", "up", "--name", name, *SMALL, cwd=tmp_path)
    assert again.returncode == 0
    assert "was up already" in again.stderr
    assert pids == {host: first.state.file(host, "sshd.pid").read_text() for host in pids}, "a host was restarted"
    down = [plink("lab", "down", "--name", name, cwd=tmp_path) for _ in range(2)]
    assert [done.returncode for done in down] == [0, 0]
    assert "is down" in down[0].stderr
    assert "was not up" in down[1].stderr
    assert left_of(name) == []


def test_other_settings_are_refused(small_lab: Lab, tmp_path: Path) -> None:
    """A lab that is up is not changed behind the back of those who use it."""
    before = small_lab.plink("status", "--json", cwd=tmp_path).stdout
    done = small_lab.plink("up", "--racks", "3", cwd=tmp_path)
    assert done.returncode == 2
    assert f"plink lab down --name {small_lab.name}" in done.stderr
    assert small_lab.plink("status", "--json", cwd=tmp_path).stdout == before


def test_two_labs_side_by_side(small_lab: Lab, tmp_path: Path) -> None:
    """The same addresses in two labs are two hosts; one lab goes and the other stays as it was, guarded."""
    name = f"sb{os.getpid()}"
    try:
        other = lab_up(name, *SMALL, "--seed", "3")
        assert other.hosts.members == small_lab.hosts.members
        host = other.hosts.names[0]
        namespaces = [
            lab.plink("exec", host, "--", "readlink", "/proc/self/ns/net", cwd=tmp_path).stdout
            for lab in (other, small_lab)
        ]
        assert namespaces[0] != namespaces[1]
        assert all(namespaces)
    finally:
        plink("lab", "down", "--name", name, cwd=HERE)
    assert left_of(name) == []
    assert routes_of_the_machine() == ["unreachable 198.18.0.0/15"]
    done = small_lab.plink("exec", host, "--", "hostname", cwd=tmp_path)
    assert done.stdout == f"{host}\n", done.stderr


def test_a_name_that_begins_like_another_is_not_taken_down(small_lab: Lab, tmp_path: Path) -> None:
    """`down --name s1` says nothing about `s12`."""
    plink("lab", "down", "--name", small_lab.name[:-1], cwd=tmp_path)
    hosts = json.loads(small_lab.plink("status", "--json", cwd=tmp_path).stdout)["hosts"]
    assert all(host["alive"] for host in hosts)


def test_the_hosts_file_does_not_give_the_racks_away(lab: Lab, tmp_path: Path) -> None:
    """Racks are dealt to names and addresses at random, and the truth stands in a file of its own."""
    done = lab.plink("hosts", cwd=tmp_path)
    assert done.returncode == 0
    path = tmp_path / "hosts.txt"
    path.write_text(done.stdout)
    assert read_hosts(path) == lab.hosts
    assert done.stdout.splitlines()[0] == f"# plink-lab: {lab.name}"
    assert "rack" not in done.stdout
    by_name = [lab.racks[name] for name in sorted(lab.racks)]
    by_address = [lab.racks[host.name] for host in sorted(lab.hosts, key=lambda host: host.address.split("."))]
    for racks in (by_name, by_address):
        assert racks != sorted(racks)
    truth = json.loads(lab.state.truth_file.read_text())
    assert truth == {"schema": "plink.truth/1", "racks": lab.racks}


def test_lab_layout_depends_on_the_seed(lab: Lab) -> None:
    """What a lab is follows from its settings."""
    from dataclasses import replace

    from runners.lab.blueprint import draw

    settings = lab.blueprint.settings
    assert draw(settings) == lab.blueprint
    assert draw(replace(settings, seed=settings.seed + 1)).places != lab.blueprint.places


def test_private_keys_are_for_root_only(small_lab: Lab) -> None:
    """Others on the machine cannot read what logs in to the hosts."""
    assert small_lab.state.folder.stat().st_mode & 0o077 == 0
    assert small_lab.state.identity.key.stat().st_mode & 0o077 == 0


def test_a_route_of_somebody_else_into_the_labs_addresses_is_refused(tmp_path: Path) -> None:
    """Such a route would win over the guard: packets for lab addresses could leave the machine."""
    name = f"ro{os.getpid()}"
    # In a namespace that plays the machine: the real one's routes are not ours to change.
    kernel.ip([f"netns add pt.{name}"])
    try:
        kernel.ip(["link set lo up", "route add 198.18.4.0/24 dev lo"], f"pt.{name}")
        done = subprocess.run(
            ["ip", "netns", "exec", f"pt.{name}", sys.executable, "-m", "plink", "lab", "up", "--name", name, *SMALL],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
    finally:
        kernel.ip([f"netns del pt.{name}"])
    assert done.returncode == 1, done.stderr
    assert "198.18.4.0/24 dev lo" in done.stderr
    assert left_of(name) == []


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("--racks", "0"), "--racks"),
        (("--racks", "64", "--hosts-per-rack", "64"), "--hosts-per-rack"),
        (("--host-rate", "fast"), "fast"),
        (("--host-rate", "0"), "0"),
        (("--mtu", "9"), "--mtu"),
        (("--name", "../../etc"), "--name"),
        (("--name", "a b"), "--name"),
        (("--private-folder", "scratch"), "scratch"),
        (("--private-folder", "/"), "--private-folder /"),
        (("--private-folder", "/no/such/folder"), "/no/such/folder"),
        (("--private-folder", "/usr/bin"), "/usr"),
        (("--private-folder", "/run"), "/run"),
        (("--private-folder", "/srv=node-99"), "node-99"),
    ],
)
def test_settings_that_cannot_be_are_refused(words: tuple[str, ...], named: str, tmp_path: Path) -> None:
    """Exit code 2, one line that names the setting, nothing made."""
    name = f"no{os.getpid()}"
    done = plink("lab", "up", *(words if "--name" in words else ("--name", name, *words)), cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert named in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert left_of(name) == []


def test_private_folders(name: str, tmp_path: Path) -> None:
    """Of all hosts, or of one; this machine and the other hosts see nothing of it, and it outlives a host's death."""
    every, single = tmp_path / "every", tmp_path / "one"
    every.mkdir(mode=0o777)
    single.mkdir()
    every.chmod(0o1777)
    words = ("--private-folder", str(every), "--private-folder", f"{single}=node-02")
    done = plink("lab", "up", "--name", name, *SMALL, *words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr

    def on(host: str, script: str) -> str:
        return plink("lab", "exec", "--name", name, host, "--", "sh", "-c", script, cwd=Path("/")).stdout

    for host in ("node-01", "node-02"):
        on(host, f"echo {host} > {every}/who; echo {host} > {single}/who")
    assert [on(host, f"cat {every}/who") for host in ("node-01", "node-02")] == ["node-01\n", "node-02\n"]
    assert on("node-01", f"stat -c %a {every}") == "1777\n"
    assert list(every.iterdir()) == []
    assert (single / "who").read_text() == on("node-01", f"cat {single}/who") == "node-01\n"
    assert on("node-02", f"cat {single}/who") == "node-02\n"
    plink("lab", "kill", "--name", name, "node-02", cwd=tmp_path)
    plink("lab", "heal", "--name", name, cwd=tmp_path)
    assert on("node-02", f"cat {single}/who") == "node-02\n"
    assert plink("lab", "up", "--name", name, *SMALL, *words, cwd=tmp_path).returncode == 0  # as it is
    assert plink("lab", "up", "--name", name, *SMALL, cwd=tmp_path).returncode == 2  # other settings
    plink("lab", "down", "--name", name, cwd=tmp_path)
    assert left_of(name) == []
