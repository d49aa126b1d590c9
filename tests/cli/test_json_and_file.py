"""`--json` beside `-o` means one thing everywhere: the document goes to the file and to standard output."""

import json
from pathlib import Path
from typing import Any

import pytest

from plink.cli import check_course
from plink.cli.running_orders import Planned
from plink.network import Network
from plink.trials import Series, Trial
from tests.cli.files import network, write
from tests.conftest import typed

LINES = [
    "embed net.json --dimension 1 --alpha 1 --no-heights --loss relative",
    "cluster net.json --groups 2",
    "plan net.json --algo ring",
    "reorder net.json --moves 100",
    "schedule --algo ring --ranks 4",
    "check net.json --measure --algo ring --orders 2",
]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where orders take the seconds that they are dear."""

    def run_orders(given: Network, planned: Planned, *_: Any) -> Series:
        trials = tuple(Trial(str(k), cost, (cost,)) for k, (_, cost) in enumerate(planned.orders))
        return Series(trials, planned.algo, 1e6, planned.model)

    monkeypatch.setattr(check_course, "run_orders", run_orders)
    write(tmp_path / "net.json", network())
    return tmp_path


@pytest.mark.parametrize("line", LINES, ids=[line.split()[0] for line in LINES])
def test_the_file_and_standard_output_hold_the_same(line: str, here: Path) -> None:
    done = typed(*line.split(), "-o", "out", "--json", cwd=here)
    assert done.returncode == 0, done.stderr
    assert "-> out\n" in done.stderr or line.startswith("reorder")
    assert json.loads(done.stdout) == json.loads((here / "out").read_text())


@pytest.mark.parametrize("words", [["-o", "-"], ["-o", "-", "--json"]], ids=["dash", "both"])
@pytest.mark.parametrize("line", LINES, ids=[line.split()[0] for line in LINES])
def test_on_standard_output_there_is_the_document_alone(line: str, words: list[str], here: Path) -> None:
    done = typed(*line.split(), *words, cwd=here)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["schema"].startswith("plink.")
    assert "-> -" not in done.stderr
    assert not (here / "-").exists()
