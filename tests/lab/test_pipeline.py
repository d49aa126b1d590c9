"""`plink launch --pipeline` on hosts reached over SSH: profiled, planned, trained; equal to one process to the bit."""

import json
from pathlib import Path

import pytest

from plink.model.pipeline.plan import read_pipeline
from tests.conftest import Lab, plink
from tests.lab.jobs import write_hosts

pytestmark = pytest.mark.lab

EXAMPLE = str(Path(__file__).parents[2] / "examples" / "pipeline_mlp.py")
# Once there is a checkpoint that all ranks have.
KILLED_ONCE = f"""
import os, signal, sys, time
from pathlib import Path
sys.path.insert(0, {str(Path(EXAMPLE).parent)!r})
import pipeline_mlp

class Killed(pipeline_mlp.Points):
    def batch(self, number):
        mark = Path(__file__).with_name("killed")
        if number == 17 and not mark.exists():
            mark.touch()
            limit = time.monotonic() + 60
            while not any(len(list(folder.glob("stage-*.pt"))) == 3 for folder in Path("ckpt").glob("minibatch-*")):
                assert time.monotonic() < limit
                time.sleep(0.01)
            time.sleep(1)  # its report is on the way
            os.kill(os.getpid(), signal.SIGKILL)
        return super().batch(number)

def make(arguments):
    return Killed(21, 8, 8)
"""
SMALL = ("--minibatches", "21", "--items", "8", "--width", "8")


def test_pipeline_on_hosts_ends_as_one_process_does(small_lab: Lab, tmp_path: Path) -> None:
    """Two replicas and one; the last round is short, and one host stays idle."""
    write_hosts(small_lab, tmp_path)
    for words in (
        ("profile", "--minibatches", "3", EXAMPLE, *SMALL),
        ("plan", "--hosts", "hosts.txt", "--gbps", "0.2", "--stages", "0-3x2,4-6x1"),
    ):
        done = plink("pipeline", *words, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    plan = read_pipeline(tmp_path / ".plink" / "pipeline.json")
    assert plan.label == "2-1"
    words = ("--json", "--hosts", "hosts.txt", "--pipeline", ".plink/pipeline.json", "--env", "OMP_NUM_THREADS=1")
    done = plink("launch", *words, EXAMPLE, *SMALL, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    reports = json.loads(done.stdout)["pipeline"]
    assert [report["host"] for report in reports] == plan.host_names()
    assert [report["minibatches"] for report in reports] == [11, 10, 21]
    assert small_lab.hosts.names[3] in done.stderr
    done = plink("pipeline", "train", "--threads", "1", "--json", EXAMPLE, *SMALL, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert reports[2]["loss"] == json.loads(done.stdout)["losses"][-1]


def test_killed_rank_is_started_again_from_a_checkpoint(small_lab: Lab, tmp_path: Path) -> None:
    """It ends as a job that nothing disturbed: with the bits of one process."""
    write_hosts(small_lab, tmp_path)
    (tmp_path / "program.py").write_text(KILLED_ONCE)
    for words in (
        ("profile", "--minibatches", "3", EXAMPLE, *SMALL),
        ("plan", "--hosts", "hosts.txt", "--gbps", "0.2", "--stages", "0-3x2,4-6x1"),
    ):
        done = plink("pipeline", *words, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    words = ("--json", "--hosts", "hosts.txt", "--pipeline", ".plink/pipeline.json", "--env", "OMP_NUM_THREADS=1")
    checkpoints = ("--checkpoint", "ckpt", "--set", "checkpoint-every=4", "--set", "restarts=2")
    done = plink("launch", *words, *checkpoints, "program.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "resuming from minibatch" in done.stderr
    reports = json.loads(done.stdout)["pipeline"]
    done = plink("pipeline", "train", "--threads", "1", "--json", EXAMPLE, *SMALL, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert reports[2]["loss"] == json.loads(done.stdout)["losses"][-1]
