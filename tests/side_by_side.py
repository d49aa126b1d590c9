"""How two processes share the tests (`make test`: pytest-xdist, ``-n 2 --dist load``).

One runs all that start many processes, hosts or clocks, in their order; the other one what is left, file by file, and
makes room for the first. xdist's own groups of marks do not work with pytest 9.2, which keeps names of tests elsewhere.
"""

import contextlib
import os
import re
from typing import Any

import pytest

_CROWDED = re.compile(r"tests/(lab|probes|runners|runtime)/|tests/docs/test_running|tests/test_ci_workflows")
_NICENESS = os.nice(0)


def _row(name: str) -> str:
    """What a test runs in one row with."""
    return "crowded" if _CROWDED.match(name) else name.partition("::")[0]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """One whose units are the rows, the longest first."""
    from xdist.scheduler import LoadScopeScheduling

    class Rows(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return _row(nodeid)

    return Rows(config, log)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Who runs beside the crowded row waits for it."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        with contextlib.suppress(OSError):  # who is not root cannot come back
            os.setpriority(os.PRIO_PROCESS, 0, _NICENESS if _row(item.nodeid) == "crowded" else 19)
