"""Benchmarks state their bars, and fail when one is missed."""

import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest

import benchmarks.cost_models
import benchmarks.results
import benchmarks.run
from benchmarks import autotune, drawing, spot_lab, table_4_1, theses
from benchmarks.catalogue import ENTRIES, NAMES
from benchmarks.flexrr import MODES
from benchmarks.helping_courses import WORKERS, course_of
from benchmarks.record import Bar, record
from benchmarks.results import RECORDS, RESULTS
from benchmarks.run import chosen
from benchmarks.stale import forget_stale
from benchmarks.stragglers import DisruptedMachine, Pattern, PowerLaw, SlowWorker, Steady, ideal
from plink.model.hosts import read_hosts
from plink.model.spot.market_file import read_market_file
from plink.pictures import PAGE
from solvers.spot.footprint import Application, Scaling


def test_metric_passes_or_misses_its_bar() -> None:
    assert Bar("x", 2.0, at_most=2.0).met
    assert Bar("x", 2.0, at_least=2.0).met
    assert not Bar("x", 2.1, at_most=2.0).met
    assert not Bar("x", 1.9, at_least=2.0).met
    assert not Bar("x", math.nan, at_most=2.0).met


def test_a_missed_bar_is_written_and_printed_and_is_the_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(benchmarks.results, "RECORDS", tmp_path)
    good, bad = Bar("seconds", 1.5, at_most=2.0), Bar("share", 0.5, at_least=0.9)
    assert record("x", {}, {"s": 1.5}, [good]) == 0
    assert record("x", {}, {"s": 1.5}, [good, bad, Bar("lost", math.nan, at_least=1.0)]) == 1
    assert json.loads((tmp_path / "x.json").read_text())["bars"] == [
        {"name": "seconds", "value": 1.5, "at_most": 2.0, "met": True},
        {"name": "share", "value": 0.5, "at_least": 0.9, "met": False},
        {"name": "lost", "value": None, "at_least": 1.0, "met": False},
    ]
    assert capsys.readouterr().out.splitlines()[-3:] == [
        "met: seconds: 1.5, wanted at most 2",
        "MISSED: share: 0.5, wanted at least 0.9",
        "MISSED: lost: nan, wanted at least 1",
    ]


def test_every_benchmark_is_in_the_catalogue() -> None:
    folder = Path(benchmarks.record.__file__).parent
    programs = {path.stem for path in folder.glob("*.py") if "def main() -> int:" in path.read_text()}
    assert programs - {"run", "theses"} == set(NAMES)
    assert sum(entry.minutes for entry in ENTRIES if entry.theses) <= 75
    repeated, shown = {entry.name for entry in ENTRIES if entry.theses}, {row.benchmark for row in theses.ROWS}
    assert repeated <= shown <= set(NAMES)  # `make bench` repeats all that its time allows


def test_benchmarks_are_chosen_by_name_and_by_set() -> None:
    assert chosen(["cost-models", "demo", "cost_models"]) == ["cost_models", "demo"]
    assert set(chosen(["theses"])) | set(chosen(["others"])) == set(chosen(["all"])) == set(NAMES)
    with pytest.raises(KeyError):
        chosen(["demos"])


