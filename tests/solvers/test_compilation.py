"""The clock of searches stands while a function is compiled; compiled code is that of its sources."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from solvers.compilation import njit, search_clock


def test_searches_do_not_pay_for_compiling() -> None:
    @njit()
    def total(numbers: tuple[int, ...]) -> int:
        added = 0
        for number in numbers:
            added += number
        return added

    began, began_searching = time.monotonic(), search_clock()
    assert total((1, 2, 3)) == 6
    passed, counted = time.monotonic() - began, search_clock() - began_searching
    assert passed > 0.02
    assert 0 <= counted < passed / 2
    waited = search_clock()
    time.sleep(0.05)
    assert search_clock() - waited >= 0.05


CALLER = """
from callee import ADDED, called
from solvers.compilation import njit

@njit(cache=True)
def caller():
    return called() + ADDED

print(caller(), sum(caller.stats.cache_hits.values()))
"""
CALLEE = """
from constants import ADDED
from solvers.compilation import njit_inner

@njit_inner()
def called():
    return 1
"""


@pytest.mark.parametrize(
    ("file", "old", "new", "printed"), [("callee.py", "1", "5", "105 0"), ("constants.py", "100", "200", "201 0")]
)
def test_code_in_the_cache_is_compiled_anew_where_an_import_changed(
    file: str, old: str, new: str, printed: str, tmp_path: Path
) -> None:
    (tmp_path / "caller.py").write_text(CALLER)
    (tmp_path / "callee.py").write_text(CALLEE)
    (tmp_path / "constants.py").write_text("ADDED = 100")

    def run() -> str:
        environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "NUMBA_CACHE_DIR": str(tmp_path / "compiled")}
        command = [sys.executable, "caller.py"]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    assert (run(), run()) == ("101 0", "101 1")
    (tmp_path / file).write_text((tmp_path / file).read_text().replace(old, new))
    assert run() == printed
