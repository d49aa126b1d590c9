"""``plink reorder`` on a small network: the racks are found, and the answer comes in every form that is asked for."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cli.files import listing, network, write
from tests.conftest import typed

# a and c are near, b and d are near: two hops of 10 us and two of 100 us, whatever the given order costs.
RING = ["a", "b", "d", "c"]
SUMMARY = (
    "plink: ring of 4 hosts, sum of round trips: given 400 us, found 220 us, median of random orders 220 us; "
    "no order costs less than 220 us (optimal)\n"
)


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """A folder with a network in it."""
    write(tmp_path / "n.json", network())
    return tmp_path


def test_a_ring_waits_for_no_library_that_it_does_not_use(here: Path) -> None:
    """Each of these takes a tenth of a second or more to load, and a ring of 64 hosts is found in half a second."""
    words = ["-X", "importtime", "-m", "plink", "reorder", "n.json", "--json"]
    done = subprocess.run([sys.executable, *words], cwd=here, capture_output=True, text=True, check=True)
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if line.startswith("import time:")}
    assert "numpy" in imported
    slow = {"ortools", "scipy.cluster", "scipy.sparse", "scipy.spatial", "scipy.special", "sklearn", "torch", "z3"}
    assert imported & slow == set()


def test_json_is_the_order_and_nothing_else(here: Path) -> None:
    done = typed("reorder", "n.json", "--json", "--seed", "5", cwd=here)
    assert done.returncode == 0
    order = json.loads(done.stdout)
    assert order["schema"] == "plink.order/1"
    assert (order["algo"], order["model"], order["objective"], order["seed"]) == ("ring", "latency", "sum", 5)
    assert order["hosts"] == RING
    assert (order["cost"], order["lower_bound"], order["baseline"]["given"]) == (220, 220, 400)
    assert order["network"].startswith("sha256:")
    assert list(listing(here)) == ["n.json"]


def scattered(hosts: int) -> dict[str, Any]:
    """Hosts in a square, at random: too many for all rings to be tried."""
    place = np.random.default_rng(2).random((hosts, 2))
    rows = np.round(1000 * np.linalg.norm(place[:, None] - place[None, :], axis=2), 3).tolist()
    return network(hosts=[{"name": f"h{k}"} for k in range(hosts)], latency_us=rows)


def test_a_terminal_sees_the_search(here: Path) -> None:
    """Also that its file, which is large, is read; what does not fit the width is cut, but the time is not."""
    write(here / "n.json", scattered(12))
    with (here / "n.json").open("a") as file:
        file.write(" " * 10_000_000)
    reading, writing = os.openpty()
    words = ["reorder", "n.json", "--format", "hosts", "--max-moves", "2000"]
    process = subprocess.Popen(
        [sys.executable, "-m", "plink", *words], cwd=here, stdout=subprocess.PIPE, stderr=writing, text=True,
        env=os.environ | {"COLUMNS": "40"},
    )  # fmt: skip
    os.close(writing)
    seen = b""
    with contextlib.suppress(OSError):  # as Linux says that nobody holds the other end any more
        while part := os.read(reading, 4096):
            seen += part
    os.close(reading)
    printed, _ = process.communicate(timeout=60)
    assert (process.returncode, len(printed.split())) == (0, 12)
    assert re.search(rb"\d:\d\d:\d\d.* reading n.json", seen)
    lines = [line for line in re.split(rb"\x1b\[[\d;?]*[A-Za-z]|[\r\n]", seen) if b"searching" in line]
    assert re.search(rb"\d:\d\d:\d\d.*searching: \d", seen)
    assert max(map(len, lines)) <= 40
    assert seen.splitlines()[-1].endswith(b"us") or b"no order costs less" in seen.splitlines()[-1]


@pytest.mark.parametrize("words", [
    pytest.param(("--algo", "ring"), marks=pytest.mark.extended), ("--algo", "halving-doubling"),
    pytest.param(("--algo", "bcube", "--prove"), marks=pytest.mark.extended),
], ids=" ".join)  # fmt: skip
def test_ctrl_c_keeps_the_best_order_so_far(words: tuple[str, ...], here: Path) -> None:
    """Written as it would be at the end, marked as not finished, and the exit code says that it was interrupted."""
    write(here / "n.json", scattered(64))
    reading, writing = os.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "plink", "reorder", "n.json", *words, "--time-limit", "100000", "-o", "order.json"],
        cwd=here, stdout=subprocess.DEVNULL, stderr=writing,
        # A shell without job control starts its background commands with Ctrl-C ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    os.close(writing)
    seen, sent = b"", False
    with contextlib.suppress(OSError):
        while part := os.read(reading, 4096):
            seen += part
            if not sent and b"moves" in seen:  # the search has begun
                process.send_signal(signal.SIGINT)
                sent = True
    os.close(reading)
    assert process.wait(60) == 128 + signal.SIGINT, seen
    order = json.loads((here / "order.json").read_text())
    assert order["interrupted"] is True
    assert sorted(order["hosts"]) == sorted(f"h{k}" for k in range(64))
    assert b"interrupted" in seen.splitlines()[-1]


def test_a_network_comes_from_standard_input(here: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "plink", "reorder", "-", "--format", "hosts"],
        input=(here / "n.json").read_text(),
        capture_output=True,
        text=True,
        cwd=here,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "a\nb\nd\nc slots=2\n")
    done = subprocess.run(
        [sys.executable, "-m", "plink", "reorder", "-"], input="{}", capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr.startswith("plink: error: standard input: not a network: it has no schema")


def test_a_result_named_nowhere_goes_to_the_workspace(here: Path) -> None:
    done = typed("reorder", "n.json", cwd=here)
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == "plink: order -> .plink/order.json\n" + SUMMARY
    assert json.loads((here / ".plink" / "order.json").read_text())["hosts"] == RING
    assert (here / ".plink" / ".gitignore").read_text() == "*\n"


def test_commands_chain_through_the_workspace(here: Path) -> None:
    """reorder takes what probe left, says so and how old it is; launch takes what reorder left."""
    (here / ".plink").mkdir()
    hosts = [{"name": name, "address": "127.0.0.1", "port": 1} for name in "abcd"]  # nobody listens at port 1
    last = write(here / ".plink" / "network.json", network(hosts=hosts))
    then = last.stat().st_mtime - 4 * 86400
    os.utime(last, (then, then))
    done = typed("reorder", "--format", "hosts", cwd=here)
    assert done.stdout == "a\nb\nd\nc\n"
    assert done.stderr == "plink: read .plink/network.json (4 days old)\nplink: order -> .plink/order.json\n" + SUMMARY
    done = typed("launch", "true", cwd=here, HOME=str(here))
    assert done.returncode == 1
    read_network, read_order, error = done.stderr.splitlines()
    assert read_network == "plink: read .plink/network.json (4 days old)"
    assert read_order.startswith("plink: read .plink/order.json (")
    assert error.startswith("plink: error: a: ")
    assert error.endswith("(and 3 more hosts: b, d, c)")  # in the order that was solved


def test_a_reader_that_leaves_is_no_error(here: Path) -> None:
    """As in ``plink reorder ... | head -0``."""
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "plink", "reorder", "n.json", "--json"],
            stdout=writing,
            stderr=subprocess.PIPE,
            cwd=here,
            check=False,
        )
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_ends_it_in_order(number: signal.Signals, here: Path) -> None:
    """The signal comes while the network is being read: a named pipe that nobody has finished writing."""
    os.mkfifo(here / "pipe")
    with subprocess.Popen(
        [sys.executable, "-m", "plink", "reorder", "pipe", "-o", "out"], cwd=here, stderr=subprocess.PIPE
    ) as process:
        with (here / "pipe").open("w"):  # opens once plink reads it
            process.send_signal(number)
            assert process.wait(20) == 128 + number
        assert process.stderr is not None
        assert process.stderr.read().startswith(b"\nplink: stopping; ")
    assert sorted(os.listdir(here)) == ["n.json", "pipe"]
