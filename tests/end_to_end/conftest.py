"""Fixtures of the end-to-end tests: a lab that was probed, and commands under way."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conftest import Lab, plink
from tests.lab.jobs import Running


@pytest.fixture(scope="module")
def probed(small_lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A user's folder after ``plink lab hosts > hosts.txt`` and ``plink probe hosts.txt``."""
    folder = tmp_path_factory.mktemp("user")
    (folder / "hosts.txt").write_text(small_lab.plink("hosts", cwd=folder).stdout)
    done = plink("probe", "hosts.txt", "--count", "400", "--no-shared-links", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    assert "12 of 12 round trips between 4 hosts" in done.stderr
    return folder


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