def test_one_that_fails_stops_no_other(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    codes = {"benchmarks.demo": 1, "benchmarks.report": 0}
    monkeypatch.setattr(sys, "argv", ["run.py", "demo", "report", "--seeds", "1"])
    commands = []

    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        commands.append(command[2:])
        return subprocess.CompletedProcess(command, codes[command[2]])

    monkeypatch.setattr(subprocess, "run", run)
    assert benchmarks.run.main() == 1
    assert commands == [["benchmarks.demo", "--seeds", "1"], ["benchmarks.report", "--seeds", "1"]]
    assert [line.split(" min  ")[1] for line in capsys.readouterr().out.splitlines()[-2:]] == [
        "failed, or a bar was missed",
        "done",
    ]


@pytest.mark.extended
def test_the_page_of_the_theses_is_what_was_recorded() -> None:
    """`python -m benchmarks.theses` writes it."""
    assert (RESULTS / "theses.md").read_text() == theses.page()
    plots = {plot for row in theses.ROWS for plot in theses.plots_of(row.benchmark)}
    assert plots <= {row.plot for row in theses.ROWS}
    assert {path.stem for path in (RESULTS / "plots").glob("*.svg")} == plots


@pytest.mark.parametrize("kind", ["strips", "curves", "spreads"])
def test_a_chart_is_one_file_that_follows_light_and_dark(kind: str, tmp_path: Path) -> None:
    samples = {"one": [1.0, 2.0, 4.0], "two": [3.0, 3.5, 5.0]}
    charts = {
        "strips": lambda: drawing.strips("x", "Heading", "second", samples, "s", marks={"one": 2.5}),
        "curves": lambda: drawing.curves(
            "x", "Heading", "second", {name: ([1, 2, 3], values) for name, values in samples.items()}, "x", "y", "x"
        ),
        "spreads": lambda: drawing.spreads("x", "Heading", "second", samples, "s", 1.0),
    }
    drawing.write(charts[kind](), tmp_path / "x.svg")
    root = ElementTree.parse(tmp_path / "x.svg").getroot()
    texts = {"".join(text.itertext()).strip() for text in root.iter("{http://www.w3.org/2000/svg}text")}
    assert {"Heading", "one", "two"} <= texts
    written = (tmp_path / "x.svg").read_text()
    assert "prefers-color-scheme:dark" in written
    assert not set(vars(PAGE).values()) & set(re.findall(r"#[0-9a-f]{6}", written))


@pytest.mark.parametrize("pattern", [SlowWorker(4.0, 1), DisruptedMachine(2.0, seed=1), PowerLaw(4.0, 1)])
def test_no_mode_is_faster_than_the_ideal_of_its_schedule(pattern: Pattern) -> None:
    assert ideal(Steady(), 4, 20.0) == pytest.approx(5.0, abs=0.01)
    for mode in MODES:
        assert course_of(pattern, mode, clocks=4).now > 0.99 * ideal(pattern, WORKERS, 4.0 * WORKERS)


def test_counts_of_table_4_1_are_the_table_s_where_it_does_not_round() -> None:
    rows = {line.name: table_4_1.rows_of(line)[:3] for line in table_4_1.LINES}
    same = {name for name, counts in rows.items() if all(table_4_1.exact(counts, c) for c in table_4_1._COLUMNS)}
    assert same == {"PS, sharded", "2-level hierarchical"}
    assert all(row["counted"]["verified"] for counts in rows.values() for row in counts)


def test_compiled_loops_older_than_what_they_call_are_forgotten(tmp_path: Path) -> None:
    """Numba sees only whether the file of the loop itself has changed."""
    folder = tmp_path / "room" / "__pycache__"
    folder.mkdir(parents=True)
    for name, seconds in (("old.nbi", 100), ("old.nbc", 100), ("new.nbi", 300), ("old.pyc", 100)):
        (folder / name).write_bytes(b"")
        os.utime(folder / name, (seconds, seconds))
    for name, text, seconds in (("loops.py", "from numba import njit", 200), ("others.py", "import os", 400)):
        (tmp_path / "room" / name).write_text(text)
        os.utime(tmp_path / "room" / name, (seconds, seconds))
    assert forget_stale(tmp_path) == 2
    assert sorted(path.name for path in folder.iterdir()) == ["new.nbi", "old.pyc"]


def test_autotune_figures_follow_from_its_recorded_steps() -> None:
    document = json.loads((RECORDS / "autotune.json").read_text())
    row = document["figures"]["2lha"]
    tuned, without = ({"steps": row["steps_s"][name]} for name in ("with", "without"))
    validated = autotune._validate({**tuned, "stretches": row["stretches"]}, without)
    assert validated == {key: row[key] for key in validated}
    assert [bar.to_json() for bar in autotune._bars(document["figures"])] == document["bars"]


def test_parts_keep_what_they_were_measured_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a part that is kept from a file of before parts were stamped nothing is claimed: which run it is of, the file
    does not say."""
    monkeypatch.setattr(benchmarks.results, "RECORDS", tmp_path)
    old = {"commit": "old", "date": "2026-11-01", "machine": {"cores": 4, "kernel": "6.1"}}
    (tmp_path / "x.json").write_text(json.dumps({**old, "figures": {"a": 1, "b": 1}}))
    for commit, measured in (("new", {"b", "d"}), ("newest", {"c"})):
        monkeypatch.setattr(benchmarks.record, "_commit", lambda commit=commit: commit)
        assert record("x", {}, {"a": 1, "b": 2, "c": 3, "d": 4}, measured=measured) == 0
    document = json.loads((tmp_path / "x.json").read_text())
    commits = {part: stamp["commit"] for part, stamp in document["parts"].items()}
    assert commits == {"b": "new", "c": "newest", "d": "new"}
    assert theses.measured_with(document, "a") == "An earlier run; of which commit was not kept."
    assert theses.measured_with(document, "b").startswith("Commit new, ")
    assert theses.measured_with(old, "a") == "Commit old, 2026-11-01, 4 cores, Linux 6.1."
    machine = document["machine"]
    assert f"{machine['cpu']}, {machine['memory_mb']} MB, Linux" in theses.measured_with(document, "c")
    assert theses.measured_with(document) == theses.measured_with(document, "c")


def test_each_market_of_the_spot_lab_is_evicted_once(tmp_path: Path) -> None:
    addresses = "".join(f"n{number} address=10.0.0.{number + 1}\n" for number in range(9))
    (tmp_path / "lab.txt").write_text(f"# plink-lab: lab\n{addresses}")
    spot_lab.write_inputs(SimpleNamespace(folder=tmp_path, hosts_file=str(tmp_path / "lab.txt"), name="lab"))  # type: ignore[arg-type]
    market_file = read_market_file(tmp_path / "market.toml")
    application = Application(Scaling(0.0, 72.0, 0.0), 480.0, 60.0, 60.0)
    outcome = spot_lab.simulate(tmp_path, market_file, application, 1.5e9)
    evicted = [each for each in outcome.stays if each.stay.end == "interrupted"]
    assert {each.market for each in evicted} == {0, 1, 2}
    assert len(evicted) == 6  # two of eight hosts are there to the end
    assert len(read_hosts(tmp_path / "more.txt")) == 8
