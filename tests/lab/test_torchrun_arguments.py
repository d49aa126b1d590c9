"""Arguments through `plink launch --runner torchrun`, from the command line to the worker: byte for byte."""

import json
import os
from pathlib import Path

import pytest

from tests.conftest import Lab, plink
from tests.lab.jobs import write_hosts, write_script
from tests.runners.test_arguments_local import ARGUMENTS, TELL

pytestmark = pytest.mark.lab


def test_they_reach_every_worker_unchanged(small_lab: Lab, tmp_path: Path) -> None:
    """All at once: a torchrun takes its time to start."""
    write_hosts(small_lab, tmp_path, names=small_lab.hosts.names[:2])
    words = [*(word for kind in ARGUMENTS.values() for word in kind), "--nnodes=7", "--nproc-per-node=3"]
    mine = "it's $(touch gotcha)\n" + os.fsdecode(b"\xff")
    arguments = (
        "--order",
        "given",
        "--runner",
        "torchrun",
        "--env",
        f"MINE={mine}",
        write_script(tmp_path, TELL, "tell.py"),
    )
    done = plink("launch", "--hosts", "hosts.txt", *arguments, *words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    expected = [os.fsencode(word).hex() for word in [*words, mine]]
    printed = sorted(done.stdout.splitlines())
    assert [line[:4] for line in printed] == ["[0] ", "[1] "]
    assert [json.loads(line[4:]) for line in printed] == [expected, expected]
    assert not (tmp_path / "gotcha").exists()
