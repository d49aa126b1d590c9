"""Fixtures of the end-to-end tests: a lab that was probed, and commands under way."""

from pathlib import Path

import pytest

from tests.conftest import Lab, plink
from tests.lab.conftest import start

__all__ = ["start"]


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
