"""An interrupt that was dealt with is an exit code, wherever it struck."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

# As when Ctrl-C comes while a module with dataclasses is being loaded: they are made by exec() of a string.
STRUCK = """
import plink.__main__ as program
import plink.cli.entry
def run(words):
    try:
        exec("raise KeyboardInterrupt")
    except KeyboardInterrupt:
        return 130
plink.cli.entry.run = run
program.main()
"""
# As when it comes while plink itself is being loaded.
STRUCK_WHILE_LOADING = """
import sys
class Finder:
    def find_spec(self, name, *_):
        if name == "typer":
            raise KeyboardInterrupt
sys.meta_path.insert(0, Finder())
import plink.__main__
plink.__main__.main()
"""


@pytest.mark.parametrize("program", [STRUCK, STRUCK_WHILE_LOADING])
def test_one_that_struck_inside_an_exec_or_an_import(program: str, tmp_path: Path) -> None:
    (tmp_path / "struck.py").write_text(program)
    words = [sys.executable, "-m", "struck"]  # only after -m does Python look back at its end
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


# As when it comes while HiGHS works in a thread of its own, and is done with it while Python ends.
SOLVES_WHEN_STRUCK = """
import itertools
import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
import plink.__main__ as program
import plink.cli.entry
from solvers.ordering.subtours import unless_stopped
shares = np.random.default_rng(0).integers(0, 100, (6, 50))
half = shares.sum(axis=1) // 2
def solve_for_ever():
    while True:
        solve()
def solve():
    both = np.hstack([shares, np.eye(6), -np.eye(6)])
    cost, most = np.r_[np.zeros(50), np.ones(12)], np.r_[np.ones(50), np.full(12, 9999)]
    where = LinearConstraint(both, half, half)
    milp(cost, constraints=where, bounds=Bounds(0, most), integrality=cost < 1, options={"time_limit": 0.02})
def run(words):
    asked = itertools.count()
    assert unless_stopped(solve_for_ever, lambda: next(asked) < 5) is None
    return 130
plink.cli.entry.run = run
program.main()
"""


def test_one_that_struck_while_a_solver_works_on(tmp_path: Path) -> None:
    (tmp_path / "struck.py").write_text(SOLVES_WHEN_STRUCK)
    words = [sys.executable, "-m", "struck"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


FAILS_WHEN_STRUCK = """
import os, signal
import plink.cli.app
from plink.cli import entry
from plink.errors import PlinkError
class Command:
    def __init__(self, requested):
        pass
    def main(self, **more):
        try:
            os.kill(os.getpid(), signal.SIGINT)
            signal.sigtimedwait([], 10)
        except KeyboardInterrupt:
            raise PlinkError("the ranks have gone")
plink.cli.app.command = Command
raise SystemExit(entry.run([]))
"""


def test_error_caused_by_an_interrupt_is_an_interrupt(tmp_path: Path) -> None:
    (tmp_path / "struck.py").write_text(FAILS_WHEN_STRUCK)
    words = [sys.executable, str(tmp_path / "struck.py")]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 130
    assert done.stderr.splitlines()[-1] == "plink: error: the ranks have gone"


# As when a signal comes while Numba compiles: LLVM calls back, the callback's interrupt is lost, the compilation fails.
COMPILES_WHEN_STRUCK = """
import ctypes, os, signal, sys
import plink.cli.app
from plink.cli import entry
def strike():
    os.kill(os.getpid(), int(sys.argv[1]))
    signal.sigtimedwait([], 10)
class Command:
    def __init__(self, requested):
        pass
    def main(self, **more):
        if sys.argv[2] == "callback":
            ctypes.CFUNCTYPE(None)(strike)()
            raise RuntimeError("no compiled object yet")
        try:
            strike()
        except KeyboardInterrupt:
            raise RuntimeError("no compiled object yet")
plink.cli.app.command = Command
raise SystemExit(entry.run([]))
"""


@pytest.mark.parametrize("route", ["callback", "context"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_defect_after_an_interrupt_is_the_interrupt(number: signal.Signals, route: str, tmp_path: Path) -> None:
    (tmp_path / "struck.py").write_text(COMPILES_WHEN_STRUCK)
    words = [sys.executable, str(tmp_path / "struck.py"), str(int(number)), route]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 128 + number
    again = "press Ctrl-C again to exit" if number == signal.SIGINT else "a second SIGTERM ends it"
    assert done.stderr.split("\n") == ["", f"plink: stopping; {again} at once", ""]
