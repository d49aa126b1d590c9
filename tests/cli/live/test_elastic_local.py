"""An elastic job on this machine, as its user sees it: what it prints, leaves and answers is what the schemas say."""

import contextlib
import fcntl
import json
import os
import re
import signal
import struct
import subprocess
import sys
import termios
from pathlib import Path
from typing import Any

import pytest

from plink.model.storage import read_document
from tests.cli.files import refusal
from tests.conftest import typed
from tests.lab.jobs import Running
from tests.lab.waiting import until
from tests.model.schemas import complaints, described, keys
from tests.runners.elastic.tally import expected
from tests.runtime.elastic.arbiter_log import replayed

PROGRAM = Path(__file__).parents[2] / "runners/elastic/tally.py"
WAITING = Path(__file__).parents[3] / "benchmarks/timing/bounded_delay_app.py"


def launched(folder: Path, *words: str, options: tuple[str, ...] = ()) -> Running:
    """A job of two hosts. ``options``: of plink, beside those that all jobs here have."""
    return Running(
        folder, "elastic", "run", "--runner", "local", "--slots", "2", "--timeout", "100s", "--json",
        *options, str(PROGRAM), "--out", str(folder / "out.json"), "--shards", "4", *words,
    )  # fmt: skip


def recorded_runs(folder: Path) -> list[dict[str, Any]]:
    """The runs that are listed, each held against its schema."""
    document = json.loads(typed("runs", "--json", cwd=folder).stdout)
    assert complaints("runs", document | {"runs": [{"id": "1"}]}) == ["$.runs[0]"]
    for run in document["runs"]:
        assert described("run", run)
    runs: list[dict[str, Any]] = document["runs"]
    return runs


def status(folder: Path) -> dict[str, Any]:
    """By the command, once there is work; empty before."""
    done = typed("elastic", "status", "last", "--json", cwd=folder)
    document: dict[str, Any] = json.loads(done.stdout) if done.returncode == 0 else {}
    return document if document.get("stage") else {}


def test_a_job_that_ends_well(tmp_path: Path) -> None:
    job = launched(tmp_path, "--clocks", "40", "--work-s", "0.04")
    try:
        stands = until(lambda: status(tmp_path), 60, "work")
        (begun,) = recorded_runs(tmp_path)
        where = read_document(tmp_path / ".plink/runs" / begun["id"] / "elastic.json")
        assert job.ends(100) == 0, job.err
    finally:
        job.close()
    assert set(stands) == keys("elastic-status") - {"spot"}  # only of a run with rented hosts
    assert (begun["exit_code"], begun["backend"], stands["run"]) == (None, "elastic", begun["id"])
    assert described("elastic-job", where)
    assert set(where) == keys("elastic-job")
    assert (where["pid"], where["lab"], where["runner"]) == (job.process.pid, None, "local")
    assert complaints("elastic-job", where | {"pid": 0}) == ["$.pid"]
    ended = json.loads(job.out)
    assert described("elastic", ended)
    assert set(ended) == keys("elastic") - {"spot"}
    assert (ended["exit_code"], ended["iterations"], ended["why"]) == (0, 40, "40 clocks are done")
    assert complaints("elastic", ended | {"iteration_s": "fast"}) == ["$.iteration_s"]
    (run,) = recorded_runs(tmp_path)
    assert (run["exit_code"], run["why"]) == (0, ended["why"])


def test_divergence_is_bounded_and_shown(tmp_path: Path) -> None:
    """Clocks of a distance of 64 to 65: ten of them travel as one, and the result is the same."""
    stage_2 = ("--stage-thresholds", "0:100", "--divergence", "660")
    job = launched(tmp_path, "--clocks", "150", "--work-s", "0.01", options=stage_2)
    try:
        assert job.ends(100) == 0, job.err
    finally:
        job.close()
    results = read_document(tmp_path / "out.json")
    assert {name: results[name] for name in ("n", "sum")} == expected(4, 150)
    summary = json.loads(typed("elastic", "summary", "last", "--json", cwd=tmp_path).stdout)
    replication = summary["replication"]
    assert 150 / 11 <= replication["rounds"] <= 150 / 3
    assert 130 <= replication["largest_distance"] <= 660
    assert replication["bytes"] > 0
    assert f"{replication['rounds']} rounds" in typed("elastic", "summary", "last", cwd=tmp_path).stdout


