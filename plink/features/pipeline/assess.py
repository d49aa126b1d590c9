"""Compare what a plan predicted with what its run did."""

import math
import statistics
from collections.abc import Sequence
from functools import partial
from itertools import pairwise, product
from pathlib import Path

from plink.errors import InputError, NoAnswer
from plink.model.codec import decode
from plink.model.document import UNSET
from plink.model.pipeline.actions import PipelineAction, actions_of, use_of
from plink.model.pipeline.document import StagePrediction
from plink.model.pipeline.plan import PipelinePlan
from plink.model.pipeline.rank_report import RankReport, median_of, seconds_of, training_s
from plink.model.pipeline.results import AssessedStage, PipelineAssessment, PredictedFigure, TimedAction
from plink.model.pipeline.shape import minibatches_to_prove
from plink.model.storage import json_lines
from plink.model.units import format_bytes, format_time
from plink.records.pipeline_log import NAME

_TOLERANCE = 0.1
"""Share by which a figure may miss its prediction: the bar of the simulator."""
_MAX_REPLAYED_MINIBATCHES = 20_000
_WAITS = {
    "wait_forward_s": "activations of the stage before",
    "wait_backward_s": "gradients of the next stage",
    "wait_reduce_s": "gradients of the other replicas",
}


def _latest_reports(folder: Path) -> list[RankReport]:
    """Return the latest report of each rank of a run, in rank order.

    :raises NoAnswer: when the run has none. :raises InputError: naming the line that is wrong.
    """
    latest = {report.rank: report for report in _reports_of(folder) if report.type != "timeline"}
    if not latest:
        raise NoAnswer(f"{folder / NAME} is empty: no rank reported before the run ended")
    return [latest[rank] for rank in sorted(latest)]


def _reports_of(folder: Path) -> list[RankReport]:
    """Return all reports of a run, in the sequence in which they came.

    :raises NoAnswer: when the run has none. :raises InputError: naming the line that is wrong.
    """
    path = folder / NAME
    if not path.is_file():
        raise NoAnswer(f"{folder.name} has no {NAME}: it was no pipeline, or no rank reported before it ended")
    return [decode(RankReport, line, f"{path}:{number}") for number, line in json_lines(path)]


def measured_timeline(plan: PipelinePlan, folder: Path) -> tuple[TimedAction, ...]:
    """Return when the ranks of a run of this plan did their first actions.

    :raises InputError: when the run had another plan. :raises NoAnswer: when it has no times.
    """
    timeline = []
    for report in _reports_of(folder):
        _check_plan(report, folder.name, plan)
        for kind, number, begin_s, end_s in report.actions or ():
            action = PipelineAction(kind, report.stage, number)
            timeline.append(TimedAction(action, report.replica, begin_s, end_s))
    if not timeline:
        raise NoAnswer(f"{folder.name} has no times of actions: ranks write them when the job ends")
    return tuple(timeline)


def _check_plan(report: RankReport, run: str, plan: PipelinePlan) -> None:
    fingerprints = [plan.for_ranks().fingerprint(), plan.fingerprint()]
    if report.plan not in fingerprints:
        raise InputError(run, f"it ran plan {report.plan}, not this one ({fingerprints[0]}); name its plan")


def assess_pipeline(plan: PipelinePlan, folder: Path) -> PipelineAssessment:
    """Compare the run in a folder, such as ``.plink/runs/ID``, with its plan.

    :raises InputError: when the run had another plan, or its log is wrong. :raises NoAnswer: when a rank sent nothing.
    """
    folder = Path(folder).absolute()
    reports, run = _latest_reports(folder), folder.name
    for report in reports:
        _check_plan(report, run, plan)
    if missing := sorted(set(range(plan.ranks)) - {report.rank for report in reports}):
        raise NoAnswer(f"{run}: rank {missing[0]} did not report, so there is nothing to assess its stage by")
    stages = tuple(
        _assessed_stage(plan, number, [report for report in reports if report.stage == number])
        for number in range(len(plan.stages))
    )
    periods = [report.minibatch_s for report in reports if report.minibatch_s is not UNSET]
    period = PredictedFigure(
        predicted=plan.minibatch_s,
        measured=statistics.median(periods) if periods else None,
    )
    return PipelineAssessment(
        run=run,
        minibatches=sum(report.minibatches for report in reports if report.stage == 0),
        minibatch_s=period,
        stages=stages,
        verdict=tuple(_verdict(stages, period, _slow_link(plan, reports))),
    )


def _assessed_stage(plan: PipelinePlan, number: int, reports: Sequence[RankReport]) -> AssessedStage:
    stage, shape = plan.stages[number], plan.shape
    count = len(stage.ranks)

    def compute(report: RankReport) -> float | None:
        if report.forward_s is UNSET:
            return None
        per_update = max(1.0, shape.accumulate / count)
        return report.forward_s + seconds_of("backward_s", report) + seconds_of("update_s", report) / per_update

    def busy(report: RankReport) -> float | None:
        waited = sum(seconds_of(key, report) for key in _WAITS)
        seconds = training_s(report)
        return max(1e-9, 1 - waited / seconds) if seconds > 0 else None

    waits = {name: median_of(reports, partial(seconds_of, key)) or 0.0 for key, name in _WAITS.items()}
    computed = median_of(reports, compute)
    sent = sum(report.sent_bytes for report in reports)
    done = sum(report.minibatches for report in reports)
    ahead = plan.boundaries[number].forward_bytes if number < len(plan.boundaries) else 0
    back = plan.boundaries[number - 1].backward_bytes if number else 0
    minibatches = min(minibatches_to_prove(shape), _MAX_REPLAYED_MINIBATCHES)
    longest = max(waits, key=lambda name: waits[name])
    predicted = stage.predicted or StagePrediction(compute_s=0.0, network_s=0.0)
    return AssessedStage(
        stage=number,
        compute_s=PredictedFigure(
            predicted=predicted.compute_s or None, measured=None if computed is None else computed / count
        ),
        busy=PredictedFigure(predicted=predicted.busy_share or None, measured=median_of(reports, busy)),
        sent_bytes=PredictedFigure(
            predicted=float(ahead + back) or None, measured=sent / done if sent and done else None
        ),
        versions=max(report.versions for report in reports),
        planned_versions=use_of(shape, number, list(actions_of(shape, number, 0, minibatches))).versions,
        waits_for=longest if waits[longest] > 0 else UNSET,
    )


