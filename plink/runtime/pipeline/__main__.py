"""Process of one rank: ``python -m plink.runtime.pipeline PROGRAM ARGS``, started by ``plink launch --pipeline``.

PLINK_PIPELINE has the plan: a file, or the document itself. Any launcher that sets RANK, WORLD_SIZE, MASTER_ADDR and
MASTER_PORT as torchrun does can start it.
"""

import json
import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

from plink.errors import PlinkError, UsageError
from plink.model.pipeline.plan import PipelinePlan
from plink.model.pipeline.plan_file import pipeline_from_json, read_pipeline
from plink.model.storage import parse_document
from plink.runtime.pipeline.app import load_pipeline_app
from plink.runtime.pipeline.job import PipelineProgram, StageResult, run_rank

VARIABLE = "PLINK_PIPELINE"


def main(arguments: list[str]) -> int:
    """Run the rank and return its exit code."""
    try:
        if not arguments:
            raise UsageError("usage: python -m plink.runtime.pipeline PROGRAM [ARGS]")
        plan, location = _plan()
        if "OMP_NUM_THREADS" not in os.environ:  # ranks of one host share its cores
            torch.set_num_threads(max(1, (os.cpu_count() or 1) // int(os.environ.get("LOCAL_WORLD_SIZE", "1"))))
        program = PipelineProgram(load_pipeline_app(arguments[0], arguments[1:]), Path(arguments[0]))
        dist.init_process_group("gloo")
        begin = time.perf_counter()
        result = run_rank(program, plan, location)
        _report(result, plan, program.app.minibatches, time.perf_counter() - begin)
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


def _report(result: StageResult, plan: PipelinePlan, minibatches: int, seconds: float) -> None:
    """Print what this rank did, as a line of JSON; the last stage adds its loss."""
    document = {
        "stage": result.stage, "replica": result.replica, "minibatches": minibatches, "seconds": round(seconds, 3),
        "minibatch_s": round(seconds / minibatches, 6), "versions": result.versions, **result.times,
    }  # fmt: skip
    if result.losses:
        document["loss"] = result.losses[max(result.losses)]
    print(json.dumps({"pipeline": plan.label, **document}), flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
