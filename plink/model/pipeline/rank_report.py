"""What the ranks of a pipeline report (``plink.pipeline-log/1``), its table, and the header of what they keep
(``plink.pipeline-checkpoint/2``). No numpy: every rank imports it."""

import statistics
from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated, Literal

from msgspec import Meta

from plink.model.document import UNSET, Document, Part, Unset
from plink.model.hostlist import fold_hostlist
from plink.model.types import ByteCount, Count, Name, NonNegative, Positive, PositiveInt, Seconds
from plink.model.units import format_bytes, format_time

_COLUMNS = ("stage", "hosts", "forward", "backward", "update", "busy", "waits for", "sent", "versions")
_MAX_HOSTS_CHARS = 40
_MIN_SHOWN_SHARE = 0.005
_WAITS = {"wait_forward_s": "input", "wait_backward_s": "gradient", "wait_reduce_s": "all-reduce"}

ReportKind = Literal["progress", "checkpoint", "evaluation", "timeline", "end"]
MeasuredAction = tuple[Literal["F", "B", "REDUCE", "UPDATE"], Count, NonNegative, NonNegative]
"""A pass, a wait for an all-reduce, or an update, its minibatch or update, and when it began and ended, in seconds
since all ranks began."""


class PipelineEvaluation(Part, frozen=True, kw_only=True):
    """Other minibatches, forward only, with the parameters that were trained so far."""

    trained: Count
    """Minibatches that were trained before it."""
    metrics: tuple[tuple[Count, float], ...]
    """Of each evaluation minibatch: its number, and what the program's `metric` says."""


class RankReport(Document, frozen=True, kw_only=True, tag="plink.pipeline-log/1"):
    """What a rank of a pipeline has done so far.

    Each rank of `plink launch --pipeline` writes a line every 10 seconds and one at its end; they are kept in
    `.plink/runs/ID/pipeline.jsonl`. Before its last line it writes when it did its first actions. Seconds of passes
    and updates are medians, those of waits sums.
    """

    type: ReportKind
    """Why it reports: it is time to, it has written a checkpoint, or could not, or evaluated, it says when it did
    what, or it has ended."""
    plan: Name
    """Digest of the plan, the same on all ranks."""
    rank: Count
    """The rank."""
    host: Name
    """Its host in the plan."""
    stage: Count
    """Its stage."""
    replica: Count
    """Its number among the stage's replicas."""
    at_s: NonNegative
    """Seconds since its first action."""
    minibatches: Count
    """Minibatches that it has finished, of its own."""
    minibatch_s: Positive | Unset = UNSET
    """Seconds per minibatch of the whole pipeline, in the last three quarters of what was done, without draining and
    evaluations; missing at first."""
    forward_s: Seconds | Unset = UNSET
    """Of a forward pass."""
    backward_s: Seconds | Unset = UNSET
    """Of a backward pass."""
    update_s: Seconds | Unset = UNSET
    """Of an update, with the copy of a version."""
    wait_forward_s: Seconds | Unset = UNSET
    """All waiting for activations."""
    wait_backward_s: Seconds | Unset = UNSET
    """All waiting for gradients of the next stage."""
    wait_reduce_s: Seconds | Unset = UNSET
    """All waiting for the gradients of other replicas."""
    evaluation_s: Seconds | Unset = UNSET
    """Of evaluations, with draining before each and filling after it; waits then are in none of the above."""
    sent_bytes: ByteCount
    """Bytes of messages to neighbouring stages."""
    received_bytes: ByteCount
    """Bytes of messages from these."""
    versions: PositiveInt
    """The most versions of its parameters that it had at once."""
    begin: Count | Unset = UNSET
    """The minibatch that it began with, of a job that goes on from a checkpoint."""
    checkpoint: Count | Unset = UNSET
    """The minibatch of the latest checkpoint that all ranks have, as far as this one knows; that which it began with
    where there is none."""
    actions: Annotated[tuple[MeasuredAction, ...], Meta(max_length=1000)] | Unset = UNSET
    """Of a timeline: some of its first actions."""
    evaluation: PipelineEvaluation | Unset = UNSET
    """Of an evaluation, by replica 0 of the last stage."""
    loss: float | Unset = UNSET
    """The last stage's latest loss."""