def _slow_link(plan: PipelinePlan, reports: Sequence[RankReport]) -> str:
    """Return the two ranks that wait most for each other's messages, for people; empty where no pair stands out.

    Where messages between two stages hold all up, the ranks before wait for gradients and those after for activations.
    Other replicas of their stages wait for these two.
    """
    by_rank = {report.rank: report for report in reports}
    ranks = [stage.ranks for stage in plan.stages]
    pairs: list[tuple[float, RankReport, RankReport]] = []
    for stage, (count, following) in enumerate(pairwise(plan.replicas)):
        # Minibatch b passes replicas b mod count and b mod following.
        places = product(range(count), range(0, following, math.gcd(count, following)))
        for replica, offset in places:
            before = by_rank[ranks[stage][replica]]
            after = by_rank[ranks[stage + 1][(replica + offset) % following]]
            pairs.append((seconds_of("wait_backward_s", before) + seconds_of("wait_forward_s", after), before, after))
    pairs.sort(key=lambda pair: -pair[0])
    if not pairs or (len(pairs) > 1 and pairs[0][0] <= pairs[1][0] * (1 + _TOLERANCE)):
        return ""
    _, before, after = pairs[0]
    if _longest_wait(before) != "wait_backward_s" or _longest_wait(after) != "wait_forward_s":
        return ""
    if seconds_of("wait_forward_s", after) <= training_s(after) * _TOLERANCE:  # it computes while the other waits
        return ""
    return " and ".join(f"rank {report.rank} ({report.host})" for report in (before, after))


def _longest_wait(report: RankReport) -> str:
    """Return for what a rank waits longest, empty where it waits for nothing."""
    longest = max(_WAITS, key=lambda key: seconds_of(key, report))
    return longest if seconds_of(longest, report) > 0 else ""


def _verdict(stages: Sequence[AssessedStage], period: PredictedFigure, link: str) -> list[str]:
    """Return what was off by more than the tolerance, what costs most first. ``link``: on which ranks wait most."""
    findings: list[tuple[float, str]] = []
    for stage in stages:
        compute, sent = stage.compute_s, stage.sent_bytes
        if compute.is_off(_TOLERANCE):
            took_s, profiled_s = compute.measured or 0.0, compute.predicted or 0.0
            findings.append(
                (
                    took_s - profiled_s,
                    f"stage {stage.stage} computes {took_s / profiled_s:.3g} times as long as profiled "
                    f"({format_time(took_s)} instead of {format_time(profiled_s)}): "
                    "profile on these hosts, and check what else runs there",
                )
            )
        if sent.is_off(_TOLERANCE):
            amounts = f"{format_bytes(sent.measured or 0)} a minibatch instead of {format_bytes(sent.predicted or 0)}"
            findings.append((0.0, f"stage {stage.stage} sends {amounts}: the program is not the one that was profiled"))
        if stage.versions > stage.planned_versions:
            versions = f"{stage.versions} versions instead of {stage.planned_versions}"
            findings.append((0.0, f"stage {stage.stage} kept {versions}"))
    predicted, measured = period.predicted, period.measured
    if predicted and measured and measured > predicted * (1 + _TOLERANCE):
        lost = measured - predicted
        explained = max((cost for cost, _ in findings), default=0.0)
        busiest = max(stages, key=lambda stage: stage.busy.measured or 0.0)
        hardly_waits = (1 - (busiest.busy.measured or 0.0)) * measured < (lost - explained) / 2
        if explained > lost / 2:
            if link and lost - explained > predicted * _TOLERANCE:
                text = f"{link} wait for each other's messages too: probe the network again"
                findings.append((lost - explained, text))
        elif hardly_waits:
            if not any(text.startswith(f"stage {busiest.stage} computes") for _, text in findings):
                text = f"stage {busiest.stage} is busy {busiest.busy.measured or 0:.0%} of the time, longer than the "
                findings.append((lost, f"{text}medians of its passes say: check what else runs there"))
        else:
            idle = min(stages, key=lambda stage: stage.busy.measured or 1.0)
            waits = f"; stage {idle.stage} waits for {idle.waits_for}" if idle.waits_for is not UNSET else ""
            waits = f"; {link} wait for each other's messages" if link else waits
            findings.append((lost, f"messages or all-reduces take longer than planned{waits}: probe the network again"))
    if findings:
        return [text for _, text in sorted(findings, key=lambda item: -item[0])]
    if not predicted or not measured:
        return ["the run was too short, or the plan has no prediction: nothing to compare"]
    return [f"as predicted, within {_TOLERANCE:.0%}"]
