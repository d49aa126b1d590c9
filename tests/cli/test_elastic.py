"""`plink elastic plot` and `plink elastic summary`: what they make of a log, and what they refuse."""

import io
import json
from pathlib import Path

import pytest
from PIL import Image

from plink.model.elastic.fields import UpdateCounts
from plink.records.elastic_log import (
    ControllerEvent,
    ElasticLog,
    EndLogEntry,
    Entry,
    HostEvent,
    Iteration,
    RollBackLogEntry,
    StageChange,
    TrafficLogEntry,
)
from tests.cli.files import refusal, refuses, write
from tests.conftest import typed
from tests.features.spot.test_drive import ENTRIES as SPOT_ENTRIES
from tests.features.spot.test_drive import recorded

GOLDEN = """\
3 iterations in 3,600.0 s; exit code 0 (it was to do 3)
lost to roll-backs: 1 iteration
objective: 0.25
stage 1: 1 iteration, median 1.5 s
stage 2: 2 iterations, median 0.5 s
cost: 1.1, 0.367 an iteration
without a price (price=X in the hosts file), so not in the cost: spot-2
host    tier            held   sent  received  price/h
node-1  reliable   3,600.0 s  45 MB      2 kB        1
spot-1  transient  1,800.0 s                       0.2
spot-2  transient  1,799.5 s
      0.0 s  controller started
      0.0 s  node-1 (reliable) joined: in the hosts file
  1,800.0 s  2 transient hosts joined (spot-1, spot-2)
  3,000.0 s  rolled back to clock 2, 1 to be done again
  3,100.0 s  spot-2 (transient) warned, 120 s left: aws: terminate
"""


def entries() -> list[Entry]:
    return [
        ControllerEvent(0.0, "started"),
        HostEvent(0.0, "node-1", 0, "reliable", 4, "joined", 1.0, None, "in the hosts file"),
        StageChange(0.0, 1, "no transient host"),
        Iteration(10.0, 1, 1.5, 1, 4, 1, 1.0),
        HostEvent(1800.0, "spot-1", 1, "transient", 1, "joined", 0.2, None, "member 1"),
        HostEvent(1800.5, "spot-2", 2, "transient", 1, "joined", None, None, "member 2"),
        StageChange(1801.0, 2, "2 transient hosts to 1"),
        Iteration(1900.0, 2, 0.5, 2, 6, 2, 0.5),
        Iteration(2000.0, 3, 0.9, 2, 6, 3, 0.3),
        RollBackLogEntry(3000.0, 2, 1, 1),
        HostEvent(3100.0, "spot-2", 2, "transient", 1, "warned", None, 120.0, "aws: terminate"),
        Iteration(3200.0, 3, 0.5, 2, 6, 3, 0.25),
        TrafficLogEntry(3300.0, "node-1", 45_000_000, 2_000),
        EndLogEntry(3600.0, 3600.0, 0, "it was to do 3"),
    ]


@pytest.fixture
def run_folder(tmp_path: Path) -> Path:
    """A folder with two runs: an elastic one, and (the last) one that was not."""
    for name, started in (("elastic-1", "2026-01-01"), ("plain-1", "2026-01-02")):
        (tmp_path / ".plink/runs" / name).mkdir(parents=True)
        write(tmp_path / ".plink/runs" / name / "run.json", {"schema": "plink.run/1", "started": started})
    log = ElasticLog(tmp_path / ".plink/runs/elastic-1/elastic.jsonl")
    for entry in entries():
        log.add(entry)
    log.close()
    return tmp_path


def test_a_summary_word_for_word(run_folder: Path) -> None:
    done = typed("elastic", "summary", "elastic", cwd=run_folder)
    assert done.returncode == 0, done.stderr
    assert [line.rstrip() for line in done.stdout.splitlines()] == GOLDEN.splitlines()


def test_a_run_under_way(run_folder: Path) -> None:
    """Its last line may be half written."""
    log = run_folder / ".plink/runs/elastic-1/elastic.jsonl"
    lines = log.read_text().splitlines(keepends=True)
    log.write_text("".join(lines[:9]) + lines[9][:20])
    (run_folder / ".plink/runs/plain-1/run.json").unlink()
    done = typed("elastic", "summary", "last", cwd=run_folder)
    assert "2 iterations in 1,900.0 s; it still runs, or was cut off" in done.stdout
    write(log.with_name("run.json"), {"schema": "plink.run/1", "started": "2026-01-01", "exit_code": 130})
    interrupted = typed("elastic", "summary", "last", cwd=run_folder)
    assert "2 iterations in 1,900.0 s; exit code 130\n" in interrupted.stdout
    drawn = typed("elastic", "plot", "last", cwd=run_folder)
    assert drawn.stderr == "plink: 2 iterations -> elastic.svg\n"


