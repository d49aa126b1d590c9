"""What is not ours stays outside: modules of the folder a person stands in, what a terminal would obey."""

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import plink as library
from plink.errors import printable
from runners.elastic.controller import ControllerProcess
from runners.elastic.supervisor import JobEnd
from tests.conftest import plink, typed

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
    assert printable("a\nb\tc\rd") == "a\\nb\\tc\\rd"


def test_an_error_that_quotes_a_file_does_not_drive_the_terminal(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text(json.dumps(NETWORK | {"schema": "plink.network/\x1b[2J1"}))
    done = typed("report", "x.json", "--terminal", cwd=tmp_path)
    assert done.returncode == 2
    assert "\x1b" not in done.stderr
    (tmp_path / "hosts\x1b[2J.txt").write_text("a b\n")
    done = typed("probe", "hosts\x1b[2J.txt", cwd=tmp_path)
    assert done.returncode == 2
    assert "hosts\\x1b[2J.txt" in done.stderr
    assert "\x1b" not in done.stderr


@pytest.mark.parametrize(
    "words",
    [
        ["cost", "--algo", "ring"], ["diff", "x"], ["probe"], ["spot", "read", "--prices"], ["elastic", "summary"],
        ["schedule", "verify"], ["pipeline", "show"], ["check", "--results"],
    ],
)  # fmt: skip
def test_a_line_feed_in_a_name_leaves_the_error_on_one_line(tmp_path: Path, words: list[str]) -> None:
    (tmp_path / "a\nb").mkdir()
    (tmp_path / "x").write_text(json.dumps(NETWORK))
    (tmp_path / "a\nb" / "bad").write_text("? \x1b ?\n")
    for name in ("bad", "missing"):
        done = typed(*words, f"a\nb/{name}", cwd=tmp_path)
        assert done.returncode in (1, 2)
        [line] = done.stderr.split("\n")[:-1]
        assert "a\\nb" in line
        assert "\x1b" not in line


def test_a_line_feed_in_a_name_leaves_messages_and_results_on_one_line(tmp_path: Path) -> None:
    folder = tmp_path / "a\nb"
    folder.mkdir()
    (folder / "network.json").write_text(json.dumps(NETWORK))
    for words in (["reorder", "--format", "openmpi"], ["report"], ["topology", "export", "--format", "simgrid"]):
        done = typed(*words, "a\nb/network.json", "-o", "a\nb/out.html", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert "a\\nb/out.html" in done.stderr
        assert all(line.startswith("plink: ") for line in done.stderr.splitlines())
    done = typed("diff", "a\nb/network.json", "a\nb/network.json", cwd=tmp_path)
    assert done.stdout.split("\n")[0].startswith("a\\nb/network.json -> a\\nb/network.json: ")


def test_a_line_feed_in_a_file_leaves_tables_whole(tmp_path: Path) -> None:
    market = {"zone": "a\nb", "type": "m\x1bn", "product": "Linux/UNIX", "times_s": [0, 3600], "prices": [1, 2],
              "until_s": 7200}  # fmt: skip
    document = {"schema": "plink.spot-prices/1", "currency": "USD", "markets": [market]}
    (tmp_path / "prices.json").write_text(json.dumps(document))
    shown = typed("spot", "read", "--prices", "prices.json", cwd=tmp_path).stdout
    assert len(shown.splitlines()) == 2
    assert "m\\x1bn  a\\nb" in shown
    joined = {"at": 1, "what": "host", "host": "h\ni", "number": 0, "tier": "reliable", "slots": 1, "event": "joined",
              "why": "j\nk"}  # fmt: skip
    (tmp_path / "elastic.jsonl").write_text(json.dumps(joined) + "\n")
    done = typed("elastic", "summary", "elastic.jsonl", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert [line.split()[0] for line in done.stdout.splitlines() if "h" in line][-2:] == ["h\\ni", "1.0"]
    assert done.stdout.rstrip().endswith(": j\\nk")


def test_a_note_is_one_line_of_its_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Noting:
        """Supervisor of a job that ends at once, after a note."""

        control_socket = SimpleNamespace(name="nobody")

        def __init__(self, connector: Any, job: Any, overrides: Any, callbacks: Any, *rest: Any) -> None:
            self.callbacks = callbacks

        def run(self, hosts: library.Hosts) -> JobEnd:
            self.callbacks.note("a: one\ntwo\x1b[2J")
            logs.append((folders[0] / "notes.log").read_text())
            return JobEnd(0, "", 1.0)

    folders: list[Path] = []
    logs: list[str] = []
    monkeypatch.setattr("plink.features.elastic.run.Supervisor", Noting)
    observer = library.ElasticObserver(on_start=folders.append)
    hosts = library.Hosts((library.Host("a", "127.0.0.1"),))
    library.run_elastic(library.Job("app.py"), hosts, library.ElasticRequest("local"), observer)
    [line] = logs[0].splitlines()
    assert line.endswith(" a: one\\ntwo\\x1b[2J")
