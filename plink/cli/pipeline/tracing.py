"""Traces of pipelines: when each rank does what, simulated or of a run."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from plink.terminal.screen import say

if TYPE_CHECKING:
    from plink.model.pipeline.plan import PipelinePlan
    from plink.model.pipeline.timeline import TimedAction


def run_fingerprints(plan: "PipelinePlan", path: Path) -> tuple[str, str]:
    """Return the digests of a plan as a run may have it: of what its ranks got, and of the whole."""
    from plink.cli.pipeline.running import plan_for_ranks
    from plink.model.pipeline.plan_file import pipeline_from_json
    from plink.model.storage import name_of

    reduced = pipeline_from_json(json.loads(plan_for_ranks(plan)), name_of(path))
    return reduced.fingerprint(), plan.fingerprint()


def timeline_of_run(run: str, plan: "PipelinePlan", path: Path) -> "list[TimedAction]":
    """Return when the ranks of a run of this plan did what.

    :raises PlinkError: when there is no such run, it had another plan, or has no times.
    """
    from plink.api.pipeline_assessment import measured_timeline
    from plink.records import workspace
    from plink.records.runs import run_named

    workspace.check_trusted()
    folder = run_named(workspace.RUNS, run).folder
    return measured_timeline(plan, folder, run_fingerprints(plan, path))


def write_trace(file: Path, plan: "PipelinePlan", timelines: "Mapping[str, Sequence[TimedAction]]") -> None:
    """Write timelines, by their names, as a trace."""
    from plink.model.pipeline.timeline import chrome_trace
    from plink.model.storage import write_document

    write_document(file, chrome_trace(plan, timelines))
    counts = " and ".join(f"{len(timeline)} {name}" for name, timeline in timelines.items())
    say(f"{counts} actions of {plan.ranks} ranks -> {file}")
