"""``plink launch --pipeline``: its ranks train the stages of a plan."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from msgspec import structs

from plink.model.hosts import Host, Hosts
from plink.model.pipeline.document import PipelinePrediction
from plink.model.pipeline.plan import pipeline_from_json, read_pipeline
from plink.model.pipeline.profile import LayerProfile, ModelProfile, read_profile
from plink.runtime.pipeline.app import load_pipeline_app
from plink.runtime.pipeline.job import PipelineProgram
from plink.runtime.pipeline.one_process import train_in_one_process
from tests.conftest import typed
from tests.model.schemas import complaints
from tests.runtime.pipeline.apps import plan_of

# Each starts several processes; one path of each kind is quick.
pytestmark = pytest.mark.extended

EXAMPLE = str(Path(__file__).parents[2] / "examples" / "pipeline_mlp.py")
SMALL = ("--minibatches", "20", "--items", "8", "--width", "8")


@pytest.fixture(autouse=True)
def _threads() -> Any:
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


def plan_in(folder: Path, replicas: list[int], **keys: Any) -> str:
    plan_of(replicas, 7, **keys).write(folder / "plan.json")
    return "plan.json"


@pytest.mark.quick
def test_launched_pipeline_ends_as_one_process_does(tmp_path: Path) -> None:
    plan = plan_in(tmp_path, [1, 1])
    torch.set_num_threads(1)
    expected = train_in_one_process(
        PipelineProgram(load_pipeline_app(EXAMPLE, SMALL)), read_pipeline(tmp_path / plan), plan
    )
    words = ("launch", "--runner", "local", "--pipeline", plan, "--env", "OMP_NUM_THREADS=1", EXAMPLE, *SMALL)
    done = typed(*words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    table = done.stdout.splitlines()
    loss = next(result.losses[19] for result in expected if result.losses)
    assert table[0].startswith("pipeline 1-1, 20 minibatches in ")
    assert table[0].endswith(f", loss {loss:.5g}")
    assert [line.split()[0] for line in table[1:]] == ["stage", "0", "1"]
    (log,) = (tmp_path / ".plink" / "runs").glob("*/pipeline.jsonl")
    reports = [json.loads(line) for line in log.read_text().splitlines()]
    assert {report["stage"] for report in reports} == {0, 1}
    assert loss in [report.get("loss") for report in reports]
    assert [complaint for report in reports for complaint in complaints("pipeline-log", report)] == []


def test_evaluations_are_in_the_log(tmp_path: Path) -> None:
    plan = plan_in(tmp_path, [2, 1])
    program = (EXAMPLE, *SMALL, "--evaluate-every", "10")
    done = typed(
        "launch", "--runner", "local", "--pipeline", plan, "--env", "OMP_NUM_THREADS=1", *program, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    (log,) = (tmp_path / ".plink" / "runs").glob("*/pipeline.jsonl")
    reports = [json.loads(line) for line in log.read_text().splitlines()]
    evaluations = [report["evaluation"] for report in reports if report["type"] == "evaluation"]
    torch.set_num_threads(1)
    expected = train_in_one_process(
        PipelineProgram(load_pipeline_app(EXAMPLE, program[1:])), read_pipeline(tmp_path / plan), plan
    )
    metrics = next(result.evaluations for result in expected if result.stage == 1)
    assert [(entry["trained"], dict(entry["metrics"])) for entry in evaluations] == list(metrics.items())
    done = typed("pipeline", "train", "--plan", plan, "--threads", "1", *program, cwd=tmp_path)
    for trained, values in metrics.items():
        mean = sum(values.values()) / len(values)
        assert f"after minibatch {trained}: metric {mean:.6g}, the mean of 8 minibatches" in done.stderr


def test_trace_shows_a_run_beside_its_simulation(tmp_path: Path) -> None:
    plan = plan_in(tmp_path, [2, 1])
    layers = tuple(
        LayerProfile(
            name=f"l{k}",
            forward_s=0.01,
            backward_s=0.02,
            parameter_bytes=1000,
            crossing_bytes=64,
            crossing_back_bytes=64,
        )
        for k in range(7)
    )
    ModelProfile(minibatch=4, layers=layers).write(tmp_path / "profile.json")
    words = ("launch", "--runner", "local", "--pipeline", plan, "--env", "OMP_NUM_THREADS=1", EXAMPLE, *SMALL)
    assert typed(*words, cwd=tmp_path).returncode == 0
    done = typed("pipeline", "assess", "last", "--plan", plan, "--trace", "run.json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    words = ("pipeline", "simulate", plan, "--profile", "profile.json", "--gbps", "1", "--minibatches", "20")
    done = typed(*words, "--trace", "both.json", "--beside", "last", cwd=tmp_path)
    assert done.returncode == 0, done.stderr

    def passes(name: str, process: int) -> dict[str, Any]:
        events = json.loads((tmp_path / name).read_text())["traceEvents"]
        return {event["name"]: event for event in events if event["ph"] == "X" and event["pid"] == process}

    first, second = passes("run.json", 0), passes("run.json", 1)
    for number in range(20):
        forward, backward = first[f"F {number}"], first[f"B {number}"]
        assert {forward["tid"], backward["tid"]} == {1 + number % 2}
        assert backward["ts"] >= forward["ts"] + forward["dur"]
        assert second[f"B {number}"]["ts"] >= second[f"F {number}"]["ts"]
    # Stages of both timelines are one below the other: simulated, then measured.
    assert passes("both.json", 1) == {name: {**event, "pid": 1} for name, event in first.items()}
    assert passes("both.json", 0).keys() == first.keys()
    assert "--beside last goes with --trace" in typed(*words, "--beside", "last", cwd=tmp_path).stderr


def test_json_has_the_reports_of_all_ranks(tmp_path: Path) -> None:
    plan = plan_in(tmp_path, [2, 1])
    words = ("launch", "--runner", "local", "--json", "--set", "message-timeout=90s", "--pipeline", plan, EXAMPLE)
    done = typed(*words, *SMALL, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    reports = document["pipeline"]
    assert [(report["rank"], report["type"], report["minibatches"]) for report in reports] == [
        (0, "end", 20), (1, "end", 10), (2, "end", 10),
    ]  # fmt: skip


@pytest.mark.quick
def test_ranks_wait_as_long_as_the_plan_needs() -> None:
    from plink.features.launch.pipeline_job import message_timeout_s

    plan = plan_of([1, 1], 7)
    assert message_timeout_s(plan) == 300
    slow = structs.replace(plan, predicted=PipelinePrediction(minibatch_s=100.0, items_per_s=1.0))
    assert message_timeout_s(slow) > 100 * sum(stage.depth for stage in plan.stages)


def test_ranks_get_what_they_need_of_the_plan(tmp_path: Path) -> None:
    plan = plan_of([2, 1], 7)
    plan.write(tmp_path / "plan.json")
    done = typed("launch", "--runner", "local", "--dry-run", "--json", "--pipeline", "plan.json", EXAMPLE, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    commands = json.loads(done.stdout)["commands"]
    assert all(command["argv"][1:4] == ["-m", "plink.runtime.pipeline", EXAMPLE] for command in commands)
    sent = pipeline_from_json(json.loads(commands[0]["env"]["PLINK_PIPELINE"]), "PLINK_PIPELINE")
    assert sent == plan


def test_idle_hosts_are_left_out_and_named(tmp_path: Path) -> None:
    from plink.features.launch.pipeline_job import _arranged

    plan = plan_of([1, 1], 7)
    hosts = Hosts((Host("other", "127.0.0.2"), Host("here", "127.0.0.3", slots=2)))
    assert _arranged(plan, hosts, "plan.json").members == (hosts.members[1],)


# It fails once there is a checkpoint that all ranks have of little before.
FAILING = f"""
import os, signal, sys, time
from pathlib import Path
sys.path.insert(0, {str(Path(EXAMPLE).parent)!r})
import pipeline_mlp

