"""Functions are compiled once on a machine: while a probe waits for the network, else with a line on the terminal."""

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from plink.terminal import screen
from solvers.compilation import watch_compilation

_DELAY_S = 0.5
_SEARCHES = """
import json, sys
from plink.features.order.run import reorder
from plink.model.network import network_from_json
for document in json.load(sys.stdin):
    reorder(network_from_json(document, "sample"))
"""
_NOTICE = "compiling, once on this machine"


@contextlib.contextmanager
def compilation_notice(is_json: bool, delay_s: float = _DELAY_S) -> Iterator[None]:
    """Print the notice once, when functions are still being compiled ``delay_s`` after the first of them began to be.

    As a progress bar, it is for terminals only, and not with ``-q`` or for a JSON result.
    """
    if is_json or not sys.stderr.isatty():
        yield
        return
    notice = _Notice(delay_s)
    end = watch_compilation(notice.update)
    try:
        yield
    finally:
        end()
        notice.update(False)


class _Notice:
    def __init__(self, delay_s: float) -> None:
        self._delay_s, self._shown = delay_s, False
        self._first: float | None = None
        self._timer: threading.Timer | None = None

    def update(self, compiling: bool) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if not compiling or self._shown:
            return
        now = time.monotonic()
        self._first = now if self._first is None else self._first
        left_s = self._first + self._delay_s - now
        if left_s <= 0:
            self._show()
            return
        self._timer = threading.Timer(left_s, self._show)
        self._timer.daemon = True
        self._timer.start()

    def _show(self) -> None:
        self._shown = True
        screen.say(_NOTICE)


@contextlib.contextmanager
def compiling_meanwhile() -> Iterator[None]:
    """Compile what ``plink reorder`` needs, in a process that computes only while nothing else does.

    It ends with an error or Ctrl-C, else by itself.
    """
    process = None if _is_compiled() else compile_ahead()
    try:
        yield
    except BaseException:
        if process is not None:
            process.terminate()
        raise


def compile_ahead() -> "subprocess.Popen[bytes]":
    """Start searches on two small networks of racks, of which one is solved exactly; nobody reads the results, but
    what they need is compiled then."""
    process = subprocess.Popen(
        [sys.executable, "-c", _SEARCHES],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        start_new_session=True,
    )
    with contextlib.suppress(AttributeError, OSError):  # not Linux
        os.sched_setscheduler(process.pid, os.SCHED_IDLE, os.sched_param(0))
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError), process.stdin:
        process.stdin.write(json.dumps([_network(number) for number in (8, 16)]).encode())
    return process


def _network(number: int) -> dict[str, Any]:
    """Return the network file of so many hosts in four racks."""
    hosts = [f"h{k}" for k in range(number)]
    rates = {"out_gbps": 1.0, "in_gbps": 1.0}
    return {
        "schema": "plink.network/1",
        "hosts": [{"name": name} for name in hosts],
        "latency_us": [
            [0 if a == b else 50 + 200 * (a % 4 != b % 4) + a * b % 7 for b in range(number)] for a in range(number)
        ],
        "host_flows": [
            {"from": hosts[k], "to": hosts[k - 1], "gbps": 2.0, "both_ways": both}
            for k in range(number)
            for both in (False, True)
        ],
        "shared_links": [{"groups": [{"members": hosts[k::4], **rates} for k in range(4)]}],
    }


def _is_compiled() -> bool:
    """Whether Numba has the simulator, newer than its source, where it keeps what it compiled by default."""
    import solvers

    source = Path(solvers.__path__[0]) / "simulation" / "engine.py"
    cache_dir = os.environ.get("NUMBA_CACHE_DIR")
    files = (
        Path(cache_dir).glob("*/engine._run-*.nbi")
        if cache_dir
        else (source.parent / "__pycache__").glob("engine._run-*.nbi")
    )
    return any(file.stat().st_mtime > source.stat().st_mtime for file in files)
