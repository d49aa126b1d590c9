"""What the ranks of a pipeline report (``plink.pipeline-log/1``), and their table. No numpy: every rank imports it."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from plink.documents.codec import decode
from plink.documents.pipeline_log import PipelineLogDocument
from plink.model.hostlist import fold_hostlist
from plink.model.units import format_bytes, format_time

SCHEMA = "plink.pipeline-log/1"
_COLUMNS = ("stage", "hosts", "forward", "backward", "update", "busy", "waits for", "sent", "versions")
_MAX_HOSTS_CHARS = 40
_MIN_SHOWN_SHARE = 0.005
_WAITS = {"wait_forward_s": "input", "wait_backward_s": "gradient", "wait_reduce_s": "all-reduce"}


def rank_report_from_json(document: object, location: str) -> PipelineLogDocument:
    """Return a line of the log, anybody's.

    :raises InputError: naming the key that is wrong.
    """
    return decode(PipelineLogDocument, document, location)


def table_of_reports(reports: Sequence[Mapping[str, Any]], predicted_s: float | None = None) -> list[str]:
    """Return the ranks' reports as a table of stages, medians over their replicas.

    :param predicted_s: seconds per minibatch, by the plan.
    """
    if not reports:
        return []
    stages = sorted({report["stage"] for report in reports})
    rows: list[tuple[str, ...]] = [_COLUMNS]
    rows += [_row(stage, [report for report in reports if report["stage"] == stage]) for stage in stages]
    return [
        _head(reports, predicted_s),
        *aligned(rows, left=(1, 6)),
        *_age_of_checkpoint(reports),
    ]


def aligned(rows: Sequence[tuple[str, ...]], left: tuple[int, ...]) -> list[str]:
    """Return rows as lines, with the columns ``left`` flushed left and the others right."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  ".join(
            text.ljust(width) if column in left else text.rjust(width)
            for column, (text, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def _age_of_checkpoint(reports: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a line on the latest checkpoint that all ranks have, of a job that writes any."""
    latest = max((report["checkpoint"] for report in reports if "checkpoint" in report), default=None)
    if latest is None:
        return []
    begin = max(report.get("begin", 0) for report in reports)
    age = max(0, begin + _trained(reports) - latest)
    periods = [report["minibatch_s"] for report in reports if "minibatch_s" in report]
    time = f" ({format_time(age * statistics.median(periods))})" if periods and age else ""
    if latest == begin:
        return [f"no checkpoint since the beginning, {age} minibatches{time} before the end"]
    return [f"latest checkpoint: minibatch {latest}, {age} minibatches{time} before the end"]


def _trained(reports: Sequence[Mapping[str, Any]]) -> int:
    return sum(report["minibatches"] for report in reports if report["stage"] == 0)


def _head(reports: Sequence[Mapping[str, Any]], predicted_s: float | None) -> str:
    replicas = [sum(r["stage"] == stage for r in reports) for stage in sorted({r["stage"] for r in reports})]
    seconds = max(report["at_s"] for report in reports)
    text = f"pipeline {'-'.join(map(str, replicas))}, {_trained(reports)} minibatches in {format_time(seconds)}"
    if periods := [report["minibatch_s"] for report in reports if "minibatch_s" in report]:
        text += f": {format_time(statistics.median(periods))} a minibatch"
        text += f" (predicted {format_time(predicted_s)})" if predicted_s else ""
    if losses := {report["minibatches"]: report["loss"] for report in reports if "loss" in report}:
        text += f", loss {losses[max(losses)]:.5g}"
    return text


def median_of(
    reports: Sequence[Mapping[str, Any]], of: Callable[[Mapping[str, Any]], float | None]
) -> float | None:  # fmt: skip
    """Return the median of the reports that have such a value, None without any."""
    values = [value for value in map(of, reports) if value is not None]
    return statistics.median(values) if values else None


def _row(stage: int, reports: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    median = partial(median_of, reports)

    def time_of(key: str) -> str:
        value = median(lambda report: report.get(key))
        return "-" if value is None else format_time(value)

    hosts = fold_hostlist(list(dict.fromkeys(report["host"] for report in reports)), " ")
    if len(hosts) > _MAX_HOSTS_CHARS:
        hosts = f"{reports[0]['host']} ... ({len(reports)})"
    shares = {key: median(partial(_share, key)) or 0.0 for key in _WAITS}
    waits = [f"{_WAITS[key]} {share:.0%}" for key, share in shares.items() if share >= _MIN_SHOWN_SHARE]
    busy = median(lambda report: 1 - sum(_share(key, report) for key in _WAITS))
    return (
        str(stage),
        hosts,
        *map(time_of, ("forward_s", "backward_s", "update_s")),
        f"{max(0.0, busy or 0.0):.0%}",
        ", ".join(waits) or "-",
        format_bytes(sum(report["sent_bytes"] for report in reports)),
        str(max(report["versions"] for report in reports)),
    )


def _share(key: str, report: Mapping[str, Any]) -> float:
    """Return the share of a rank's time of training that something took."""
    share: float = report.get(key, 0.0) / max(1e-9, training_s(report))
    return share


def training_s(report: Mapping[str, Any]) -> float:
    """Return the seconds of a rank's report that it trained, without evaluations."""
    return float(report["at_s"] - report.get("evaluation_s", 0.0))