class Failing(pipeline_mlp.Points):
    def batch(self, number):
        mark = Path(__file__).with_name(f"failed-{{number}}")
        if number in self.fails and (not mark.exists() or self.always):
            mark.touch()
            due, limit = (number - 2) // 5 * 5, time.monotonic() + 60
            while not all(Path(f"kept/minibatch-{{due}}/stage-{{stage}}-replica-0.pt").exists() for stage in (0, 1)):
                assert time.monotonic() < limit
                time.sleep(0.01)
            raise ValueError("no such file")
        return super().batch(number)

def make(arguments):
    mark = Path(__file__).with_name("killed")
    if "killed" in arguments and "PLINK_PIPELINE_RESTORE" in os.environ and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    app = Failing(40, 8, 8)
    app.fails, app.always = [int(word) for word in arguments if word.isdecimal()], "always" in arguments
    return app
"""


def launch_failing(folder: Path, *words: str, restarts: int = 0, **keys: Any) -> Any:
    plan = plan_in(folder, [1, 1])
    (folder / "program.py").write_text(FAILING)
    options = ["--checkpoint", "kept", "--set", "checkpoint-every=5", "--env", "OMP_NUM_THREADS=1"]
    options += ["--set", f"restarts={restarts}"] if restarts else []
    options += ["--restore", "kept"] if keys.get("restore") else []
    return typed("launch", "--runner", "local", "--pipeline", plan, *options, "program.py", *words, cwd=folder)


def final_loss(output: str) -> str:
    return output.splitlines()[0].rpartition("loss ")[2]


def test_failed_job_is_restarted_from_its_checkpoint(tmp_path: Path) -> None:
    done = launch_failing(tmp_path, "18", "35", restarts=2)
    assert done.returncode == 0, done.stderr
    assert "starting program.py" in done.stderr
    first_error = done.stderr.index("was the first to fail")
    assert first_error < done.stderr.index("restarts left: 1") < done.stderr.index("resuming from minibatch")
    assert "plink.pipeline-log" not in done.stderr
    assert (tmp_path / "failed-35").exists()
    plan = read_pipeline(tmp_path / "plan.json")
    torch.set_num_threads(1)
    results = train_in_one_process(
        PipelineProgram(load_pipeline_app(EXAMPLE, ["--minibatches", "40", "--items", "8", "--width", "8"])),
        plan,
        "plan.json",
    )
    assert final_loss(done.stdout) == f"{next(result.losses[39] for result in results if result.losses):.5g}"


def test_job_that_fails_at_one_place_is_not_restarted_for_ever(tmp_path: Path) -> None:
    done = launch_failing(tmp_path, "always", "31", restarts=100)
    assert done.returncode == 1
    assert 1 <= done.stderr.count("restarts left") <= 2  # from 25, and from 30 if all ranks had that
    assert "add --restore kept to go on from" in done.stderr
    (tmp_path / "failed-31").unlink()
    done = launch_failing(tmp_path, restore=True)
    assert done.returncode == 0, done.stderr


def test_job_that_is_killed_while_it_restarts_can_go_on(tmp_path: Path) -> None:
    """No checkpoint was written since, so it is not restarted for ever."""
    done = launch_failing(tmp_path, "18", "killed", restarts=100)
    assert done.returncode != 0
    assert (tmp_path / "killed").exists()
    assert done.stderr.count("restarts left") == 1
    assert "add --restore kept to go on from there again" in done.stderr
    done = launch_failing(tmp_path, "18", "killed", restore=True)
    assert done.returncode == 0, done.stderr
    assert "resuming from minibatch 15," in done.stderr


def test_restored_job_that_fails_before_a_checkpoint_says_how_to_go_on(tmp_path: Path) -> None:
    done = launch_failing(tmp_path, "18")
    assert done.returncode == 1
    # What ranks reported may be the one before, where the job ends at once.
    assert re.search(r"the latest checkpoint is of minibatch 1[05]: add --restore kept to go on from it", done.stderr)
    done = launch_failing(tmp_path, "always", "16", restore=True, restarts=3)
    assert done.returncode == 1
    assert "began at minibatch 15: add --restore kept to go on from there again" in done.stderr
    assert "restarts left" not in done.stderr


@pytest.mark.quick
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--set", "restarts=2", EXAMPLE], "go with --checkpoint DIR"),
        (["--set", "checkpoint-every=0", EXAMPLE], "--set checkpoint-every=0: write checkpoint-every= and minibatches"),
        (["--order", "given", EXAMPLE], "--pipeline: omit --order; the plan has hosts and ranks"),
        (["--algo", "ring", EXAMPLE], "--pipeline: omit --algo"),
        (["--runner", "local", "--slots", "3", EXAMPLE], "--pipeline: omit --slots"),
        (["--set", "message-timeout=0", EXAMPLE], "--set message-timeout=0: write message-timeout= and 5m"),
        (["/bin/true"], "--pipeline: /bin/true must be a .py file that defines make(arguments)"),
        (["--runner", "local", "--hosts", "hosts.txt", EXAMPLE], "--runner local runs every rank on this machine"),
        (["--hosts", "hosts.txt", EXAMPLE], "plan.json: the plan's host here is not in the hosts file; plan again"),
        (["--hosts", "slots.txt", EXAMPLE], "plan.json: the plan gives here 2 slots, the hosts file 1; plan again"),
    ],
)
def test_bad_requests_are_refused(words: list[str], message: str, tmp_path: Path) -> None:
    plan = plan_in(tmp_path, [1, 1])
    (tmp_path / "hosts.txt").write_text("other\n")
    (tmp_path / "slots.txt").write_text("here address=127.0.0.1\n")
    done = typed("launch", "--pipeline", plan, *words, cwd=tmp_path)
    assert done.returncode == 2
    assert message in done.stderr


@pytest.mark.quick
@pytest.mark.parametrize(
    "words", [["--checkpoint", "kept"], ["--restore", "kept"], ["--set", "restarts=1"], ["--set", "message-timeout=1m"]]
)
def test_options_of_pipelines_need_one(words: list[str], tmp_path: Path) -> None:
    done = typed("launch", *words, EXAMPLE, cwd=tmp_path)
    assert done.returncode == 2
    assert "goes with --pipeline" in done.stderr


@pytest.mark.quick
def test_plan_that_is_not_proven_is_refused(tmp_path: Path) -> None:
    document = plan_of([1, 1], 7).to_json() | {"actions": [["1F0", "1B0", "1UPDATE0"], ["0F0", "0UPDATE0", "0B0"]]}
    (tmp_path / "plan.json").write_text(json.dumps(document))
    done = typed("launch", "--runner", "local", "--pipeline", "plan.json", EXAMPLE, cwd=tmp_path)
    assert done.returncode == 2
    assert "plan.json: its actions are not correct: rank 1: UPDATE 0 of stage 0 precedes B 0" in done.stderr


def test_program_is_profiled_and_planned(tmp_path: Path) -> None:
    done = typed("pipeline", "profile", "--minibatches", "3", EXAMPLE, *SMALL, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    profile = read_profile(tmp_path / ".plink/profile.json")
    assert [layer.name for layer in profile.layers] == [str(k) for k in range(7)]
    assert profile.program == EXAMPLE
    assert profile.arguments == SMALL
    assert [layer.crossing_back_bytes for layer in profile.layers] == [8 * 8 * 4] * 6 + [0]
    done = typed("pipeline", "plan", "--hosts", "2", "--gbps", "10", "--straight", "--all-workers", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    done = typed("pipeline", "train", EXAMPLE, *SMALL, cwd=tmp_path)
    assert done.returncode == 0, done.stderr


def test_training_shows_losses_beside_those_without_delays(tmp_path: Path) -> None:
    plan = plan_in(tmp_path, [2, 1])
    done = typed("pipeline", "train", "--plan", plan, "--beside", "--json", EXAMPLE, *SMALL, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["replicas"] == [2, 1]
    assert len(document["losses"]) == len(document["sequential"]) == document["minibatches"] == 20
    assert document["losses"][:2] != document["sequential"][:2]
    words = ("pipeline", "train", "--plan", plan, "--minibatches", "11", EXAMPLE, *SMALL)
    done = typed(*words, cwd=tmp_path)
    assert done.stdout.splitlines()[0].split() == ["minibatches", "pipeline"]
    assert [line.split()[0] for line in done.stdout.splitlines()[1:]] == ["0-1", "2-3", "4-5", "6-7", "8-9", "10-10"]