class CheckpointHeader(Document, frozen=True, kw_only=True, tag="plink.pipeline-checkpoint/2"):
    """The header of one rank's part of a pipeline's checkpoint.

    It is the first line of `minibatch-K/stage-S-replica-Q.pt`, filled with spaces to 4096 bytes. What follows was
    written by `torch.save`.
    """

    sha256: Annotated[str, Meta(pattern=r"^[0-9a-f]{64}(?!\n)$")]
    """Digest of what follows."""
    minibatch: Count
    """The minibatch that training goes on with: all before it are taken in, and none after."""
    stage: Count
    """The rank's stage."""
    replica: Count
    """Its number among the stage's replicas."""
    replicas: Annotated[tuple[PositiveInt, ...], Meta(min_length=1)]
    """Replicas of each stage of the plan."""
    training: Name
    """Digest of what the plan says of training: layers, replicas, depths and so on, but no hosts."""
    program: str
    """Digest of the program's file; empty where there was none."""
    arguments: str
    """Digest of its arguments."""
    start: str
    """The start of the job that wrote it. Parts of two starts are never taken together."""
    model: Name
    """Digest of the names, shapes and types of the model's parameters and buffers."""
    torch: Name
    """Version of PyTorch."""


def table_of_reports(reports: Sequence[RankReport], predicted_s: float | None = None) -> list[str]:
    """Return the ranks' reports as a table of stages, medians over their replicas.

    :param predicted_s: seconds per minibatch, by the plan.
    """
    if not reports:
        return []
    stages = sorted({report.stage for report in reports})
    rows: list[tuple[str, ...]] = [_COLUMNS]
    rows += [_row(stage, [report for report in reports if report.stage == stage]) for stage in stages]
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


def _age_of_checkpoint(reports: Sequence[RankReport]) -> list[str]:
    """Return a line on the latest checkpoint that all ranks have, of a job that writes any."""
    latest = max((report.checkpoint for report in reports if report.checkpoint is not UNSET), default=None)
    if latest is None:
        return []
    begin = max(report.begin or 0 for report in reports)
    age = max(0, begin + _trained(reports) - latest)
    periods = [report.minibatch_s for report in reports if report.minibatch_s is not UNSET]
    time = f" ({format_time(age * statistics.median(periods))})" if periods and age else ""
    if latest == begin:
        return [f"no checkpoint since the beginning, {age} minibatches{time} before the end"]
    return [f"latest checkpoint: minibatch {latest}, {age} minibatches{time} before the end"]


def _trained(reports: Sequence[RankReport]) -> int:
    return sum(report.minibatches for report in reports if report.stage == 0)


def _head(reports: Sequence[RankReport], predicted_s: float | None) -> str:
    replicas = [sum(r.stage == stage for r in reports) for stage in sorted({r.stage for r in reports})]
    seconds = max(report.at_s for report in reports)
    text = f"pipeline {'-'.join(map(str, replicas))}, {_trained(reports)} minibatches in {format_time(seconds)}"
    if periods := [report.minibatch_s for report in reports if report.minibatch_s is not UNSET]:
        text += f": {format_time(statistics.median(periods))} a minibatch"
        text += f" (predicted {format_time(predicted_s)})" if predicted_s else ""
    if losses := {report.minibatches: report.loss for report in reports if report.loss is not UNSET}:
        text += f", loss {losses[max(losses)]:.5g}"
    return text


def median_of(reports: Sequence[RankReport], of: Callable[[RankReport], float | None]) -> float | None:
    """Return the median of the reports that have such a value, None without any."""
    values = [value for value in map(of, reports) if value is not None]
    return statistics.median(values) if values else None


def _row(stage: int, reports: Sequence[RankReport]) -> tuple[str, ...]:
    median = partial(median_of, reports)

    def time_of(key: str) -> str:
        value = median(lambda report: None if getattr(report, key) is UNSET else seconds_of(key, report))
        return "-" if value is None else format_time(value)

    hosts = fold_hostlist(list(dict.fromkeys(report.host for report in reports)), " ")
    if len(hosts) > _MAX_HOSTS_CHARS:
        hosts = f"{reports[0].host} ... ({len(reports)})"
    shares = {key: median(partial(_share, key)) or 0.0 for key in _WAITS}
    waits = [f"{_WAITS[key]} {share:.0%}" for key, share in shares.items() if share >= _MIN_SHOWN_SHARE]
    busy = median(lambda report: 1 - sum(_share(key, report) for key in _WAITS))
    return (
        str(stage),
        hosts,
        *map(time_of, ("forward_s", "backward_s", "update_s")),
        f"{max(0.0, busy or 0.0):.0%}",
        ", ".join(waits) or "-",
        format_bytes(sum(report.sent_bytes for report in reports)),
        str(max(report.versions for report in reports)),
    )


def _share(key: str, report: RankReport) -> float:
    """Return the share of a rank's time of training that something took."""
    return seconds_of(key, report) / max(1e-9, training_s(report))


def seconds_of(key: str, report: RankReport) -> float:
    """Return how long a rank did something, like ``wait_reduce_s``; 0 where it did not report that."""
    return float(getattr(report, key) or 0.0)


def training_s(report: RankReport) -> float:
    """Return the seconds of a rank's report that it trained, without evaluations."""
    return report.at_s - seconds_of("evaluation_s", report)
