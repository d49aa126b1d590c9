"""Where results go: never over what they were made from; what ``--json`` means beside ``-o``; and what is said of text
for people that was redirected into a file for programs."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from plink.features.check import run as check
from plink.features.check.benchmark import PlannedBenchmark
from plink.model.check import BenchmarkRun, OrderTiming
from plink.model.storage import instead_of_json
from tests.cli.files import listing, network, refusal, write
from tests.conftest import typed

READ, BOTH = "that is what is read; name another file", "two results cannot go to one file; name another file"


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """Networks, runs, an order, groups, a topology; and the network that commands take where none is named."""
    (tmp_path / ".plink").mkdir()
    for name in ("net.json", "new.json", ".plink/network.json"):
        write(tmp_path / name, network())
    run = {"order": "a", "predicted_us": 1, "achieved_s": [1.0]}
    write(tmp_path / "runs.json", {"schema": "plink.check/1", "runs": [run, run | {"predicted_us": 2}]})
    (tmp_path / "order").write_text("a\nb\nc\nd\n")
    (tmp_path / "groups").write_text("a c\nb d\n")
    (tmp_path / "hosts.txt").write_text("a\nb\n")
    (tmp_path / "topology").write_text("SwitchName=s Nodes=a,b,c,d\n")
    return tmp_path


@pytest.mark.parametrize(("line", "message"), [
    ("diff net.json new.json --junit ./new.json", READ),
    ("check --truth groups --junit .plink/network.json", READ),
    ("check --results runs.json --max-regression order --junit order", READ),
    ("check net.json --measure --truth groups -o groups", READ),
    ("check net.json --measure --junit .plink/check.json", BOTH),
    ("embed net.json -o net.json", READ),
    ("cluster net.json -o net.json", READ),
    ("plan net.json -o net.json", READ),
    ("plan net.json --groups groups -o groups", READ),
    ("report net.json -o net.json", READ),
    ("report net.json --results runs.json -o runs.json", READ),
    ("reorder net.json --prior topology -o topology", READ),
    ("reorder --topology topology --hosts hosts.txt -o hosts.txt", READ),
    ("reorder net.json --algo 2lha --groups groups -o groups", READ),
    ("reorder --algo ring --format openmpi -o .plink/order.json", BOTH),
    ("manifests --image x/y:1 --hosts hosts.txt -o hosts.txt python3 t.py", READ),
    ("manifests --image x/y:1 --order order -o order t.py", READ),
    ("probe hosts.txt -o hosts.txt --dry-run", READ),
])  # fmt: skip
def test_what_was_read_is_still_there(line: str, message: str, here: Path) -> None:
    before = listing(here)
    assert message in refusal(typed(*line.split(), cwd=here))
    assert listing(here) == before


@pytest.mark.parametrize("line", [
    "probe nosuch.txt -o {}",
    "probe nosuch.txt -o {} --dry-run",
    "embed nosuch.json -o {}",
    "cluster nosuch.json -o {}",
    "reorder nosuch.json -o {}",
    "reorder --topology nosuch.txt --format openmpi -o {}",
    "plan nosuch.json -o {}",
    "schedule --algo ring --ranks 4 -o {}",
    "report nosuch.json -o {}",
    "check nosuch.json --measure -o {}",
    "check nosuch.json --truth nosuch --junit {}",
    "diff nosuch.json nosuch2.json --junit {}",
    "advise nosuch.json --plot {}.png",
    "elastic plot nosuch.jsonl -o {}.png",
    "manifests --hosts nosuch.txt --image x/y:1 -o {} t.py",
    "launch --hosts nosuch.txt --log-dir {} t.py",
])  # fmt: skip
@pytest.mark.parametrize("place", ["missing", "file"])
def test_unwritable_output_is_refused_first(line: str, place: str, tmp_path: Path) -> None:
    """Before anything is read, measured or searched for: its folder is missing, or a file is in the folder's place."""
    (tmp_path / "file").write_text("")
    if "--log-dir" in line:
        place = "file"  # it is made where it is missing
    message = refusal(typed(*line.format(f"{place}/out").split(), cwd=tmp_path))
    assert message.startswith(f"{place}/out") or f" {place}/out" in message
    assert "nosuch" not in message
    assert list(listing(tmp_path)) == ["file"]


def test_order_that_cannot_be_kept_here_is_refused_first(here: Path) -> None:
    """Also where the result goes elsewhere."""
    (here / ".plink" / "order.json").mkdir()
    assert ".plink/order.json" in refusal(typed("reorder", "-o", "order.json", cwd=here))
    assert not (here / "order.json").exists()


