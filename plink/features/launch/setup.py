"""Turn typed options into a job that can be started: program, hosts in order, environment."""

import os
import sys
from dataclasses import replace

from plink.errors import UsageError
from plink.features.launch import nccl_proof
from plink.features.launch.order import JobOrder, job_order
from plink.features.launch.pipeline_job import check_options, pipeline_order, pipelined, restartable
from plink.features.launch.request import HUB_RUNNERS, JobRequest, misplaced
from plink.features.launch.run import AutotuneRequest, LaunchRequest, PreflightRequest, RecordRequest
from plink.features.launch.session import JobSetup, dry_run_shown
from plink.model.hostlist import shortened_hostlist
from plink.model.hosts import HUB, Host, Hosts
from plink.records.pipeline_log import PipelineLog
from plink.terminal.screen import say
from runners.choice import KUBERNETES
from runners.job.runner import Job
from solvers.schedules.catalogue import HUB_ALGORITHMS

# Pods have folders of their own, and Slurm may give nodes only when their turn comes.
_UNCHECKED = (KUBERNETES, "slurm")


def new_job(program: str, args: list[str], options: JobRequest, runner: str) -> JobSetup:
    """Return the job, with its hosts ordered first where needed.

    :raises PlinkError: for options that cannot be, as :func:`job_order` and :func:`backend_for` do, and for hosts that
        cannot run it.
    """
    options.check(runner)
    if options.backend is not None:
        from plink.features.launch.backend import check_backend, check_hosts

        check_backend(options.backend, options.settings.autotune_every_s if options.autotune else None)
    if late := misplaced(program, args):
        say(f"{late} follows {program} and so is its argument; options of plink go before the program")
    in_pods = runner == KUBERNETES  # where nothing of this machine's folders and interpreters holds
    job = Job(
        program=program,
        args=tuple(args),
        workdirs=(options.workdir,) if options.workdir else (".",) if in_pods else (os.getcwd(), "~"),
        pythons=(options.python,) if options.python else ("python3",) if in_pods else (sys.executable, "python3"),
        env=dict(options.env),
    )
    job = options.applied(job)
    request = launch_request(runner, options)
    if options.pipeline is not None:
        check_options(program, options)
        plan, order = pipeline_order(options.pipeline, options, runner)
        job = pipelined(replace(job, env=dict(order.environment)), plan, options)
        request = replace(request, pipeline_log=PipelineLog(), program=program)
        setup = replace(set_up(job, order, request, options), predicted_s=plan.minibatch_s)
        return restartable(setup, options.settings.restarts)
    for name in ("checkpoint", "restore"):
        if getattr(options, name) is not None:
            raise UsageError(f"--{name}: goes with --pipeline")
    options.settings.check("--pipeline")
    if runner == "local":
        return set_up(replace(job, env={}), _local(options), request, options)

    def check(hosts: Hosts) -> None:
        if options.backend is not None:
            check_hosts(options.backend, hosts)
        if runner not in _UNCHECKED:
            dry_run_shown(job, hosts.ranked(), request)

    order = job_order(options, check, may_probe=not in_pods)
    return set_up(replace(job, env=dict(order.environment)), order, request, options)


def launch_request(runner: str, options: JobRequest, autotune: AutotuneRequest | None = None) -> LaunchRequest:
    """Return how the job is started; its run is recorded."""
    note = {"python": options.python}
    note |= {} if options.backend is None else {"backend": options.backend}
    record = RecordRequest(options.log_dir, note)
    nccl = nccl_proof.NcclLog() if options.verify_nccl else None
    return LaunchRequest(runner, {}, options.accept_new_host_keys, record, autotune, nccl=nccl)


def set_up(job: Job, order: JobOrder, request: LaunchRequest, options: JobRequest) -> JobSetup:
    """Return the job with its backend; ``--env`` wins over all else.

    :param request: with Autotune of the masters that it has, where no backend is typed that has others.
    :raises PlinkError: as :func:`backend_for` does.
    """
    settings = options.settings
    env, autotune, hosts = dict(job.env), request.autotune, order.hosts
    if options.backend is not None:
        from plink.features.launch.backend import backend_for

        every_s = settings.autotune_every_s if options.autotune else None
        everyone = Hosts((*order.hosts, *order.hubs), order.hosts.lab)
        backend = backend_for(options.backend, everyone, order.plan_file, every_s, request.runner in HUB_RUNNERS)
        env |= backend.environment
        if backend.hubs:
            job, hosts = replace(job, hubs=backend.hubs), everyone
        if backend.rails and job.interface is None:
            job = replace(job, interface=",".join(backend.rails))
        threshold = AutotuneRequest.threshold if autotune is None else autotune.threshold
        autotune = None if backend.masters is None else AutotuneRequest(backend.masters, threshold)
    if autotune is not None and settings.autotune_threshold is not None:
        autotune = replace(autotune, threshold=settings.autotune_threshold)
    if order.hubs and not job.hubs and request.runner != "local":  # which may start one
        names = shortened_hostlist([host.name for host in order.hubs], " ")
        backends = " or ".join(HUB_ALGORITHMS)
        uses = f"`plink launch --runner ssh --backend` {backends} does"
        say(f"{names}: role=hub takes no ranks, and this job uses no hubs ({uses})")
    preflight = None
    if order.network is not None and settings.preflight != "off":
        preflight = PreflightRequest(order.network, tuple(order.hosts.names), settings.preflight == "strict")
    record = request.record and replace(request.record, note={**request.record.note, "order": order.source})
    request = replace(request, identities=order.identities, autotune=autotune, preflight=preflight, record=record)
    if options.verify_nccl:
        nccl_proof.check_environment(options.env)
        env |= nccl_proof.ENVIRONMENT
        if "NCCL_ALGO" in options.env:
            say(f"NCCL_ALGO={options.env['NCCL_ALGO']} is kept: it decides instead of NCCL's tuner")
    return JobSetup(replace(job, env=env | dict(options.env)), hosts, order.baseline, request, options)


def _local(options: JobRequest) -> JobOrder:
    """Return this machine as the only host."""
    if options.hosts_file or options.order:
        raise UsageError("--runner local runs every rank on this machine; omit --hosts and --order (--slots N)")
    hosts = Hosts((Host("localhost", "127.0.0.1", slots=options.slots or os.cpu_count() or 1),))
    return JobOrder(hosts, hosts, {}, hubs=(Host("hub", "127.0.0.1", 0, role=HUB),))
