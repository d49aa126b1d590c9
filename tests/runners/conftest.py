"""Jobs whose hosts are child processes of the test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.child_hosts import ChildHosts
from tests.marked import Marked
from tests.runners.child_jobs import ChildJobs


@pytest.fixture
def jobs(tmp_path: Path) -> Iterator[ChildJobs]:
    """Jobs in an empty folder; their processes are gone afterwards."""
    with ChildHosts() as connector:
        yield ChildJobs(connector, tmp_path)


@pytest.fixture
def marked() -> Iterator[Marked]:
    """A mark for processes; those that a failed test leaves are killed."""
    processes = Marked()
    yield processes
    processes.kill()
