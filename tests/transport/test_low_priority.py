"""Low priority of sessions, and its end."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

NOBODY = 65534
FILE = Path("/proc/self/autogroup")
SCRIPT = """
import ctypes, os, sys
from plink.transport.supervisor import set_low_priority  # before the user changes, who may not read it
if sys.argv[1]:
    os.setuid(int(sys.argv[1]))
    ctypes.CDLL(None).prctl(4, 1)  # PR_SET_DUMPABLE, or /proc/self would be root's
def nice():
    return open("/proc/self/autogroup").read().split()[-1]
said = [nice()]
for yes in (True, True, False):
    set_low_priority(yes)
    said.append(nice())
print(*said)
"""


@pytest.mark.skipif(not FILE.exists(), reason="this kernel has no autogroups")
@pytest.mark.parametrize(
    "user", [None, pytest.param(NOBODY, marks=pytest.mark.skipif(os.geteuid() != 0, reason="root"))]
)
def test_low_priority_of_a_session_can_be_lifted_by_its_user(user: int | None) -> None:
    root = Path(__file__).parent.parent.parent
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(user or "")], capture_output=True, text=True, cwd=root,
        env={**os.environ, "PYTHONPATH": str(root)}, start_new_session=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["0", "10", "10", "0"]


def test_without_autogroups_nothing_changes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from plink.transport import supervisor

    monkeypatch.setattr(supervisor, "_FILE", str(tmp_path / "none" / "autogroup"))
    supervisor.set_low_priority(True)
    assert not (tmp_path / "none").exists()


def test_retries_for_a_second_at_most(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The kernel refuses with EAGAIN while others change theirs."""
    from plink.transport import supervisor

    waits: list[float] = []
    (tmp_path / "autogroup").touch()
    monkeypatch.setattr(supervisor, "_FILE", str(tmp_path / "autogroup"))

    def busy(*_: object, **__: object) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(os, "write", busy)
    monkeypatch.setattr(time, "sleep", waits.append)
    supervisor.set_low_priority(True)
    assert len(waits) == 10
    assert sum(waits) <= 1.01
