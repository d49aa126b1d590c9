"""``plink launch --pipeline``: its ranks train the stages of a plan."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from plink.model.hosts import Host, Hosts
from plink.model.pipeline.plan_file import pipeline_from_json, read_pipeline
from plink.model.pipeline.profile_file import read_profile
from plink.runtime.pipeline.app import load_pipeline_app
from plink.runtime.pipeline.job import PipelineProgram
from plink.runtime.pipeline.one_process import train_in_one_process
from tests.conftest import typed
from tests.model.schemas import complaints
from tests.runtime.pipeline.apps import plan_of

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


def test_json_has_the_reports_of_all_ranks(tmp_path: Path) -> None:
    plan = plan_in(tmp_path, [2, 1])
    words = ("launch", "--runner", "local", "--json", "--set", "message-timeout=90s", "--pipeline", plan, EXAMPLE)
    done = typed(*words, *SMALL, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert complaints("run", document) == []
    reports = document["pipeline"]
    assert [(report["rank"], report["type"], report["minibatches"]) for report in reports] == [
        (0, "end", 20), (1, "end", 10), (2, "end", 10),
    ]  # fmt: skip


def test_ranks_wait_as_long_as_the_plan_needs() -> None:
    from plink.cli.pipeline.running import message_timeout_s

    plan = plan_of([1, 1], 7)
    assert message_timeout_s(plan) == 300
    slow = replace(plan, details={"predicted": {"minibatch_s": 100.0}})
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
    from plink.cli.pipeline.running import _arranged

    plan = plan_of([1, 1], 7)
    hosts = Hosts((Host("other", "127.0.0.2"), Host("here", "127.0.0.3", slots=2)))
    assert _arranged(plan, hosts, "plan.json").members == (hosts.members[1],)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--order", "given", EXAMPLE], "--pipeline: omit --order; the plan has hosts and ranks"),
        (["--algo", "ring", EXAMPLE], "--pipeline: omit --algo"),
        (["--runner", "local", "--slots", "3", EXAMPLE], "--pipeline: omit --slots"),
        (["--set", "message-timeout=0", EXAMPLE], "--set message-timeout=0: write message-timeout= and 5m"),
        (["/bin/true"], "--pipeline: /bin/true must be a .py file that defines make(arguments)"),
        (["--runner", "local", "--hosts", "hosts.txt", EXAMPLE], "--runner local runs every rank on this machine"),
        (["--hosts", "hosts.txt", EXAMPLE], "plan.json: the plan's host here is not in the hosts file; plan again"),
        (["--hosts", "slots.txt", EXAMPLE], "plan.json: the plan gives here 2 slots, the hosts file 1; plan again"),
        (["--backend", "agileml", EXAMPLE], "--backend agileml: omit --pipeline"),
    ],
)
def test_bad_requests_are_refused(words: list[str], message: str, tmp_path: Path) -> None:
    plan = plan_in(tmp_path, [1, 1])
    (tmp_path / "hosts.txt").write_text("other\n")
    (tmp_path / "slots.txt").write_text("here address=127.0.0.1\n")
    done = typed("launch", "--pipeline", plan, *words, cwd=tmp_path)
    assert done.returncode == 2
    assert message in done.stderr


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
    assert profile.details["program"] == EXAMPLE
    assert profile.details["arguments"] == list(SMALL)
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
    assert complaints("pipeline-training", document) == []
    assert document["replicas"] == [2, 1]
    assert len(document["losses"]) == len(document["sequential"]) == document["minibatches"] == 20
    assert document["losses"][:2] != document["sequential"][:2]
    words = ("pipeline", "train", "--plan", plan, "--minibatches", "11", EXAMPLE, *SMALL)
    done = typed(*words, cwd=tmp_path)
    assert done.stdout.splitlines()[0].split() == ["minibatches", "pipeline"]
    assert [line.split()[0] for line in done.stdout.splitlines()[1:]] == ["0-1", "2-3", "4-5", "6-7", "8-9", "10-10"]
