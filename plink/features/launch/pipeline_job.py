"""``plink launch --pipeline``: the ranks of a plan, each training its stage, started again from checkpoints."""

import json
from dataclasses import replace
from pathlib import Path

from plink.errors import InputError, PlinkError, UsageError
from plink.features.launch.order import JobOrder
from plink.features.launch.request import JobRequest
from plink.features.launch.session import JobSetup, Restart
from plink.model.hosts import Host, Hosts, read_hosts
from plink.model.pipeline.plan import PipelinePlan, read_pipeline
from plink.records.pipeline_log import PipelineLog
from plink.runtime.pipeline import (
    CHECKPOINT_VARIABLE,
    EVERY_VARIABLE,
    MODULE,
    REPORTS_VARIABLE,
    RESTORE_VARIABLE,
    TIMEOUT_VARIABLE,
    VARIABLE,
)
from plink.terminal.screen import say
from runners.job.placement import RunResult
from runners.job.runner import Job

_MIN_TIMEOUT_S = 300.0
_TIMEOUT_PERIODS = 20  # of all minibatches in flight, before a rank that sends nothing is given up
# A variable's value can have 128 KiB on Linux.
_MAX_PLAN_BYTES = 120_000
_INTERRUPTED = 130


def check_options(program: str, options: JobRequest) -> None:
    """Refuse what a pipeline does not take.

    :raises UsageError: for the first such thing.
    """
    if not program.endswith(".py"):
        raise UsageError(f"--pipeline: {program} must be a .py file that defines make(arguments)")
    for name in ("order", "algo", "autotune", "slots"):
        if (value := getattr(options, name)) is not None and value is not False:
            raise UsageError(f"--pipeline: omit --{name}; the plan has hosts and ranks")


def pipeline_order(plan_file: Path, options: JobRequest, runner: str) -> tuple[PipelinePlan, JobOrder]:
    """Return the plan, proven, and its hosts in rank order; hosts that it leaves idle take no part, and that is said.

    :raises PlinkError: when it is not proven, or of other hosts.
    """
    plan = read_pipeline(plan_file)
    from plink.features.pipeline.plan import verify_pipeline

    if errors := verify_pipeline(plan).errors:
        raise InputError(str(plan_file), f"its actions are not correct: {errors[0]}")
    if runner == "local":
        if options.hosts_file is not None:
            raise UsageError("--runner local runs every rank on this machine; omit --hosts")
        hosts = Hosts((Host("localhost", "127.0.0.1", slots=plan.ranks),))
        return plan, JobOrder(hosts, hosts, {}, dict(plan.environment or {}), source=str(plan_file))
    baseline = plan.hosts if options.hosts_file is None else read_hosts(options.hosts_file).ranked()
    hosts = _arranged(plan, baseline, str(plan_file))
    idle = [host.name for host in baseline if host.name not in hosts.by_name()] or plan.idle or ()
    if idle:
        say(f"idle, as planned: {', '.join(idle)}")
    return plan, JobOrder(hosts, hosts, {}, dict(plan.environment or {}), source=str(plan_file))


def _arranged(plan: PipelinePlan, baseline: Hosts, location: str) -> Hosts:
    """Return the plan's hosts as the hosts file has them."""
    hosts_by_name = baseline.by_name()
    members = []
    for planned in plan.hosts:
        host = hosts_by_name.get(planned.name)
        if host is None:
            raise InputError(location, f"the plan's host {planned.name} is not in the hosts file; plan again")
        if host.slots != planned.slots:
            reason = f"the plan gives {host.name} {planned.slots} slots, the hosts file {host.slots}; plan again"
            raise InputError(location, reason)
        members.append(host)
    return Hosts(tuple(members), baseline.lab)


