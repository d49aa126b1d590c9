"""What is not ours stays outside: modules of the folder a person stands in, what a terminal would obey."""

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from plink.cli.screen import printable
from runners.agile.controller_process import ControllerProcess
from tests.conftest import plink

ROOT = Path(__file__).parents[2]
TRAP = "import os; open(os.environ['CAUGHT'], 'a').write(__name__ + '\\n'); raise SystemExit(99)\n"
NETWORK = {"schema": "plink.network/1", "hosts": [{"name": "a"}, {"name": "b"}], "latency_us": [[0, 5], [5, 0]]}


@pytest.fixture
def trapped(tmp_path: Path) -> Path:
    """A job's folder that calls its own modules what we and our libraries call ours."""
    for package in ("runners", "probes", "solvers", "numpy"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").write_text(TRAP)
    (tmp_path / "network.json").write_text(json.dumps(NETWORK))
    return tmp_path


def test_modules_of_the_folder_are_not_ours(trapped: Path) -> None:
    """Also where it is ``python -m plink`` that was typed, as the README tells those who have PuTTY."""
    caught = trapped / "caught"
    done = plink("cost", "network.json", "--algo", "ring", "--json", cwd=trapped, CAUGHT=str(caught),
                 PYTHONPATH=str(ROOT))  # fmt: skip
    assert not caught.exists(), caught.read_text()
    assert done.returncode == 0, done.stderr


def test_checkout_runs_in_place(tmp_path: Path) -> None:
    """The folder counts where plink itself is found in it."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, "-m", "plink", "--version"], cwd=ROOT, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_the_elastic_controller_is_ours_too(trapped: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    caught = trapped / "caught"
    monkeypatch.setenv("CAUGHT", str(caught))
    monkeypatch.chdir(trapped)
    gone = threading.Event()
    controller = ControllerProcess(lambda message: gone.set() if message is None else None, trapped / "errors")
    while not controller._has_started and not gone.wait(0.01):
        pass
    controller.close()
    assert not caught.exists(), caught.read_text()
    assert controller._has_started, (trapped / "errors").read_text()


def test_what_a_terminal_would_obey_is_shown_instead() -> None:
    assert printable("é – fine") == "é – fine"
    assert printable("a\x1b]0;owned\x07b\x9b2J") == "a\\x1b]0;owned\\x07b\\x9b2J"
    assert printable("\u202eback") == "\\u202eback"


def test_an_error_that_quotes_a_file_does_not_drive_the_terminal(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text(json.dumps(NETWORK | {"schema": "plink.network/\x1b[2J1"}))
    done = plink("show", "x.json", cwd=tmp_path)
    assert done.returncode == 2
    assert "\x1b" not in done.stderr
    (tmp_path / "hosts\x1b[2J.txt").write_text("a b\n")
    done = plink("probe", "hosts\x1b[2J.txt", cwd=tmp_path)
    assert done.returncode == 2
    assert "hosts\\x1b[2J.txt" in done.stderr
    assert "\x1b" not in done.stderr