@pytest.mark.extended
def test_job_that_ended_by_its_seconds_is_restored(tmp_path: Path) -> None:
    """It trains on for as long again, and says from where; one that has nothing left to do says that."""

    def ends(*words: str, options: tuple[str, ...] = ()) -> tuple[dict[str, Any], str]:
        job = launched(tmp_path, *words, options=("--checkpoint", "saved", *options))
        try:
            assert job.ends(100) == 0, job.err
        finally:
            job.close()
        return json.loads(job.out), job.err

    first, _ = ends("--clocks", "100000", "--seconds", "1")
    clock = read_document(tmp_path / "saved/latest.json")["clock"]
    again, errors = ends("--clocks", "100000", "--seconds", "1", options=("--restore", "saved"))
    assert (first["why"], again["why"]) == ("1 s are over", "1 s are over")
    assert again["iterations"] > 0
    assert f"checkpoint of clock {clock} " in errors
    clock = read_document(tmp_path / "saved/latest.json")["clock"]
    nothing, _ = ends("--clocks", str(clock), options=("--restore", "saved"))
    assert nothing["iterations"] == 0
    assert "nothing was trained" in nothing["why"]
    summary = json.loads(typed("elastic", "summary", "last", "--json", cwd=tmp_path).stdout)
    assert summary["end"]["why"] == nothing["why"]


def test_updates_of_a_slow_host_are_dropped(tmp_path: Path) -> None:
    """The numbers of the summary, of one partition, are those of the program's own count and of the hosts' steps."""
    options = ("--rule", "ordered:1:500ms", "--max-hosts", "2")
    job = launched(tmp_path, "--clocks", "60", "--work-s", "0.02", "--slow", "4", options=options)
    try:
        stands = until(lambda: status(tmp_path).get("updates"), 60, "updates")
        assert job.ends(100) == 0, job.err
    finally:
        job.close()
    assert "--rule ordered:1 with 2 workers" in job.err
    summary = json.loads(typed("elastic", "summary", "last", "--json", cwd=tmp_path).stdout)
    updates, counted = summary["updates"], sum(row[0] for row in json.loads((tmp_path / "out.json").read_text())["n"])
    assert stands["applied"] <= updates["applied"]
    assert sum(row["updates"] for row in updates["delays"]) == updates["applied"] > 0
    assert max(row["most"] for row in updates["delays"]) <= updates["largest_delay"] <= 1
    assert updates["dropped"] > 0
    assert 2 * updates["applied"] <= counted  # two shards a step; after the last heartbeat there may be more
    assert updates["applied"] + updates["dropped"] <= sum(host["steps"] for host in summary["hosts"])
    assert f"{updates['dropped']:,} dropped" in typed("elastic", "summary", "last", cwd=tmp_path).stdout