def test_without_prices_there_is_no_cost(run_folder: Path) -> None:
    log = ElasticLog(run_folder / "log")
    log.add(HostEvent(0.0, "a", 0, "reliable", 1, "joined"))
    log.close()
    done = typed("elastic", "summary", "log", cwd=run_folder)
    assert "\ncost: " not in done.stdout
    assert "0 iterations in 0.0 s" in done.stdout
    document = json.loads(typed("elastic", "summary", "log", "--json", cwd=run_folder).stdout)
    assert document["cost"] == {"total": None, "per_iteration": None, "without_price": ["a"]}
    assert "no iteration was done yet" in refusal(typed("elastic", "plot", "log", cwd=run_folder), 1)


def test_pictures(run_folder: Path) -> None:
    for words in (("-o", "run.svg"), ("-o", "run.png"), ("--over", "seconds", "-o", "seconds.svg")):
        done = typed("elastic", "plot", "elastic-1", *words, cwd=run_folder)
        assert (done.returncode, done.stdout) == (0, ""), done.stderr
        assert done.stderr == f"plink: 3 iterations -> {words[-1]}\n"
    assert ">iteration</text>" in (run_folder / "run.svg").read_text()
    assert ">seconds since the run began</text>" in (run_folder / "seconds.svg").read_text()
    image = Image.open(io.BytesIO((run_folder / "run.png").read_bytes())).convert("RGB")
    assert image.width > 1500
    assert image.getpixel((1, image.height - 1)) == (255, 255, 255)
    shown = typed("elastic", "plot", ".plink/runs/elastic-1/elastic.jsonl", "-o", "-", cwd=run_folder)
    assert shown.stdout == (run_folder / "run.svg").read_text()
    assert shown.stderr == ""


@pytest.mark.parametrize(
    ("run", "message"),
    [
        ("last", "the run plain-1 was not elastic: there is no .plink/runs/plain-1/elastic.jsonl"),
        ("nowhere", "no run nowhere in .plink/runs; `plink runs` lists them"),
        ("other", "other:1: schema: expected 'plink.elastic-log/1'"),
        ("bad", "bad:2: iteration: is missing"),
    ],
)
def test_what_is_no_log_is_refused(run: str, message: str, run_folder: Path) -> None:
    (run_folder / "other").write_text('{"schema": "plink.autotune/1"}\n')
    (run_folder / "bad").write_text('{"at": 0, "what": "stage", "stage": 1}\n{"at": 1, "what": "iteration"}\n')
    for command in ("plot", "summary"):
        refuses(run_folder, ["elastic", command, run], message)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("-o", "run.pdf"), "-o run.pdf: a picture's name ends in .svg or .png"),
        (("-o", "nowhere/run.png"), "nowhere/run.png: there is no folder nowhere"),
        (("--over", "hosts"), "--over"),
    ],
)
def test_pictures_that_cannot_be(words: tuple[str, ...], message: str, run_folder: Path) -> None:
    refuses(run_folder, ["elastic", "plot", "elastic-1", *words], message)


def test_summary_lists_help(tmp_path: Path) -> None:
    """In one of two iterations that count; another one was rolled back. The rule that the run had is no hint."""
    work = {"a": (1.0, 0.0, 1), "b": (2.0, 0.0, 1)}
    log = ElasticLog(tmp_path / "log")
    log.add(ControllerEvent(0.0, "started", "", "bsp", "slots", rebalance=True))
    log.add(Iteration(1.0, 0, 1.0, 1, 2, 1, None, work, 0.1, {"b": {"a": 0.2}}))
    log.add(Iteration(2.0, 1, 1.0, 1, 2, 2, None, work, 0.5, {"a": {"b": 0.9}}))
    log.add(RollBackLogEntry(2.5, 1, 1, 1))
    log.add(Iteration(3.0, 1, 1.0, 1, 2, 2, None, work))
    log.close()
    document = json.loads(typed("elastic", "summary", "log", "--json", cwd=tmp_path).stdout)
    assert (document["moved"], document["help"]) == (0.05, {"b": {"a": 0.1}})
    assert (document["rebalance"], document["hint"]) == (True, None)
    printed = typed("elastic", "summary", "log", cwd=tmp_path).stdout
    assert "helpers did 5.0% of the work: 10.0% of b's by a" in printed
    assert "rule bsp --rebalance: workers waited" in printed


