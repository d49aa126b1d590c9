"""Compare what a plan predicted with what its run did."""

import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise, product
from pathlib import Path
from typing import Any

from plink.errors import InputError, NoAnswer
from plink.model.pipeline.actions import PipelineAction, actions_of, use_of
from plink.model.pipeline.plan import PipelinePlan
from plink.model.pipeline.rank_report import median_of, rank_report_from_json, training_s
from plink.model.pipeline.shape import minibatches_to_prove
from plink.model.pipeline.timeline import TimedAction
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


@dataclass(frozen=True)
class PipelineAssessment:
    """A run beside its plan; ``document``: ``plink.pipeline-assessment/1``."""

    document: dict[str, Any]

    def to_json(self) -> dict[str, Any]:
        """Return ``plink.pipeline-assessment/1``."""
        return self.document


def latest_reports(folder: Path) -> list[dict[str, Any]]:
    """Return the latest report of each rank of a run, in rank order.

    :raises NoAnswer: when the run has none. :raises InputError: naming the line that is wrong.
    """
    latest = {report["rank"]: report for report in reports_of(folder) if report["type"] != "timeline"}
    if not latest:
        raise NoAnswer(f"{folder / NAME} is empty: no rank reported before the run ended")
    return [latest[rank] for rank in sorted(latest)]


def reports_of(folder: Path) -> list[dict[str, Any]]:
    """Return all reports of a run, in the sequence in which they came.

    :raises NoAnswer: when the run has none. :raises InputError: naming the line that is wrong.
    """
    path = folder / NAME
    if not path.is_file():
        raise NoAnswer(f"{folder.name} has no {NAME}: it was no pipeline, or no rank reported before it ended")
    reports: list[dict[str, Any]] = []
    for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
        try:
            document = json.loads(line)
        except ValueError:
            raise InputError(f"{path}: line {number}", "is no JSON") from None
        reports.append(dict(rank_report_from_json(document, f"{path}: line {number}")))
    return reports


def measured_timeline(plan: PipelinePlan, folder: Path, fingerprints: Sequence[str]) -> list[TimedAction]:
    """Return when the ranks of a run did their first actions.

    :param fingerprints: of the plan as its ranks may have read it.
    :raises InputError: when the run had another plan. :raises NoAnswer: when it has no times.
    """
    timeline = []
    for report in reports_of(folder):
        check_plan(report, folder.name, fingerprints)
        for kind, number, begin_s, end_s in report.get("actions", ()):
            action = PipelineAction(kind, report["stage"], number)
            timeline.append(TimedAction(action, report["replica"], begin_s, end_s))
    if not timeline:
        raise NoAnswer(f"{folder.name} has no times of actions: ranks write them when the job ends")
    return timeline


def check_plan(report: Mapping[str, Any], run: str, fingerprints: Sequence[str]) -> None:
    """Refuse a report of another plan.

    :raises InputError: naming both plans.
    """
    if report["plan"] not in fingerprints:
        raise InputError(run, f"it ran plan {report['plan']}, not this one ({fingerprints[0]}); name its plan")


def assess_pipeline(
    plan: PipelinePlan, reports: Sequence[Mapping[str, Any]], run: str, fingerprints: Sequence[str]
) -> PipelineAssessment:
    """Compare a run's reports with its plan.

    :param fingerprints: of the plan as its ranks may have read it.
    :raises InputError: when the run had another plan. :raises NoAnswer: when a rank did not report.
    """
    for report in reports:
        check_plan(report, run, fingerprints)
    if missing := sorted(set(range(plan.ranks)) - {report["rank"] for report in reports}):
        raise NoAnswer(f"{run}: rank {missing[0]} did not report, so there is nothing to assess its stage by")
    stages = [
        _assessed_stage(plan, number, [report for report in reports if report["stage"] == number])
        for number in range(len(plan.stages))
    ]
    periods = [report["minibatch_s"] for report in reports if "minibatch_s" in report]
    measured = statistics.median(periods) if periods else None
    predicted = (plan.details.get("predicted") or {}).get("minibatch_s")
    return PipelineAssessment(
        {
            "schema": "plink.pipeline-assessment/1",
            "run": run,
            "minibatches": sum(report["minibatches"] for report in reports if report["stage"] == 0),
            "minibatch_s": {"predicted": predicted, "measured": measured},
            "stages": stages,
            "verdict": _verdict(stages, predicted, measured, _slow_link(plan, reports)),
        }
    )


