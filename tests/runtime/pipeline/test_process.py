"""The process of one rank, ``python -m plink.runtime.pipeline``: from a plan's file to the line that it ends with."""

import json
from pathlib import Path

import pytest
import torch

from plink.errors import InputError
from plink.model.pipeline.plan import PipelinePlan
from plink.runtime.pipeline.__main__ import main
from plink.runtime.pipeline.app import load_pipeline_app
from plink.runtime.pipeline.job import PipelineProgram
from plink.runtime.pipeline.one_process import train_in_one_process
from tests.model.schemas import complaints
from tests.ports import free_port
from tests.runtime.pipeline.apps import plan_of
from tests.runtime.ranks import Ended, Ranks, environment_of

# Each starts several processes; one path of each kind is quick.
pytestmark = pytest.mark.extended

EXAMPLE = Path(__file__).parents[3] / "examples" / "pipeline_mlp.py"
ARGUMENTS = ["--minibatches", "30", "--items", "16", "--width", "16"]
SAVING = f"""
import sys
sys.path.insert(0, {str(EXAMPLE.parent)!r})
from pathlib import Path
import pipeline_mlp
import torch

class Saving(pipeline_mlp.Points):
    def save(self, stage, state):
        torch.save(state, Path(__file__).parent / f"stage-{{stage}}.pt")

def make(arguments):
    return Saving(30, 16, 16)
"""


def run(folder: Path, plan: PipelinePlan, program: str, **more: str) -> list[Ended]:
    plan.write(folder / "plan.json")
    port = free_port()
    with Ranks(folder) as job:
        for rank in range(plan.ranks):
            variables = {"PLINK_PIPELINE": str(folder / "plan.json")} | more
            environment = {**environment_of(rank, plan.ranks, port), **variables}
            job.start(main, [program], environment=environment)
        return job.wait()


@pytest.mark.quick
def test_process_trains_and_reports(tmp_path: Path) -> None:
    plan, program = plan_of([2, 1], 7), tmp_path / "program.py"
    program.write_text(SAVING)
    ended = run(tmp_path, plan, str(program), PLINK_PIPELINE_REPORTS="1")
    assert [end.code for end in ended] == [0, 0, 0], ended
    lines = [[json.loads(line) for line in end.out.splitlines()] for end in ended]
    assert [complaints("pipeline-log", report) for rank in lines for report in rank] == [[]] * sum(map(len, lines))
    assert all(report["type"] == "timeline" for rank in lines for report in rank[:-1])
    reports = [rank[-1] for rank in lines]
    assert [report["type"] for report in reports] == ["end", "end", "end"]
    assert [(report["stage"], report["replica"]) for report in reports] == [(1, 0), (0, 0), (0, 1)]
    assert [report["minibatches"] for report in reports] == [30, 15, 15]
    assert sum(report["sent_bytes"] for report in reports) == sum(report["received_bytes"] for report in reports)
    assert [report["versions"] for report in reports] == [1, 2, 2]
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    expected = train_in_one_process(PipelineProgram(load_pipeline_app(str(EXAMPLE), ARGUMENTS)), plan, "plan.json")
    torch.set_num_threads(threads)
    assert reports[0]["loss"] == expected[0].losses[29]
    for stage in (0, 1):
        state = torch.load(tmp_path / f"stage-{stage}.pt", weights_only=True)
        result = next(result for result in expected if result.stage == stage)
        assert state.keys() == result.state.keys()
        assert all(torch.equal(state[name], result.state[name]) for name in state)


def test_rank_0_prints_a_table_under_any_launcher(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(SAVING)
    ended = run(tmp_path, plan_of([1, 1], 7), str(program))
    assert [end.code for end in ended] == [0, 0], ended
    (table,) = [end.out.splitlines() for end in ended if end.out]
    assert ended[0].out
    assert table[0].startswith("pipeline 1-1, 30 minibatches in ")
    assert [line.split()[:2] for line in table[1:]] == [["stage", "hosts"], ["0", "here"], ["1", "here"]]


def test_delays_do_not_keep_the_example_from_learning() -> None:
    app = load_pipeline_app(str(EXAMPLE), ["--minibatches", "100", "--width", "32"])
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    results = train_in_one_process(PipelineProgram(app), plan_of([1, 1, 1], 7), "plan.json")
    torch.set_num_threads(threads)
    losses = next(result.losses for result in results if result.losses)
    assert sum(losses[b] for b in range(90, 100)) < 0.5 * sum(losses[b] for b in range(10))


def test_job_of_another_size_is_refused(tmp_path: Path) -> None:
    plan = plan_of([1, 1], 7)
    plan.write(tmp_path / "plan.json")
    with Ranks(tmp_path) as job:
        job.start(
            main, [str(EXAMPLE)],
            environment={**environment_of(0, 1, free_port()), "PLINK_PIPELINE": str(tmp_path / "plan.json")},
        )  # fmt: skip
        (ended,) = job.wait()
    assert ended.code == 1
    assert ended.err == f"error: {tmp_path / 'plan.json'}: the plan has 2 ranks, the job 1\n"


@pytest.mark.quick
@pytest.mark.parametrize(
    ("arguments", "plan", "message"),
    [
        ([], "", "error: usage: python -m plink.runtime.pipeline PROGRAM [ARGS]"),
        (["app.py"], "", "error: PLINK_PIPELINE has no plan"),
        (["app.py"], "{}", "error: PLINK_PIPELINE: schema: expected"),
        (["app.py"], "none.json", "error: none.json: "),
        (["app.py"], json.dumps(plan_of([1, 1], 7).to_json()), "error: app.py: there is no such file on this host"),
    ],
)
def test_mistakes_before_the_start(arguments: list[str], plan: str, message: str, tmp_path: Path) -> None:
    with Ranks(tmp_path) as job:
        job.start(main, arguments, environment={"PLINK_PIPELINE": plan})
        (ended,) = job.wait()
    assert ended.code == 2
    assert ended.err.startswith(message)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def make(arguments): return 3", "make() gave int, which is no PipelineApp"),
        ("pass", "it has no function make"),
        ("def make(arguments): raise KeyError('x')", "line 1: KeyError"),
        ("{app}\ndef make(arguments): return A()", "minibatches: a number of 1 or more was expected, not None"),
        ("{app}\n    minibatches = 0\ndef make(arguments): return A()", "a number of 1 or more was expected, not 0"),
        ("{app}\n    minibatches, seed = 1, -1\ndef make(arguments): return A()", "seed: a number from 0"),
    ],
)
def test_bad_programs_are_refused(text: str, message: str, tmp_path: Path) -> None:
    app = "from plink.runtime.pipeline.app import PipelineApp\nclass A(PipelineApp):\n" + "".join(
        f"    def {name}(self, *a): pass\n" for name in ("model", "batch", "loss", "optimiser")
    )
    (tmp_path / "app.py").write_text(text.replace("{app}", app))
    with pytest.raises(InputError) as error:
        load_pipeline_app(str(tmp_path / "app.py"), [])
    assert message in str(error.value)
