"""``plink reorder --format``: every format from the command line, and what is refused before a search begins."""

import re
from pathlib import Path

import pytest

from plink.cli.app import command
from runners.hostfiles import FORMATS
from tests.cli.files import network, write
from tests.conftest import typed

HOSTS = [{"name": "a", "address": "10.0.0.1"}, {"name": "b", "address": "10.0.0.2", "slots": 2}]
ROWS = [[0, 10, 20], [10, 0, 30], [20, 30, 0]]  # any order of three is the same ring: the given one is kept


def three(**changes: object) -> dict[str, object]:
    """Three hosts, one with two slots; ``changes`` to the last one."""
    last = {"name": "c", "address": "10.0.0.3"} | changes
    return network(hosts=[*HOSTS, last], latency_us=ROWS)


ENV = "MASTER_ADDR=10.0.0.1 MASTER_PORT=29500"
GOLDEN = {
    "openmpi-rankfile": [
        "rank 0=10.0.0.1 slot=0",
        "rank 1=10.0.0.2 slot=0",
        "rank 2=10.0.0.2 slot=1",
        "rank 3=10.0.0.3 slot=0",
    ],
    "slurm": ["a", "b", "b", "c"],
    "torchrun-env": [
        f"RANK=0 WORLD_SIZE=4 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 GROUP_RANK=0 {ENV}  # a",
        f"RANK=1 WORLD_SIZE=4 LOCAL_RANK=0 LOCAL_WORLD_SIZE=2 GROUP_RANK=1 {ENV}  # b",
        f"RANK=2 WORLD_SIZE=4 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2 GROUP_RANK=1 {ENV}  # b",
        f"RANK=3 WORLD_SIZE=4 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 GROUP_RANK=2 {ENV}  # c",
    ],
    "lightgbm": ["10.0.0.1 12400", "10.0.0.2 12400", "10.0.0.2 12401", "10.0.0.3 12400"],
    "kubernetes": ["0 a", "1 b", "2 b", "3 c"],
}


def test_help_names_every_format() -> None:
    option = next(each for each in command().commands["reorder"].params if each.name == "format")
    named = re.search(r"Choices: (.*?)\.", str(getattr(option, "help", "")))
    assert named is not None
    assert named.group(1).split(", ") == list(FORMATS)


@pytest.mark.parametrize("name", GOLDEN)
def test_golden(name: str, tmp_path: Path) -> None:
    write(tmp_path / "n.json", three())
    done = typed("reorder", "n.json", "--format", name, "--max-moves", "10", cwd=tmp_path)
    assert (done.returncode, done.stdout.splitlines()) == (0, GOLDEN[name])
    assert "use it" not in done.stderr


def test_a_file_comes_with_the_command_that_keeps_its_order(tmp_path: Path) -> None:
    write(tmp_path / "n.json", three())
    done = typed("reorder", "n.json", "--format", "mpich", "-o", "my hosts", "--max-moves", "10", cwd=tmp_path)
    assert done.stderr.splitlines()[-1] == "plink: use it: mpiexec.hydra -f 'my hosts' -n 4 PROGRAM"
    assert (tmp_path / "my hosts").read_text() == "10.0.0.1:1\n10.0.0.2:2\n10.0.0.3:1\n"
