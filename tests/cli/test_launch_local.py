"""`plink launch` on this machine alone: what it refuses, rehearses, compares and shows."""

import json
import signal
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from plink.errors import UsageError
from plink.features.compare.metric import metric_from
from plink.model.storage import read_document
from tests.cli.files import refusal
from tests.conftest import typed
from tests.lab.jobs import Running

SCHEMAS = Path(__file__).parents[2] / "docs" / "schemas"
HOSTS = "a address=127.0.0.1\nb address=127.0.0.2\n"


def local(folder: Path, *words: str) -> tuple[int, str, str]:
    """Exit code, standard output, standard error."""
    done = typed("launch", "--runner", "local", *words, cwd=folder)
    return done.returncode, done.stdout, done.stderr


@pytest.fixture
def script(tmp_path: Path) -> str:
    """A program that prints its rank and arguments."""
    (tmp_path / "hello.py").write_text(
        "import os, sys\nfor k in range(3): print(k, os.environ['RANK'], os.environ['WORLD_SIZE'], sys.argv[1:])\n"
    )
    return "hello.py"


def test_ranks_on_this_machine(tmp_path: Path, script: str) -> None:
    code, out, err = local(tmp_path, "--slots", "2", "--json", "--tail", "1", script, "a b")
    assert code == 0, err
    run = json.loads(out)
    (recorded,) = json.loads(typed("runs", "--json", cwd=tmp_path).stdout)["runs"]
    assert recorded["order"] == "given"  # none was searched for
    assert [(rank["rank"], rank["host"], rank["wrong"]) for rank in run["proof"]["ranks"]] == [
        (0, "localhost", None),
        (1, "localhost", None),
    ]
    assert run["exits"] == {"0": 0, "1": 0}
    record = read_document(tmp_path / ".plink" / "runs" / run["id"] / "run.json")
    assert (record["runner"], record["args"]) == ("local", ["a b"])
    assert (tmp_path / str(record["logs"]) / "rank-1.out").read_text().splitlines()[2] == "2 1 2 ['a b']"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_record_of_a_stopped_job_has_its_exit_code_and_seconds(number: signal.Signals, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import time\nprint('begun', flush=True)\ntime.sleep(100)\n")
    running = Running(tmp_path, "launch", "--runner", "local", "--slots", "2", "train.py")
    try:
        running.await_lines(2, "begun", seconds=60)
        running.process.send_signal(number)
        assert running.ends(20) == 128 + number
    finally:
        running.close()
    (recorded,) = json.loads(typed("runs", "--json", cwd=tmp_path).stdout)["runs"]
    assert recorded["exit_code"] == 128 + number
    assert 0 < recorded["seconds"] < 60


def test_failed_rank_exception_is_reported_last(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import os, sys, time\n"
        "if os.environ['RANK'] != '1': time.sleep(60)\n"
        "sys.excepthook = lambda kind, error, at: sys.stderr.write(f'[rank1]: {kind.__name__}: {error}\\n\\nAt:\\n')\n"
        "raise ValueError('rank 0 did not take part')\n"
    )
    code, _, err = local(tmp_path, "--slots", "2", "train.py")
    assert code == 1
    assert err.splitlines()[-1].endswith("with exit code 1: ValueError: rank 0 did not take part")


def test_ranks_that_ended_before_the_failure_are_named(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import os, sys, time\n"
        "if os.environ['RANK'] == '1': sys.exit(0)\n"
        "time.sleep(1 if os.environ['RANK'] == '0' else 60)\n"
        "raise RuntimeError('connection closed by peer')\n"
    )
    code, _, err = local(tmp_path, "--slots", "3", "train.py")
    assert code == 1
    assert err.splitlines()[-1].endswith("connection closed by peer; rank 1 had ended before, with exit code 0")


def test_rerun_repeats_all_options(tmp_path: Path) -> None:
    """Folder, time, interface and environment too; what is typed beside it wins."""
    (tmp_path / "there").mkdir()
    text = "import os; print(os.getcwd(), os.environ['A'], os.environ['B'], os.environ['GLOO_SOCKET_IFNAME'])"
    (tmp_path / "there" / "where.py").write_text(text)
    first = ("--slots", "1", "--workdir", str(tmp_path / "there"), "--interface", "lo", "--timeout", "50s")
    code, out, err = local(tmp_path, *first, "--env", "A=1", "--env", "B=1", "where.py")
    assert (code, out) == (0, f"[0] {tmp_path / 'there'} 1 1 lo\n"), err
    done = typed("runs", "rerun", "last", "--env", "B=2", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, f"[0] {tmp_path / 'there'} 1 2 lo\n"), done.stderr
    last, before = json.loads(typed("runs", "--json", cwd=tmp_path).stdout)["runs"]
    same = ("runner", "program", "args", "workdirs", "pythons", "timeout_s", "interface", "hosts")
    assert {key: last[key] for key in same} == {key: before[key] for key in same}
    assert (last["timeout_s"], last["runner"]) == (50.0, "local")
    assert list(Draft202012Validator(read_document(SCHEMAS / "run.schema.json")).iter_errors(last)) == []


def test_logs_can_be_watched(tmp_path: Path) -> None:
    """Lines are in the files while the job goes on."""
    (tmp_path / "waits.py").write_text(
        "import pathlib, time\nprint('begun')\nuntil = time.monotonic() + 20\n"
        "def found():\n"
        "    logs = pathlib.Path('.plink/runs').glob('*/logs/rank-0.out')\n"
        "    return [log for log in logs if log.read_text() == 'begun\\n']\n"
        "while not found() and time.monotonic() < until: time.sleep(0.1)\nprint('seen', len(found()))\n"
    )
    assert local(tmp_path, "--slots", "1", "waits.py")[1] == "[0] begun\n[0] seen 1\n"


def test_placement_is_reported(tmp_path: Path) -> None:
    assert local(tmp_path, "--slots", "2", "true")[2] == "plink: 2/2 ranks placed; starting true\n"


def test_dry_run_starts_nothing(tmp_path: Path, script: str) -> None:
    (tmp_path / "marks.py").write_text("open('mark', 'w')")
    code, out, err = local(tmp_path, "--dry-run", "--slots", "2", "--env", "X=it's", "marks.py", "$(a)\n")
    assert code == 0, err
    lines = out.splitlines()
    assert lines[0] == "# on localhost, rank 0"
    assert lines[1].startswith(f"cd {tmp_path} && env RANK=0 ")
    assert "X='it'\"'\"'s'" in lines[1]
    assert lines[1].endswith("marks.py '$(a)")
    assert not (tmp_path / "mark").exists()
    assert not (tmp_path / ".plink").exists()
    code, out, _ = local(tmp_path, "--dry-run", "--slots", "2", "--json", "marks.py", "$(a)\n")
    preview = json.loads(out)
    assert preview["schema"] == "plink.dry-run/1"
    assert [command["ranks"] for command in preview["commands"]] == [[0], [1]]
    assert preview["commands"][1]["argv"][1:] == ["marks.py", "$(a)\n"]
    code, _, err = local(tmp_path, "--dry-run", "nowhere.py")
    assert code == 1
    assert "no such" in err


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--runner", "teleport", "x"], "--runner teleport: choose one of ssh, local"),
        (["--runner", "local", "--hosts", "hosts.txt", "x"], "--runner local runs every rank on this machine"),
        (["--hosts", "hosts.txt", "--order", "given", "--timeout", "0", "x"], "'0' leaves no time for anything"),
        (["--hosts", "hosts.txt", "--env", "A;touch x=1", "x"], "write NAME=VALUE"),
    ],
)
def test_what_is_refused(words: list[str], complaint: str, tmp_path: Path) -> None:
    (tmp_path / "hosts.txt").write_text(HOSTS)
    assert complaint in refusal(typed("launch", *words, cwd=tmp_path), 2)


