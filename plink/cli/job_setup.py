"""From what was typed to a job that can be started: the program, its hosts in order, its environment."""

import os
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from plink.api.connecting import connector_for
from plink.cli.job_options import GIVEN_ORDER, JobOptions, LaunchSettings
from plink.cli.job_order import JobOrder, Sources, job_order
from plink.cli.launching import RunRequest, check_runs
from plink.errors import UsageError
from plink.model.hosts import Host, Hosts
from plink.model.plan_file import is_plan
from runners.choice import KUBERNETES, runner_named
from runners.job.job import Job
from runners.job.runner import Runner

if TYPE_CHECKING:
    from solvers.autotune.observed import Assignment

# Pods have folders of their own, and Slurm may give nodes only when their turn comes.
_UNCHECKED = (KUBERNETES, "slurm")


@dataclass(frozen=True)
class JobSetup:
    """A job, and how it is run; ``given``: its hosts as they stood in the hosts file."""

    job: Job
    request: RunRequest
    given: Hosts


def new_job(program: str, args: list[str], options: JobOptions, runner: str) -> JobSetup:
    """What was asked for, put in order first where that is needed.

    :raises PlinkError: for options that cannot be, as :func:`job_order` and :func:`backend_for` do, and for hosts that
        cannot run it.
    """
    settings = options.check(runner)
    in_pods = runner == KUBERNETES  # where nothing of this machine's folders and interpreters holds
    job = Job(
        program=program,
        args=tuple(args),
        workdirs=(options.workdir,) if options.workdir else (".",) if in_pods else (os.getcwd(), "~"),
        pythons=(options.python,) if options.python else ("python3",) if in_pods else (sys.executable, "python3"),
        env=options.environment,
    )
    job = with_options(job, options, settings)
    sources = _sources(options, settings)

    def check(hosts: Hosts) -> None:
        if runner not in _UNCHECKED:
            check_runs(runner_named(runner, lambda: connector_for(hosts, options.accept_new_host_keys)), job, hosts)

    order = _local(options) if runner == "local" else job_order(sources, check)
    job = replace(job, env=dict(order.environment))
    return set_up(job, order, options, settings, sources.plan_file)


def set_up(
    job: Job, order: JobOrder, options: JobOptions, settings: LaunchSettings, plan_file: Path | None = None,
    tuning: "tuple[Assignment, float] | None" = None,
) -> JobSetup:  # fmt: skip
    """The job with its backend, and with ``--env`` over all else.

    :param tuning: masters and threshold of Autotune, where no backend is typed that has others.
    :raises PlinkError: as :func:`backend_for` does.
    """
    masters, threshold = tuning or (None, RunRequest.threshold)
    env = dict(job.env)
    if options.backend is not None:
        from plink.cli.aggregating import backend_for

        every_s = settings.autotune_every_s if options.autotune else None
        backend = backend_for(options.backend, order.hosts, plan_file, every_s)
        env, masters = env | backend.environment, backend.masters
    request = RunRequest(order.hosts, options, order.machines, masters, settings.autotune_threshold or threshold)
    return JobSetup(replace(job, env=env | options.environment), request, order.given)


def with_options(job: Job, options: JobOptions, settings: LaunchSettings) -> Job:
    """The job with what was typed, where something was."""
    return replace(
        job,
        timeout_s=options.timeout_s or job.timeout_s,
        interface=options.interface or job.interface,
        master_port=settings.master_port or job.master_port,
        mixed_versions=settings.allow_version_mismatch or job.mixed_versions,
        sync=options.sync or job.sync,
        launcher_args=options.launcher_words or job.launcher_args,
    )


def runner_for(name: str, setup: JobSetup, options: JobOptions) -> Runner:
    """What starts it. :raises PlinkError: what is needed for that is not here."""
    return runner_named(name, lambda: connector_for(setup.request.hosts, options.accept_new_host_keys))


def _sources(options: JobOptions, settings: LaunchSettings) -> Sources:
    order = None if options.order in (None, GIVEN_ORDER) else Path(str(options.order))
    planned = order is not None and is_plan(order)
    return Sources(
        hosts_file=options.hosts_file,
        order_file=None if planned else order,
        plan_file=order if planned else None,
        as_given=options.order == GIVEN_ORDER,
        max_age_s=settings.max_network_age_s,
        algo=options.algo,
        accept_new_host_keys=options.accept_new_host_keys,
    )


def _local(options: JobOptions) -> JobOrder:
    """This machine as the only host."""
    if options.hosts_file or options.order:
        raise UsageError("--runner local runs every rank on this machine; omit --hosts and --order (--slots N)")
    hosts = Hosts((Host("localhost", "127.0.0.1", slots=options.slots or os.cpu_count() or 1),))
    return JobOrder(hosts, hosts, {})
