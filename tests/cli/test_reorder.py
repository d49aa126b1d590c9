"""``plink reorder`` on a small network: the racks are found, and the answer comes in every form that is asked for."""

import contextlib
import gzip
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cli.files import listing, network, write
from tests.conftest import plink

# a and c are near, b and d are near: two hops of 10 us and two of 100 us, whatever the given order costs.
RING = ["a", "b", "d", "c"]
SUMMARY = (
    "plink: ring of 4 hosts, sum of round trips: given 400 us, found 220 us, median of random orders 220 us; "
    "no order under 220 us\n"
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
    done = plink("reorder", "n.json", "--json", "--seed", "5", cwd=here)
    assert done.returncode == 0
    order = json.loads(done.stdout)
    assert order["schema"] == "plink.order/1"
    assert (order["algo"], order["model"], order["objective"], order["seed"]) == ("ring", "latency", "sum", 5)
    assert order["hosts"] == RING
    assert (order["cost"], order["lower_bound"], order["baseline"]["given"]) == (220, 220, 400)
    assert order["network"].startswith("sha256:")
    assert list(listing(here)) == ["n.json"]


@pytest.mark.parametrize(
    ("name", "text"),
    [("hosts", "a\nb\nd\nc\n"), ("openmpi", "10.0.0.1\n10.0.0.2\n10.0.0.4\n10.0.0.3\n10.0.0.3\n")],
)
def test_formats_on_standard_output(name: str, text: str, here: Path) -> None:
    for more in ((), ("-o", "-")):
        done = plink("reorder", "n.json", "--format", name, *more, cwd=here)
        assert (done.returncode, done.stdout, done.stderr) == (0, text, SUMMARY)
    assert list(listing(here)) == ["n.json"]


@pytest.mark.parametrize("name", ["hosts", "openmpi", "order"])
def test_formats_in_a_file(name: str, here: Path) -> None:
    printed = plink("reorder", "n.json", "--format", name, cwd=here).stdout
    done = plink("reorder", "n.json", "--format", name, "-o", "out", cwd=here)
    assert (done.returncode, done.stdout) == (0, "")
    assert (here / "out").read_text() == printed != ""
    assert sorted(listing(here)) == ["n.json", "out"]


def test_an_order_is_what_a_file_holds_unless_asked(here: Path) -> None:
    assert plink("reorder", "n.json", "-o", "o.json.gz", cwd=here).returncode == 0
    assert json.loads(gzip.decompress((here / "o.json.gz").read_bytes()))["hosts"] == RING


def test_the_same_seed_gives_the_same_bytes(here: Path) -> None:
    first, second = (plink("reorder", "n.json", "--json", "--seed", "3", cwd=here).stdout for _ in range(2))
    assert first == second != ""


def scattered(hosts: int) -> dict[str, Any]:
    """Hosts in a square, at random: too many for all rings to be tried."""
    place = np.random.default_rng(2).random((hosts, 2))
    rows = np.round(1000 * np.linalg.norm(place[:, None] - place[None, :], axis=2), 3).tolist()
    return network(hosts=[{"name": f"h{k}"} for k in range(hosts)], latency_us=rows)


@pytest.mark.parametrize("algo", ["ring", "tree"])
def test_moves_and_a_seed_give_the_same_bytes(algo: str, here: Path) -> None:
    """However long it takes: no clock is looked at. A ring of 40 hosts is far from what was given."""
    write(here / "n.json", scattered(40))
    words = ("reorder", "n.json", "--json", "--moves", "300", "--algo", algo)
    first, second = (plink(*words, cwd=here).stdout for _ in range(2))
    assert first == second != ""
    order = json.loads(first)
    assert order["lower_bound"] <= order["cost"] < 0.6 * order["baseline"]["given"]
    assert 0 < order["moves"] <= 300


def test_a_terminal_sees_the_search(here: Path) -> None:
    write(here / "n.json", scattered(12))
    reading, writing = os.openpty()
    words = ["reorder", "n.json", "--format", "hosts", "--moves", "2000"]
    process = subprocess.Popen(
        [sys.executable, "-m", "plink", *words], cwd=here, stdout=subprocess.PIPE, stderr=writing, text=True
    )
    os.close(writing)
    seen = b""
    with contextlib.suppress(OSError):  # as Linux says that nobody holds the other end any more
        while part := os.read(reading, 4096):
            seen += part
    os.close(reading)
    printed, _ = process.communicate(timeout=60)
    assert (process.returncode, len(printed.split())) == (0, 12)
    assert b"searching" in seen
    assert seen.splitlines()[-1].endswith(b"us") or b"no order under" in seen.splitlines()[-1]


def test_no_time_at_all_still_gives_an_order(here: Path) -> None:
    done = plink("reorder", "n.json", "--json", "--time-limit", "0", cwd=here)
    order = json.loads(done.stdout)
    assert sorted(order["hosts"]) == ["a", "b", "c", "d"]
    assert order["cost"] <= order["baseline"]["given"]


def test_a_network_comes_from_standard_input(here: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "plink", "reorder", "-", "--format", "hosts"],
        input=(here / "n.json").read_text(),
        capture_output=True,
        text=True,
        cwd=here,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "a\nb\nd\nc\n")
    done = subprocess.run(
        [sys.executable, "-m", "plink", "reorder", "-"], input="{}", capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr.startswith("plink: error: standard input: schema: ")


def test_a_result_named_nowhere_goes_to_the_workspace(here: Path) -> None:
    done = plink("reorder", "n.json", cwd=here)
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
    done = plink("reorder", "--format", "hosts", cwd=here)
    assert done.stdout == "a\nb\nd\nc\n"
    assert done.stderr == "plink: read .plink/network.json (4 days old)\n" + SUMMARY
    done = plink("launch", "true", cwd=here, HOME=str(here))
    assert done.returncode == 1
    read_network, read_order, error = done.stderr.splitlines()
    assert read_network == "plink: read .plink/network.json (4 days old)"
    assert read_order.startswith("plink: read .plink/order.json (")
    assert error.startswith("plink: error: a: ")
    assert error.endswith("(and 3 more hosts: b, d, c)")  # in the order that was solved


@pytest.mark.parametrize(("n", "given"), [(1, 0), (2, 200), (3, 300)])
def test_rings_too_small_to_choose(n: int, given: int, here: Path) -> None:
    rows = [[0 if i == j else 100 for j in range(n)] for i in range(n)]
    write(here / "n.json", network(hosts=[{"name": name} for name in "abc"[:n]], latency_us=rows))
    order = json.loads(plink("reorder", "n.json", "--json", cwd=here).stdout)
    assert order["hosts"] == list("abc"[:n])
    assert (order["cost"], order["lower_bound"], order["baseline"]["given"]) == (given, given, given)


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


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
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
        assert process.stderr.read() == b"\nplink: stopping; once more to leave at once\n"
    assert sorted(os.listdir(here)) == ["n.json", "pipe"]


@pytest.mark.parametrize("algo", ["ring", "halving-doubling", "tree", "double-binary-tree", "bcube", "2lha", "nccl"])
def test_rates_of_pairs_are_searched_over(algo: str, tmp_path: Path) -> None:
    """As ``plink probe --bandwidth`` writes them, with nothing for a host and itself."""
    hosts = [{"name": name} for name in "abcdefgh"]
    far = [[(i ^ j).bit_count() % 2 for j in range(8)] for i in range(8)]  # whoever differs in one bit
    rates = [[None if i == j else (1.0 if far[i][j] else 10.0) for j in range(8)] for i in range(8)]
    rtt = [[0.0 if i == j else (100.0 if far[i][j] else 10.0) for j in range(8)] for i in range(8)]
    write(tmp_path / "n.json", network(hosts=hosts, latency_us=rtt, bandwidth_gbps=rates))
    words = ["--algo", algo, "--size", "4MB", "--model", "alpha-beta", "--moves", "2000", "--json"]
    done = plink("reorder", "n.json", *words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    order = json.loads(done.stdout)
    baseline = order["baseline"]
    assert order["cost"] <= baseline["given"]
    if algo != "ring":  # some hop of which is far in every order, and the slowest counts
        assert order["cost"] < max(baseline["given"], baseline["random_median"])
    assert order["lower_bound"] is None or 0 < order["lower_bound"] <= order["cost"] * (1 + 1e-12)
