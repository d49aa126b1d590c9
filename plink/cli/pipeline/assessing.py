"""``plink pipeline assess``."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from plink.terminal.screen import print_json, print_lines

if TYPE_CHECKING:
    from plink.api.pipeline_assessment import PipelineAssessment


def assess(
    run: Annotated[str, typer.Argument(metavar="RUN", help="The run's id, the beginning of it, or `last`.")] = "last",
    plan_file: Annotated[
        Path | None, typer.Option("--plan", metavar="PLAN", help="The run's plan; default .plink/pipeline.json.")
    ] = None,
    trace: Annotated[
        Path | None,
        typer.Option("--trace", metavar="FILE", help="Write when ranks did what, for Perfetto or chrome://tracing."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Compare what a plan predicted with what a run of it did, and name the assumption that was off.

    Example: plink pipeline assess last
    """
    from plink.api.pipeline_assessment import assess_pipeline, latest_reports
    from plink.cli.pipeline.inputs import plan_from
    from plink.cli.pipeline.tracing import run_fingerprints, timeline_of_run, write_trace
    from plink.model.storage import check_writable
    from plink.records import workspace
    from plink.records.runs import run_named

    if trace is not None:
        check_writable(trace)
    workspace.check_trusted()
    record = run_named(workspace.RUNS, run)
    plan, path = plan_from(plan_file)
    reports = latest_reports(record.folder)
    assessment = assess_pipeline(plan, reports, record.id, run_fingerprints(plan, path))
    if trace is not None:
        write_trace(trace, plan, {"measured": timeline_of_run(run, plan, path)})
    if as_json:
        print_json(assessment.to_json())
    else:
        print_lines(*_lines(assessment))


def _lines(assessment: "PipelineAssessment") -> list[str]:
    from plink.model.units import format_bytes, format_time

    document = assessment.to_json()
    period = document["minibatch_s"]
    lines = [f"{document['run']}, {document['minibatches']} minibatches: {_pair(period, format_time)} a minibatch"]
    rows = [("stage", "compute", "busy", "sent a minibatch", "versions")]
    for stage in document["stages"]:
        rows.append(
            (
                str(stage["stage"]),
                _pair(stage["compute_s"], format_time),
                _pair(stage["busy"], lambda share: f"{share:.0%}"),
                _pair(stage["sent_bytes"], format_bytes),
                f"{stage['versions']} (planned {stage['planned_versions']})",
            )
        )
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines += ["  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return [*lines, *document["verdict"]]


def _pair(pair: dict[str, float | None], formatted: Any) -> str:
    measured, predicted = pair["measured"], pair["predicted"]
    text = "-" if measured is None else formatted(measured)
    return text if predicted is None else f"{text} (predicted {formatted(predicted)})"
