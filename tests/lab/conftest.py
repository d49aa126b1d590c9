"""Fixtures of the lab tests."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conftest import Lab
from tests.lab.jobs import Running
from tests.lab.ssh_servers import Server, User
from tests.lab.traces import HERE


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Running]]:
    """Start plink commands in the test's folder; those still running at its end are killed."""
    begun: list[Running] = []

    def run(*words: str, **more: str) -> Running:
        begun.append(Running(tmp_path, *words, **more))
        return begun[-1]

    yield run
    for running in begun:
        running.close()


@pytest.fixture
def patient(small_lab: Lab) -> Iterator[Lab]:
    """A small lab that is healed afterwards."""
    yield small_lab
    healed = small_lab.plink("heal", cwd=HERE)
    assert healed.returncode == 0, healed.stderr


@pytest.fixture
def user(tmp_path: Path) -> User:
    """Somebody who never used SSH."""
    (tmp_path / "home" / ".ssh").mkdir(parents=True, mode=0o700)
    (tmp_path / "here").mkdir()
    return User(tmp_path / "home", tmp_path / "here")


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[list[Server]]:
    """Two servers with keys of their own."""
    made = [Server(tmp_path / "a"), Server(tmp_path / "b")]
    for server in made:
        server.start()
    yield made
    for server in made:
        server.stop()