def pipelined(job: Job, plan: PipelinePlan, options: JobRequest) -> Job:
    """Return the job whose ranks each train their stage of the user's program.

    :raises UsageError: for settings of checkpoints without a folder.
    """
    settings = options.settings
    if options.checkpoint is None and (settings.checkpoint_every is not None or settings.restarts):
        raise UsageError("--set checkpoint-every and restarts go with --checkpoint DIR")
    timeout_s = settings.message_timeout_s
    variables = {
        VARIABLE: _plan_for_ranks(plan),
        REPORTS_VARIABLE: "1",
        TIMEOUT_VARIABLE: f"{message_timeout_s(plan) if timeout_s is None else timeout_s:g}",
    }
    if options.checkpoint is not None:
        variables[CHECKPOINT_VARIABLE] = str(options.checkpoint)
    if settings.checkpoint_every is not None:
        variables[EVERY_VARIABLE] = str(settings.checkpoint_every)
    if options.restore is not None:
        variables[RESTORE_VARIABLE] = str(options.restore)
    return replace(
        job, program=job.pythons[0], args=("-m", MODULE, job.program, *job.args), env={**job.env, **variables}
    )


def message_timeout_s(plan: PipelinePlan) -> float:
    """Return how long a rank waits for a message: far more than a minibatch takes from the first stage and back."""
    period_s = plan.minibatch_s or 0.0
    in_flight = sum(stage.depth * len(stage.ranks) for stage in plan.stages) * plan.accumulate
    return max(_MIN_TIMEOUT_S, _TIMEOUT_PERIODS * period_s * in_flight)


def _plan_for_ranks(plan: PipelinePlan) -> str:
    """Return what ranks need of a plan, in one line.

    :raises PlinkError: when it is too long for a variable.
    """
    text = json.dumps(plan.for_ranks().to_json(), separators=(",", ":"))
    if len(text) > _MAX_PLAN_BYTES:
        raise PlinkError(f"the plan has {len(text)} bytes, more than a variable can hold ({_MAX_PLAN_BYTES})")
    return text


def restartable(setup: JobSetup, restarts: int) -> JobSetup:
    """Return a job that is started again when it fails, at most so many times.

    It is not started again when it wrote no checkpoint since its last start, nor when the user ended it. Then a message
    says how to go on by hand.
    """
    folder = setup.job.env.get(CHECKPOINT_VARIABLE)
    if folder is None:
        return setup

    def progress() -> tuple[int, int]:
        """Return the minibatch that the job began with, and that of the latest checkpoint that all ranks have."""
        log = setup.request.pipeline_log
        assert log is not None
        reports = log.latest.values()
        begin = max((report.begin or 0 for report in reports), default=0)
        return begin, max((report.checkpoint or 0 for report in reports), default=0)

    def resume_hint() -> str | None:
        begin, latest = progress()
        if latest > begin:
            return f"the latest checkpoint is of minibatch {latest}: add --restore {folder} to go on from it"
        if restored := setup.job.env.get(RESTORE_VARIABLE):
            at = f" at minibatch {begin}" if begin else ""
            return f"no checkpoint was written since it began{at}: add --restore {restored} to go on from there again"
        return f"no checkpoint was written in {folder}: a job starts from minibatch 0 again"

    def restart(result: RunResult) -> Restart:
        begin, latest = progress()
        if result.failure is None:
            return Restart()
        if latest > begin and restarts > 0 and result.exit_code != _INTERRUPTED and not result.timed_out:
            job = replace(setup.job, env={**setup.job.env, RESTORE_VARIABLE: folder})
            request = replace(setup.request, pipeline_log=PipelineLog())
            following = restartable(replace(setup, job=job, request=request), restarts - 1)
            # It may be damaged: what training resumes from, its ranks say.
            left = f"restarts left: {restarts - 1}"
            return Restart(following, f"checkpoints up to minibatch {latest} are in {folder}; starting again; {left}")
        return Restart(message=resume_hint())

    return replace(setup, restart=restart, resume_hint=resume_hint)
