"""`plink launch` and `compare` after the network got slower: what is named before the program starts."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import Lab, lab_up, plink
from tests.lab.jobs import write_hosts, write_script
from tests.lab.traces import HERE

pytestmark = pytest.mark.lab
WARNING = "slower than when the network was measured"


@pytest.fixture(scope="module")
def nine_hosts() -> Iterator[Lab]:
    """Three racks of three hosts."""
    lab = lab_up(f"pre{os.getpid()}", "--racks", "3", "--hosts-per-rack", "3", "--seed", "7")
    yield lab
    lab.plink("down", cwd=HERE)


@pytest.fixture(scope="module")
def measured(nine_hosts: Lab, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the measured network, an order of it and a program."""
    folder = tmp_path_factory.mktemp("measured")
    write_hosts(nine_hosts, folder)
    write_script(folder, "print('ran')")
    for words in (("probe", "hosts.txt", "--count", "400"), ("reorder", "-o", ".plink/order.json")):
        done = plink(*words, cwd=folder)
        assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.parametrize("runner", ["ssh", "torchrun"])
def test_a_slow_host_is_named_before_the_program_starts(nine_hosts: Lab, measured: Path, runner: str) -> None:
    launch = ("launch", "--hosts", "hosts.txt", "--runner", runner)
    slow = nine_hosts.hosts.names[4]
    assert WARNING not in plink(*launch, "train.py", cwd=measured).stderr
    assert nine_hosts.plink("shape", slow, "--rate", "20mbit", cwd=HERE).returncode == 0
    try:
        done = plink(*launch, "train.py", cwd=measured)
        refused = plink(*launch, "--set", "preflight=strict", "train.py", cwd=measured)
        skipped = plink(*launch, "--set", "preflight=off", "train.py", cwd=measured)
    finally:
        assert nine_hosts.plink("heal", cwd=HERE).returncode == 0
    (line,) = [line for line in done.stderr.splitlines() if WARNING in line]
    assert f"{slow}: " in line
    assert done.returncode == 0
    assert done.stdout.count("ran") == 9
    assert refused.returncode == 1
    assert slow in refused.stderr
    assert "ran" not in refused.stdout
    assert WARNING not in skipped.stderr


def test_a_slow_uplink_is_named_once_in_a_comparison(nine_hosts: Lab, measured: Path) -> None:
    assert nine_hosts.plink("shape", "rack1", "--rate", "20mbit", cwd=HERE).returncode == 0
    try:
        done = plink("compare", "--hosts", "hosts.txt", "--pairs", "1", "train.py", cwd=measured)
    finally:
        assert nine_hosts.plink("heal", cwd=HERE).returncode == 0
    (line,) = [line for line in done.stderr.splitlines() if WARNING in line]
    assert "the link that" in line