def _assessed_stage(plan: PipelinePlan, number: int, reports: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    stage, shape = plan.stages[number], plan.shape
    count = len(stage.ranks)
    predicted: Mapping[str, Any] = stage.details.get("predicted") or {}

    median = partial(median_of, reports)

    def compute(report: Mapping[str, Any]) -> float | None:
        if "forward_s" not in report:
            return None
        per_update = max(1.0, shape.accumulate / count)
        return float(report["forward_s"] + report.get("backward_s", 0.0) + report.get("update_s", 0.0) / per_update)

    def busy(report: Mapping[str, Any]) -> float | None:
        waited = sum(report.get(key, 0.0) for key in _WAITS)
        seconds = training_s(report)
        return max(1e-9, 1 - waited / seconds) if seconds > 0 else None

    waits = {name: median(partial(_waited_s, key)) or 0.0 for key, name in _WAITS.items()}
    computed = median(compute)
    sent = sum(report["sent_bytes"] for report in reports)
    done = sum(report["minibatches"] for report in reports)
    ahead = plan.boundaries[number].forward_bytes if number < len(plan.boundaries) else 0
    back = plan.boundaries[number - 1].backward_bytes if number else 0
    minibatches = min(minibatches_to_prove(shape), _MAX_REPLAYED_MINIBATCHES)
    planned = use_of(shape, number, list(actions_of(shape, number, 0, minibatches))).versions
    longest = max(waits, key=lambda name: waits[name])
    return {
        "stage": number,
        "compute_s": {
            "predicted": predicted.get("compute_s") or None,
            "measured": None if computed is None else computed / count,
        },
        "busy": {"predicted": predicted.get("busy_share") or None, "measured": median(busy)},
        "sent_bytes": {"predicted": float(ahead + back) or None, "measured": sent / done if sent and done else None},
        "versions": max(report["versions"] for report in reports),
        "planned_versions": planned,
        **({"waits_for": longest} if waits[longest] > 0 else {}),
    }


def _waited_s(key: str, report: Mapping[str, Any]) -> float:
    return float(report.get(key, 0.0))


def _slow_link(plan: PipelinePlan, reports: Sequence[Mapping[str, Any]]) -> str:
    """Return the two ranks that wait most for each other's messages, for people; empty where no pair stands out.

    Where messages between two stages hold all up, the ranks before wait for gradients and those after for activations.
    Other replicas of their stages wait for these two.
    """
    by_rank = {report["rank"]: report for report in reports}
    ranks = [stage.ranks for stage in plan.stages]
    pairs: list[tuple[float, Mapping[str, Any], Mapping[str, Any]]] = []
    for stage, (count, following) in enumerate(pairwise(plan.replicas)):
        # Minibatch b passes replicas b mod count and b mod following.
        places = product(range(count), range(0, following, math.gcd(count, following)))
        for replica, offset in places:
            before = by_rank[ranks[stage][replica]]
            after = by_rank[ranks[stage + 1][(replica + offset) % following]]
            pairs.append((_waited_s("wait_backward_s", before) + _waited_s("wait_forward_s", after), before, after))
    pairs.sort(key=lambda pair: -pair[0])
    if not pairs or (len(pairs) > 1 and pairs[0][0] <= pairs[1][0] * (1 + _TOLERANCE)):
        return ""
    _, before, after = pairs[0]
    if _longest_wait(before) != "wait_backward_s" or _longest_wait(after) != "wait_forward_s":
        return ""
    if _waited_s("wait_forward_s", after) <= training_s(after) * _TOLERANCE:  # it computes while the other waits
        return ""
    return " and ".join(f"rank {report['rank']} ({report['host']})" for report in (before, after))


def _longest_wait(report: Mapping[str, Any]) -> str:
    """Return for what a rank waits longest, empty where it waits for nothing."""
    longest = max(_WAITS, key=lambda key: _waited_s(key, report))
    return longest if _waited_s(longest, report) > 0 else ""


def _verdict(
    stages: Sequence[Mapping[str, Any]], predicted: float | None, measured: float | None, link: str
) -> list[str]:
    """Return what was off by more than the tolerance, what costs most first. ``link``: on which ranks wait most."""
    findings: list[tuple[float, str]] = []
    for stage in stages:
        compute = stage["compute_s"]
        if _is_off(compute):
            times = compute["measured"] / compute["predicted"]
            findings.append(
                (
                    compute["measured"] - compute["predicted"],
                    f"stage {stage['stage']} computes {times:.3g} times as long as profiled "
                    f"({format_time(compute['measured'])} instead of {format_time(compute['predicted'])}): "
                    "profile on these hosts, and check what else runs there",
                )
            )
        sent = stage["sent_bytes"]
        if _is_off(sent):
            findings.append(
                (
                    0.0,
                    f"stage {stage['stage']} sends {format_bytes(sent['measured'])} a minibatch instead of "
                    f"{format_bytes(sent['predicted'])}: the program is not the one that was profiled",
                )
            )
        if stage["versions"] > stage["planned_versions"]:
            versions = f"{stage['versions']} versions instead of {stage['planned_versions']}"
            findings.append((0.0, f"stage {stage['stage']} kept {versions}"))
    if predicted and measured and measured > predicted * (1 + _TOLERANCE):
        lost = measured - predicted
        explained = max((cost for cost, _ in findings), default=0.0)
        if explained > lost / 2:
            if link and lost - explained > predicted * _TOLERANCE:
                text = f"{link} wait for each other's messages too: probe the network again"
                findings.append((lost - explained, text))
        else:
            idle = min(stages, key=lambda stage: stage["busy"]["measured"] or 1.0)
            waits = f"; stage {idle['stage']} waits for {idle['waits_for']}" if "waits_for" in idle else ""
            waits = f"; {link} wait for each other's messages" if link else waits
            findings.append((lost, f"messages or all-reduces take longer than planned{waits}: probe the network again"))
    if findings:
        return [text for _, text in sorted(findings, key=lambda item: -item[0])]
    if not predicted or not measured:
        return ["the run was too short, or the plan has no prediction: nothing to compare"]
    return [f"as predicted, within {_TOLERANCE:.0%}"]


def _is_off(pair: Mapping[str, float | None]) -> bool:
    predicted, measured = pair["predicted"], pair["measured"]
    return bool(predicted and measured and abs(measured / predicted - 1) > _TOLERANCE)