def test_waits_and_a_rule_that_would_save_time(tmp_path: Path) -> None:
    """One of three hosts takes twice as long in each of 300 iterations."""
    work = {"a": (1.0, 1.0, 1), "b": (1.0, 1.0, 1), "c": (2.0, 0.0, 1)}
    log = ElasticLog(tmp_path / "log")
    log.add(ControllerEvent(0.0, "started", "", "bsp", "slots"))
    for number in range(300):
        log.add(Iteration(2.0 * (number + 1), number, 2.0, 1, 3, number + 1, None, work))
    log.close()
    document = json.loads(typed("elastic", "summary", "log", "--json", cwd=tmp_path).stdout)
    assert (document["rule"], document["shares"], document["waited"]) == ("bsp", "slots", 0.3333)
    assert document["hint"]["rule"] == "bsp --shares speed"
    assert 0.35 < document["hint"]["saved"] < 0.45
    assert {row["host"]: (row["computed_s"], row["waited_s"], row["steps"]) for row in document["hosts"]} == {
        "a": (300.0, 300.0, 300), "b": (300.0, 300.0, 300), "c": (600.0, 0.0, 300)
    }  # fmt: skip
    printed = typed("elastic", "summary", "log", cwd=tmp_path).stdout
    assert "33%" in printed
    assert "--rule bsp --shares speed" in printed
    drawn = typed("elastic", "plot", "log", "-o", "run.svg", cwd=tmp_path)
    assert drawn.returncode == 0, drawn.stderr
    picture = (tmp_path / "run.svg").read_text()
    assert all(f'id="wait-{host}"' in picture for host in work)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--rule", "elastic-bsp:0"), "choose 1 to 240 steps"),
        (("--rule", "elastic-bsp:1000"), "choose 1 to 240 steps"),
        (("--rule", "asp:0s"), "choose a clock of"),
        (("--rule", "dssp:5:3"), "the lower first"),
        (("--shares", "fair"), "choose one of slots, speed"),
        (("--rule", "asp", "--shares", "speed"), "choose one of them"),
        (("--rule", "ordered:0"), "choose a delay of 1"),
        (("--rule", "ordered:1000001"), "choose a delay of 1"),
        (("--rule", "ordered:few"), "the delay must be a number"),
        (("--rule", "ordered:9:0s"), "choose a clock of"),
        (("--rule", "ordered:9", "--rebalance"), "under this rule nobody waits"),
        (("--rule", "ordered:9", "--shares", "speed"), "choose one of them"),
        (("--rule", "elastic-bsp", "--shares", "speed"), "choose one of them"),
        (("--max-hosts", "1"), "the job begins with 2 hosts"),
    ],
)
def test_invalid_options_are_refused_in_one_line(options: tuple[str, ...], message: str, tmp_path: Path) -> None:
    (tmp_path / "app.py").touch()
    done = typed("elastic", "run", "--runner", "local", *options, "app.py", cwd=tmp_path)
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


def test_summary_states_updates_and_delays(tmp_path: Path) -> None:
    """In numbers that add up, and as the schema says."""
    log = ElasticLog(tmp_path / "log")
    log.add(ControllerEvent(0.0, "started", rule="ordered:6"))
    log.add(TrafficLogEntry(1.0, "a", 1, 2, UpdateCounts((10, 20, 30, 40), 400, 6, 25)))
    planned = UpdateCounts((0, 0, 100), 200, 2, unsent=75, planned=4, grouped=3, planned_s=2.0, took_s=3.0)
    log.add(TrafficLogEntry(2.0, "b", 1, 2, planned))
    log.close()
    document = json.loads(typed("elastic", "summary", "log", "--json", cwd=tmp_path).stdout)
    updates = document["updates"]
    assert updates | {"delays": []} == {
        "applied": 200, "dropped": 25, "unsent": 75, "mean_delay": 3.0, "largest_delay": 6, "delays": [],
        "planned": 4, "grouped": 3, "lateness": 1.5,
    }  # fmt: skip
    assert [(row["least"], row["most"], row["updates"]) for row in updates["delays"]] == [
        (0, 0, 10), (1, 1, 20), (2, 3, 130), (4, 6, 40),
    ]  # fmt: skip
    printed = typed("elastic", "summary", "log", cwd=tmp_path).stdout
    assert "200 applied, 100 dropped (33.3%), 75 of these before they were sent" in printed
    assert "4 transfers took 1.50 times their plan, 3 of them for several workers" in printed
    assert "delay 3.0, at most 6 (0: 5%, 1: 10%, 2-3: 65%, 4-6: 20%)" in printed


def test_summary_has_what_was_rented(tmp_path: Path) -> None:
    run = recorded(tmp_path, [*SPOT_ENTRIES[:8], SPOT_ENTRIES[-1]])
    log = ElasticLog(run / "elastic.jsonl")
    for entry in entries():
        log.add(entry)
    log.close()
    document = json.loads(typed("elastic", "summary", "abcd", "--json", cwd=tmp_path).stdout)
    assert document["spot"] == json.loads(typed("spot", "status", "abcd", "--json", cwd=tmp_path).stdout) | {
        "at_s": document["spot"]["at_s"],
        "cost": document["spot"]["cost"],
        "held": document["spot"]["held"],
    }
    cost = document["spot"]["cost"]
    assert cost["per_iteration"] > 0
    assert document["cost"] == {key: cost[key] for key in ("total", "per_iteration")} | {"without_price": []}
    shown = typed("elastic", "summary", "abcd", cwd=tmp_path).stdout
    assert "spot-i-1" in shown
    assert "on demand" in shown


def test_summary_of_a_damaged_journal_says_so(tmp_path: Path) -> None:
    run = recorded(tmp_path, SPOT_ENTRIES[:8])
    log = ElasticLog(run / "elastic.jsonl")
    for entry in entries():
        log.add(entry)
    log.close()
    with (run / "spot" / "journal.jsonl").open("a") as file:
        file.write("not a line of it\n")
    done = typed("elastic", "summary", "abcd", "--json", cwd=tmp_path)
    assert done.returncode == 0
    assert "spot" not in json.loads(done.stdout)
    assert "journal.jsonl:9" in done.stderr
