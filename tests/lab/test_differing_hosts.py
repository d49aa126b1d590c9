"""Hosts that differ, or cannot meet: one line that names those concerned, before anything of the user's is run.

The hosts of a lab share their file system, but each has a mount namespace of its own: a file hidden there is missing
on that host only, an interpreter laid over another is another one on that host only. Routes are broken between hosts
alone: the controller reaches all of them.
"""

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import Lab, plink
from tests.lab.jobs import write_hosts, write_script
from tests.lab.test_proof import TOUCH, ran
from tests.lab.traces import guests, inside
from tests.lab.waiting import until

pytestmark = pytest.mark.lab

LAUNCH = ("launch", "--hosts", "hosts.txt", "--order", "given")
# Another interpreter to whoever asks for its versions, and otherwise this one.
STUB = '#!/bin/sh\ncase "$2" in *importlib.metadata*) echo \'{answer}\'; exit;; esac\nexec python3 "$@"\n'
SAME = '{"python": "3.11", "torch": "2.9.0"}'


@pytest.fixture(autouse=True)
def _nothing_left(small_lab: Lab) -> Iterator[None]:
    """Nothing of a job that was refused runs on a host a little later."""
    yield
    until(lambda: not guests(small_lab), 10, "agents to be gone")


def on_host(lab: Lab, name: str, *command: str) -> None:
    """Run a command that must work, with the files that this host sees."""
    sshd = lab.state.file(name, "sshd.pid").read_text().strip()
    there = ["nsenter", f"--target={sshd}", "--mount", "--root"]
    subprocess.run([*there, *command], check=True, capture_output=True, timeout=30)


@contextlib.contextmanager
def mounted(lab: Lab, name: str, *what: str, at: Path) -> Iterator[None]:
    """Something else at a path, on one host."""
    on_host(lab, name, "mount", *what, str(at))
    try:
        yield
    finally:
        on_host(lab, name, "umount", "--lazy", str(at))


@contextlib.contextmanager
def no_route(lab: Lab, name: str, to: str) -> Iterator[None]:
    """One host has no route to another's address, while the others and the controller have."""
    # In front of the one to the same address that hosts of a rack have.
    route = ("unreachable", lab.hosts.by_name()[to].address)
    assert inside(lab, name, "ip", "route", "prepend", *route).returncode == 0
    try:
        yield
    finally:
        assert inside(lab, name, "ip", "route", "del", *route).returncode == 0


def refused(folder: Path, *words: str) -> str:
    """What the one line says with which a launch was refused; nothing was run."""
    done = plink(*LAUNCH, *words, cwd=folder)
    assert done.returncode == 1, done.stderr
    (error,) = done.stderr.splitlines()
    assert done.stdout == ""
    assert ran(folder) == []
    return error.removeprefix("plink: error: ")


def test_a_script_that_is_missing_on_one_host(small_lab: Lab, tmp_path: Path) -> None:
    write_hosts(small_lab, tmp_path)
    project = tmp_path / "project"
    project.mkdir()
    write_script(project, TOUCH)
    third = small_lab.hosts.names[2]
    with mounted(small_lab, third, "-t", "tmpfs", "plink-test", at=project):
        message = refused(tmp_path, "project/train.py")
    assert message == f"{third}: no such file: {tmp_path}/project/train.py; nothing was run"
    assert plink(*LAUNCH, "project/train.py", cwd=tmp_path).returncode == 0
    assert len(ran(tmp_path)) == 4


@pytest.mark.parametrize(
    ("answer", "version"),
    [
        ('{"python": "3.11", "torch": "2.8.0"}', "Python 3.11 with PyTorch 2.8.0"),
        ('{"python": "3.9", "torch": "2.9.0"}', "Python 3.9 with PyTorch 2.9.0"),
        ('{"python": "3.11", "torch": null}', "Python 3.11 without PyTorch"),
    ],
)
def test_versions_that_differ_on_one_host(answer: str, version: str, small_lab: Lab, tmp_path: Path) -> None:
    """That host is named with its versions; a setting runs it."""
    write_hosts(small_lab, tmp_path)
    script = write_script(tmp_path, TOUCH)
    for name, message in (("python", SAME), ("other", answer)):
        (tmp_path / name).write_text(STUB.replace("{answer}", message))
        (tmp_path / name).chmod(0o755)
    words = ("--python", str(tmp_path / "python"), script)
    *alike, last = small_lab.hosts.names
    with mounted(small_lab, last, "--bind", str(tmp_path / "other"), at=tmp_path / "python"):
        assert refused(tmp_path, *words) == (
            f"hosts differ: Python 3.11 with PyTorch 2.9.0 on {', '.join(alike)}, {version} on {last}; "
            "nothing was run (--set allow-version-mismatch=yes runs it)"
        )
        done = plink(*LAUNCH, "--set", "allow-version-mismatch=yes", *words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert len(ran(tmp_path)) == 4


def test_a_first_host_whose_answers_get_lost(small_lab: Lab, tmp_path: Path) -> None:
    """The third host's connection is never answered: port, address and both hosts are named."""
    write_hosts(small_lab, tmp_path)
    first, _, third, _ = small_lab.hosts.names
    with no_route(small_lab, first, third):
        message = refused(tmp_path, "--set", "master-port=29555", write_script(tmp_path, TOUCH))
    address = small_lab.hosts.by_name()[first].address
    assert message == (
        f"{third}: cannot reach port 29555 of {address} ({first}, rank 0's host): timed out; nothing was run"
    )


def test_a_host_without_a_way_to_the_first(small_lab: Lab, tmp_path: Path) -> None:
    write_hosts(small_lab, tmp_path)
    first, second, _, _ = small_lab.hosts.names
    with no_route(small_lab, second, first):
        message = refused(tmp_path, "--set", "master-port=29556", write_script(tmp_path, TOUCH))
    address = small_lab.hosts.by_name()[first].address
    assert message == (
        f"{second}: cannot reach port 29556 of {address} ({first}, rank 0's host): No route to host; nothing was run"
    )