@pytest.mark.parametrize("output", ["/dev/stdout", "-"])
def test_result_into_a_pipe(output: str, here: Path) -> None:
    words = [sys.executable, "-m", "plink", "schedule", "--algo", "ring", "--ranks", "4", "-o", output]
    done = subprocess.run(words, cwd=here, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["schema"].startswith("plink.schedule/")


def test_log_folder_with_a_name_that_cannot_be(here: Path) -> None:
    done = typed("launch", "--hosts", "hosts.txt", "--log-dir", f"nosuch/{'x' * 300}/y", "true", cwd=here)
    assert "defect" not in refusal(done, done.returncode)


@pytest.mark.parametrize("line", [
    "probe nosuch.txt", "embed nosuch.json", "cluster nosuch.json", "reorder nosuch.json", "plan nosuch.json",
])  # fmt: skip
def test_workspace_that_cannot_be_made_is_refused_first(line: str, tmp_path: Path) -> None:
    (tmp_path / ".plink").write_text("")
    message = refusal(typed(*line.split(), cwd=tmp_path))
    assert ".plink" in message
    assert "nosuch" not in message


LINES = [
    "embed net.json --dimension 1 --alpha 1 --no-heights --loss relative",
    "cluster net.json --groups 2",
    "plan net.json --algo ring",
    "reorder net.json --max-moves 100",
    "schedule --algo ring --ranks 4",
    "check net.json --measure --algo ring --orders 2",
]


@pytest.fixture
def measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where orders take the seconds that they are dear."""

    def time_orders(planned: PlannedBenchmark, *_: object) -> BenchmarkRun:
        timings = (
            OrderTiming(order=str(k), predicted_us=cost, achieved_s=(cost,))
            for k, (_, cost) in enumerate(planned.orders)
        )
        return BenchmarkRun(runs=tuple(timings), algo=planned.algo, size_bytes=1e6, model=planned.model)

    monkeypatch.setattr(check, "time_orders", time_orders)
    write(tmp_path / "net.json", network())
    return tmp_path


@pytest.mark.parametrize("line", LINES, ids=[line.split()[0] for line in LINES])
def test_json_beside_a_file_means_one_thing(line: str, measured: Path) -> None:
    """The document goes to the file and to standard output; with ``-o -`` it stands there alone."""
    done = typed(*line.split(), "-o", "out", "--json", cwd=measured)
    assert done.returncode == 0, done.stderr
    assert "-> out\n" in done.stderr or line.startswith("reorder")
    assert json.loads(done.stdout) == json.loads((measured / "out").read_text())
    for words in (["-o", "-"], ["-o", "-", "--json"]):
        done = typed(*line.split(), *words, cwd=measured)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["schema"].startswith("plink.")
        assert "-> -" not in done.stderr
    assert not (measured / "-").exists()


@pytest.mark.parametrize("words", [("--algo", "ring"), ("--algo", "2lha")])
def test_schedule_text_is_distinguished_from_schedule_json(words: tuple[str, ...], tmp_path: Path) -> None:
    made = typed("schedule", *words, "--ranks", "4", cwd=tmp_path)
    (tmp_path / "x.json").write_text(made.stdout)
    message = refusal(typed("schedule", "verify", "x.json", cwd=tmp_path))
    assert message.startswith("x.json:1: not JSON: this is the text for people that `plink schedule` prints")
    assert "`-o FILE` or `--json` writes the schedule" in message
    (tmp_path / "y.json").write_text(typed("schedule", *words, "--ranks", "4", "--json", cwd=tmp_path).stdout)
    assert typed("schedule", "verify", "y.json", cwd=tmp_path).returncode == 0


def test_plan_text_is_distinguished_from_plan_json(tmp_path: Path) -> None:
    write(tmp_path / "n.json", network())
    for_people = typed("plan", "n.json", "--algo", "ring", cwd=tmp_path).stdout
    (tmp_path / "text.json").write_text(for_people)
    message = refusal(typed("launch", "--order", "text.json", "true", cwd=tmp_path))
    assert message.startswith("text.json:1: not JSON: this is the text for people that `plink plan`")


def test_an_order_or_a_network_that_was_redirected_is_an_empty_file(tmp_path: Path) -> None:
    write(tmp_path / "n.json", network())
    done = typed("reorder", "n.json", "--max-moves", "100", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "")
    (tmp_path / "order.json").write_text(done.stdout)
    message = refusal(typed("cost", "n.json", "--order", "order.json", cwd=tmp_path))
    assert message.startswith("order.json:1: not JSON: the file is empty; what plink writes is in .plink/")
    message = refusal(typed("doctor", "order.json", cwd=tmp_path))
    assert message.endswith("or goes where `-o FILE` says")


def test_of_other_texts_nothing_is_supposed() -> None:
    for text in ("{", "h0\nh1\n", "ring, tree and star", "2lha"):
        assert instead_of_json(text) is None