def test_updates_are_sent_as_the_arbiter_plans(tmp_path: Path) -> None:
    """Models of a megabyte at 100 Mbit/s, as it is told; the bound holds, and the run's notes replay its decisions."""
    words = ("--slots", "4", "--rule", "ordered:3:500ms", "--host-bandwidth", "100mbit", "--timeout", "100s")
    program = (str(WAITING), "--seconds", "4", "--wait", "0.02", "--shards", "4")
    done = typed("elastic", "run", "--runner", "local", *words, *program, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    summary = json.loads(typed("elastic", "summary", "last", "--json", cwd=tmp_path).stdout)
    updates = summary["updates"]
    assert updates["applied"]
    assert updates["largest_delay"] <= 3
    assert updates["planned"]
    (notes,) = tmp_path.glob(".plink/runs/*/notes.log")
    decisions = list(replayed(notes.read_text().splitlines()))
    assert all(logged == again for logged, again in decisions)
    assert sum(len(logged["granted"]) for logged, _ in decisions) >= updates["planned"]


def test_a_checkpoint_is_asked_for(tmp_path: Path) -> None:
    folder, seldom = tmp_path / "saved", ("--checkpoint", "saved", "--checkpoint-every", "1h")
    job = launched(tmp_path, "--clocks", "4000", "--work-s", "0.04", options=seldom)
    try:
        until(lambda: status(tmp_path), 60, "work")
        done = typed("elastic", "checkpoint", "last", "--json", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        reply = json.loads(done.stdout)
        shown = typed("elastic", "checkpoint", "last", cwd=tmp_path)
        latest = read_document(folder / "latest.json")
        job.process.send_signal(signal.SIGINT)
        assert job.ends(20) == 130, job.err
    finally:
        job.close()
    assert described("elastic-checkpoint", reply)
    assert set(reply) == keys("elastic-checkpoint")
    assert complaints("elastic-checkpoint", reply | {"clock": -1}) == ["$.clock"]
    assert (reply["run"], Path(reply["folder"]).parent) == (recorded_runs(tmp_path)[0]["id"], folder)
    assert shown.stdout == f"clock {latest['clock']}: {folder}/{latest['folder']}\n"
    assert latest["clock"] >= reply["clock"]
    ended = typed("elastic", "checkpoint", "last", cwd=tmp_path)
    assert "the job does not answer" in refusal(ended, 1)


def nodes(folder: Path) -> list[int]:
    """Processes of the job's nodes."""
    node_pids = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if str(folder / "out.json").encode() in path.read_bytes() and int(path.parent.name) != os.getpid():
                node_pids.append(int(path.parent.name))
    return node_pids


def test_ctrl_c_ends_the_job_and_its_nodes(tmp_path: Path) -> None:
    """And what was written of it by then can be read."""
    job = launched(tmp_path, "--clocks", "4000", "--work-s", "0.04")
    try:
        until(lambda: status(tmp_path), 60, "work")
        assert len(nodes(tmp_path)) == 3  # this command's own among them
        job.process.send_signal(signal.SIGINT)
        assert job.ends(20) == 130, job.err
    finally:
        job.close()
    until(lambda: not nodes(tmp_path), 20, "the end of its nodes")
    assert "Traceback" not in job.err
    (run,) = recorded_runs(tmp_path)
    assert run["exit_code"] == 130
    summary = typed("elastic", "summary", run["id"], "--json", cwd=tmp_path)
    assert summary.returncode == 0, summary.stderr
    done = typed("elastic", "status", "last", cwd=tmp_path)
    assert done.returncode == 1
    assert "the job does not answer" in done.stderr


RESIZED = re.compile(
    r"from clock \d+ on (\d) workers on (\d) hosts do the work, before (\d) on (\d); the global batch stays the same: "
    r"one mini-batch of each of the 4 shards \(strong scaling\)"
)


def test_hosts_that_come_together_and_leave_together_are_a_line_each(tmp_path: Path) -> None:
    """Where there is no live view. A name that cannot be a host's is refused, and the job goes on."""
    job = launched(tmp_path, "--clocks", "4000", "--work-s", "0.04")
    try:
        until(lambda: status(tmp_path), 60, "work")
        assert "'my host' cannot be a host name" in refusal(typed("elastic", "add", "last", "my host", cwd=tmp_path))
        added = typed("elastic", "add", "last", "n0", "n1", cwd=tmp_path)
        assert added.returncode == 0
        request, joined = added.stderr.splitlines()
        assert request == "plink: asked for: n0, n1"
        assert joined == "plink: joined and at work: n0, n1"
        until(lambda: status(tmp_path)["workers"] == 4, 60, "newcomers")
        assert typed("elastic", "evict", "last", "n0", "n1", "--in", "9s", cwd=tmp_path).returncode == 0
        until(lambda: len(status(tmp_path)["hosts"]) == 2, 60, "the end of their work")
        job.process.send_signal(signal.SIGINT)
        assert job.ends(20) == 130, job.err
    finally:
        job.close()
    assert RESIZED.findall(job.err) == [("4", "4", "2", "2"), ("2", "2", "4", "4")]


@pytest.mark.extended
def test_added_host_that_cannot_load_its_data_is_reported(tmp_path: Path) -> None:
    """Where it was added, with the reason."""
    data = tmp_path / "data"
    data.touch()
    job = launched(tmp_path, "--clocks", "4000", "--work-s", "0.04", "--unless", str(data))
    try:
        until(lambda: status(tmp_path).get("begun", -1) > 3, 60, "work")
        data.unlink()
        added = typed("elastic", "add", "last", "n0", cwd=tmp_path)
        assert added.returncode == 1
        assert "n0 has left again: app Tally: load(" in added.stderr
        job.process.send_signal(signal.SIGINT)
        assert job.ends(20) == 130, job.err
    finally:
        job.close()


def test_interrupted_asynchronous_job_keeps_what_was_done(tmp_path: Path) -> None:
    """Also before the first objective is known, eight clocks later."""
    job = launched(tmp_path, "--clocks", "100000", "--work-s", "0.02", options=("--rule", "asp:500ms"))
    try:
        status_before = until(lambda: (now := status(tmp_path)).get("iteration", -1) >= 1 and now, 60, "two iterations")
        job.process.send_signal(signal.SIGINT)
        assert job.ends(20) == 130, job.err
    finally:
        job.close()
    summary = json.loads(typed("elastic", "summary", "last", "--json", cwd=tmp_path).stdout)
    assert summary["iterations"] >= status_before["iteration"] + 1
    assert summary["waited"] is not None
    assert all(host["steps"] for host in summary["hosts"])
    assert summary["updates"]["applied"] >= status_before["updates"]["applied"]


def test_the_live_view_of_a_terminal(tmp_path: Path) -> None:
    """Stage, hosts and events stay below, and what hosts print goes above it, line by line."""
    reading, writing = os.openpty()
    fcntl.ioctl(writing, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
    words = ("elastic", "run", "--runner", "local", "--slots", "2", "--timeout", "100s", str(PROGRAM))
    words += ("--out", str(tmp_path / "out.json"), "--shards", "4", "--clocks", "60", "--work-s", "0.04", "--say")
    with subprocess.Popen(
        [sys.executable, "-m", "plink", *words], cwd=tmp_path, stdin=subprocess.DEVNULL, stdout=writing, stderr=writing,
        env={**os.environ, "TERM": "xterm-256color", "COLUMNS": ""},
    ) as process:  # fmt: skip
        os.close(writing)
        shown = b""
        with contextlib.suppress(OSError):  # its end
            while data := os.read(reading, 1 << 16):
                shown += data
        os.close(reading)
        assert process.wait(20) == 0, shown
    text = shown.decode()
    assert "\x1b[32mshard 2\x1b[0m" in text
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)
    lines = [line.strip() for line in re.split(r"[\r\n]+", plain)]
    title = re.compile(r"stage 1  iteration \d+  clock \d+  last iteration .+  objective .+")
    assert any(map(title.fullmatch, lines))
    assert [line for line in lines if re.fullmatch(r"local-0 +reliable +\d+ +2 .+B .+B", line)]
    status_lines = [line for line in lines if " at clock " in line]
    assert len(status_lines) == 4 * 60
    assert all(re.fullmatch(r"\[[01]\] shard \d at clock \d+(, and on){12}", line) for line in status_lines)
    assert "60 iterations in" in plain.splitlines()[-2]
