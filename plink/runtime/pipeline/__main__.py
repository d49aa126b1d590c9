"""Process of one rank: ``python -m plink.runtime.pipeline PROGRAM ARGS``, started by ``plink launch --pipeline``.

PLINK_PIPELINE has the plan: a file, or the document itself. Any launcher that sets RANK, WORLD_SIZE, MASTER_ADDR and
MASTER_PORT as torchrun does can start it; rank 0 then prints a table at the end. With PLINK_PIPELINE_REPORTS=1, as
``plink launch`` sets it, every rank prints its reports as lines of JSON instead. PLINK_PIPELINE_TIMEOUT_S: how long a
rank waits for a message. PLINK_PIPELINE_CHECKPOINT: a folder for checkpoints, written every
PLINK_PIPELINE_CHECKPOINT_EVERY minibatches. PLINK_PIPELINE_RESTORE: the folder of those to go on from.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from plink.errors import PlinkError, UsageError
from plink.model.codec import convert
from plink.model.pipeline.plan import PipelinePlan, pipeline_from_json, read_pipeline
from plink.model.pipeline.rank_report import RankReport, table_of_reports
from plink.model.storage import parse_document
from plink.runtime.pipeline import (
    CHECKPOINT_VARIABLE,
    EVERY_VARIABLE,
    REPORTS_VARIABLE,
    RESTORE_VARIABLE,
    TIMEOUT_VARIABLE,
    VARIABLE,
)
from plink.runtime.pipeline.app import load_pipeline_app
from plink.runtime.pipeline.checkpoints import CheckpointSettings
from plink.runtime.pipeline.job import DEFAULT_TIMEOUT_S, PipelineProgram, run_rank

_MAX_TIMEOUT_S = 1e7


def main(arguments: list[str]) -> int:
    """Run the rank and return its exit code."""
    try:
        if not arguments:
            raise UsageError("usage: python -m plink.runtime.pipeline PROGRAM [ARGS]")
        plan, location = _plan()
        timeout_s, checkpoints = _timeout_s(), _checkpoints()
        if "OMP_NUM_THREADS" not in os.environ:  # ranks of one host share its cores
            torch.set_num_threads(max(1, (os.cpu_count() or 1) // int(os.environ.get("LOCAL_WORLD_SIZE", "1"))))
        program = PipelineProgram(
            load_pipeline_app(arguments[0], arguments[1:]), Path(arguments[0]), tuple(arguments[1:])
        )
        dist.init_process_group("gloo")
        if dist.get_rank() == 0 and plan.threads and plan.threads != (own := torch.get_num_threads()):
            print(
                f"plink: the profile was taken with {plan.threads} of PyTorch's threads and ranks compute with {own}: "
                f"predicted times are not theirs (--env OMP_NUM_THREADS={plan.threads}; or profile with --threads "
                f"{own})",
                file=sys.stderr,
            )
        last: list[RankReport] = []

        def on_report(report: RankReport) -> None:
            if os.environ.get(REPORTS_VARIABLE):
                sys.stdout.write(f"{json.dumps(report.to_json())}\n")  # at once: another thread may write, too
                sys.stdout.flush()
            elif report.type == "end":
                _store().set(f"report-{dist.get_rank()}", json.dumps(report.to_json()))
                last.append(report)

        result = run_rank(program, plan, location, timeout_s, on_report, checkpoints)
        if last and dist.get_rank() == 0:
            reports = [
                convert(RankReport, json.loads(_store().get(f"report-{rank}")), "report") for rank in range(plan.ranks)
            ]
            print("\n".join(table_of_reports(reports, plan.minibatch_s)))
        if result.replica == 0:
            program.app.save(result.stage, result.state)
        dist.destroy_process_group()
    except PlinkError as error:
        print(f"error: {error}", file=sys.stderr)
        code = error.exit_code
    else:
        code = 0
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # threads that wait for a network are not waited for


def _plan() -> tuple[PipelinePlan, str]:
    """Return the plan, and its name for errors."""
    text = os.environ.get(VARIABLE, "")
    if not text:
        raise UsageError(f"{VARIABLE} has no plan: start this program with plink launch --pipeline PLAN")
    if text.lstrip().startswith("{"):
        return pipeline_from_json(parse_document(text, VARIABLE), VARIABLE), VARIABLE
    return read_pipeline(text), text


def _timeout_s() -> float:
    """Return how long a rank waits for a message."""
    text = os.environ.get(TIMEOUT_VARIABLE, "")
    try:
        seconds = float(text or DEFAULT_TIMEOUT_S)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= _MAX_TIMEOUT_S:
        raise UsageError(f"{TIMEOUT_VARIABLE}: expected seconds above 0, like 300, got {text[:40]!r}")
    return seconds


def _checkpoints() -> CheckpointSettings:
    """Return where checkpoints are written and read, if anywhere."""
    folder, restore = (os.environ.get(name) or None for name in (CHECKPOINT_VARIABLE, RESTORE_VARIABLE))
    text = os.environ.get(EVERY_VARIABLE) or str(CheckpointSettings.every)
    if not text.isdecimal() or int(text) < 1:
        raise UsageError(f"{EVERY_VARIABLE}: expected a number of minibatches, 1 or more, got {text[:40]!r}")
    return CheckpointSettings(folder and Path(folder), int(text), restore and Path(restore))


def _store() -> Any:
    return dist.distributed_c10d._get_default_store()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
