"""``plink reorder`` on a terminal compiles what it needs, says so, and finds it in the cache the next time."""

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from plink.terminal.compilation_notice import compile_ahead
from tests.cli.files import network, write


def _on_terminal(cwd: Path) -> str:
    """Return what ``plink reorder`` prints on a terminal, with a compilation cache in the folder."""
    terminal, end = pty.openpty()
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(cwd / "compiled")}
    command = [sys.executable, "-m", "plink", "reorder", "n.json", "--max-moves", "1000"]
    with subprocess.Popen(command, cwd=cwd, env=environment, stdout=subprocess.DEVNULL, stderr=end) as process:
        os.close(end)
        printed = b""
        try:
            while block := os.read(terminal, 4096):
                printed += block
        except OSError:  # the other end is closed
            pass
        os.close(terminal)
        assert process.wait() == 0, printed
    return printed.decode()


def test_compilation_is_announced_once(tmp_path: Path) -> None:
    hosts = [{"name": f"h{k}", "address": f"10.0.0.{k}"} for k in range(12)]
    rows = [[0 if i == j else 10 + (i - j) % 2 * 90 for j in range(12)] for i in range(12)]
    write(tmp_path / "n.json", network(hosts=hosts, latency_us=rows))
    assert _on_terminal(tmp_path).count("compiling") == 1
    assert "compiling" not in _on_terminal(tmp_path)


def test_what_was_compiled_while_probing_is_not_compiled_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also for hosts with other names, groups and rates."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "compiled"))
    assert compile_ahead().wait() == 0
    names = [f"m{k}" for k in range(9)]
    rows = [[0 if i == j else 30 + 40 * (i % 3 != j % 3) + (i * j) % 5 for j in range(9)] for i in range(9)]
    groups = [{"members": names[k::3], "out_gbps": 0.4, "in_gbps": 0.5} for k in range(3)]
    hosts = [{"name": name} for name in names]
    write(tmp_path / "n.json", network(hosts=hosts, latency_us=rows, shared_links=[{"groups": groups}]))
    assert "compiling" not in _on_terminal(tmp_path)
