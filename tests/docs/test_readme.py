"""README's commands for a real cluster, on hosts that are reached as a cluster's are: over SSH, from a hosts file."""

from dataclasses import replace
from pathlib import Path

import pytest

from plink.model.hosts import Hosts, render_hosts
from tests.conftest import Lab
from tests.docs.pages import ROOT, blocks
from tests.docs.shell import Shell

pytestmark = pytest.mark.lab
_PAGE = ROOT / "README.md"
_TRAIN = """
import os, sys
print("rank", os.environ["RANK"], "of", os.environ["WORLD_SIZE"], *sys.argv[1:])
"""


def _commands() -> list[str]:
    """Without the remarks behind them; the five first, then those of other places, each once."""
    typed = [
        [each.line.split("#")[0].strip() for each in block.typed] for block in blocks(_PAGE) if block.needs == "cluster"
    ]
    return list(dict.fromkeys(line for lines in sorted(typed, key=len, reverse=True) for line in lines))


def test_the_five_commands_and_the_others(small_lab: Lab, tmp_path: Path) -> None:
    anchor, *spot = small_lab.hosts.members
    members = (anchor, *(replace(host, tier="transient") for host in spot))
    (tmp_path / "hosts.txt").write_text(render_hosts(Hosts(members, small_lab.name)))
    (tmp_path / "train.py").write_text(_TRAIN)
    (tmp_path / "app.py").symlink_to(ROOT / "examples" / "elastic_mf.py")
    outputs = {}
    with Shell(tmp_path, "") as shell:
        for line in _commands():
            done = shell.run(line)
            outputs[line] = done.stdout + done.stderr
            assert done.returncode == 0, f"{line}\n{outputs[line]}"
    first = [line.split()[1] for line in outputs][:5]
    assert first == ["doctor", "probe", "reorder", "report", "compare"]
    assert all(host.name in (tmp_path / "report.html").read_text() for host in members)
    (compared,) = (text for line, text in outputs.items() if line.startswith("plink compare"))
    assert "gain " in compared
    for rank in range(4):
        assert f"[{rank}] rank {rank} of 4\n" in outputs["plink launch train.py"]