def test_options_that_do_not_go_together(tmp_path: Path) -> None:
    """Each is refused in a line that begins with the first of the two."""
    for line in (
        "--sync . --workdir /tmp x",
        "--sync . --runner slurm x",
        "--slots 2 --hosts hosts.txt x",
        "--autotune --runner local x",
        "--set autotune-every=1s --runner local x",
        "--launcher-args=-v --runner local x",
    ):
        message = refusal(typed("launch", *line.split(), cwd=tmp_path), 2)
        assert message.startswith(line.split()[0].partition("=")[0]), (line, message)


@pytest.mark.parametrize(
    ("pattern", "lines", "expected"),
    [
        ("took ([0-9.]+) s", ["took 3 s", "took 1.5 s, took 2.5 s", "done"], 2.5),
        ("seconds", ['{"seconds": 4}', "no"], 4.0),
        ("seconds", ['{"seconds": [1, 9, 2]}', '{"other": 1}', "{broken"], 2.0),
        ("seconds", ['{"seconds": true}', '{"seconds": []}', '["seconds"]'], None),
        ("took ([0-9.]+)", [], None),
    ],
)
def test_metrics(pattern: str, lines: list[str], expected: float | None) -> None:
    assert metric_from(pattern).parse(lines) == expected


@pytest.mark.parametrize(
    ("pattern", "complaint"),
    [
        ("(a", "no regular expression"),
        ("(a)(b)", "has 2 groups"),
        ("in [0-9.]+", "it has no group"),
        ("in (.*)", "'soon' is no number"),
    ],
)
def test_metrics_that_cannot_be_read(pattern: str, complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        metric_from(pattern).parse(["in soon"])


@pytest.mark.extended
def test_a_run_keeps_the_step_that_rank_0_reports(tmp_path: Path) -> None:
    """Bytes and seconds of all-reduces of a real program; those of sparse tensors do not count."""
    (tmp_path / "train.py").write_text(
        "import torch, torch.distributed as dist\n"
        "dist.init_process_group('gloo')\n"
        "for step in range(12):\n"
        "    for size in (2_000, 500): dist.all_reduce(torch.ones(size))\n"
        "dist.all_reduce(torch.sparse_coo_tensor([[0]], [1.0], (4,)))\n"
    )
    code, out, err = local(tmp_path, "--slots", "2", "--backend", "flat", "--json", "train.py")
    assert code == 0, err
    record = read_document(tmp_path / ".plink" / "runs" / json.loads(out)["id"] / "run.json")
    assert record["bytes_per_step"] == 10_000
    assert 0 < record["step_s"] < 10
