"""What a process needs for its connections."""

import os
import resource

import pytest

from plink.runtime.allreduce.transport import raise_file_limit
from tests.runtime.ranks import results_of, run_ranks


def allow_connections(soft: int, hard: int) -> tuple[int, int, int]:
    """Returns the limits of open files afterwards, and how many are open."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    raise_file_limit(1000)
    return *resource.getrlimit(resource.RLIMIT_NOFILE), len(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize(("soft", "hard"), [(100, 4000), (100, 1100), (3000, 4000)])
def test_files_are_allowed_for_connections(soft: int, hard: int) -> None:
    """As many as are needed, as long as the hard limit lets them; a limit that is high enough stays."""
    ((now, still, opened),) = results_of(run_ranks(allow_connections, 1, soft, hard))
    assert still == hard
    assert now == (soft if soft == 3000 else min(hard, 1000 + 256 + opened))
