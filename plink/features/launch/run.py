"""Launch a job in a rank order, and verify where its ranks run."""

import contextlib
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plink.errors import PlinkError
from plink.features.launch.nccl_proof import NcclLog
from plink.features.launch.preflight import check_network
from plink.features.launch.recording import RecordRequest, RunDescription, recording
from plink.model.dry_run import DryRun
from plink.model.hosts import Hosts
from plink.model.order import RankOrder
from plink.records.pipeline_log import PipelineLog, is_report
from plink.records.scratch import scratch_folder
from plink.runtime.step_report import step_of_line
from runners.autotune.log import NAME, TuningLog
from runners.choice import connector_for, runner_named
from runners.job.job import Job
from runners.job.placement import RankLocation
from runners.job.result import PlacementError, RunResult, new_id
from runners.job.runner import FlowRun, RunContext, Runner, RunObserver
from solvers.autotune.trajectory import AutotuneSettings

if TYPE_CHECKING:
    from plink.features.launch.preflight import PreflightRequest
    from solvers.autotune.observed import MasterAssignment

_log = logging.getLogger("plink.launch")


@dataclass(frozen=True)
class AutotuneRequest:
    """Move work between ranks when the network changes. ``masters``: those of the ranks' aggregation at the start;
    ``threshold``: the share by which throughput changes before that is looked into."""

    masters: "MasterAssignment"
    threshold: float = 0.2


@dataclass(frozen=True)
class LaunchRequest:
    """How a job is started.

    :param runner: what starts the ranks: ``ssh``, ``local``, ``torchrun``, ``mpirun``, ``mpich`` or ``slurm``.
    :param identities: of the hosts when they were measured, by name (``network.host_identities``): a rank on another
        machine of the same name is then in the wrong place.
    :param accept_new_host_keys: note unknown SSH host keys instead of refusing them.
    :param record: keep the run in ``.plink/runs``; None: nothing is written.
    :param autotune: as ``plink launch --autotune`` sets it; None: the masters stay.
    :param pipeline_log: takes the reports of a pipeline's ranks out of the output; None: they stay in it.
    :param program: what messages call the program; None: as the job has it.
    :param preflight: what the network is compared with before ranks start, by plink's agents; None: nothing.
    :param nccl: reads what NCCL says it built; its lines go to the run's logs alone. None: they stay in the output.
    """

    runner: str = "ssh"
    identities: Mapping[str, dict[str, Any]] = field(default_factory=dict)
    accept_new_host_keys: bool = False
    record: RecordRequest | None = None
    autotune: AutotuneRequest | None = None
    pipeline_log: PipelineLog | None = None
    program: str | None = None
    preflight: "PreflightRequest | None" = None
    nccl: NcclLog | None = None


def launch(
    job: Job,
    hosts: Hosts,
    order: RankOrder | None = None,
    request: LaunchRequest | None = None,
    observer: RunObserver | None = None,
) -> RunResult:
    """Run a program as the ranks of a job, to its end; the first rank that fails ends the others.

    No rank's program begins before the placement of every rank is verified. How it ended is in what is
    returned (``exit_code``, ``failure``), also where a rank failed.

    :param order: None: ranks as the hosts stand.
    :raises UsageError: for a runner that there is none of. :raises InputError: when the order is not of these hosts.
    :raises PlacementError: when a rank was found elsewhere. :raises PlinkError: when the job could not be started.
    """
    request, observer = request or LaunchRequest(), observer or RunObserver()
    arranged = hosts if order is None else order.arrange(hosts, "order")
    runner = runner_for(arranged, request)
    program = job.program if request.program is None else request.program
    run = RunDescription(new_id(), request.runner, job, arranged, request.identities)
    with (
        recording(request.record, run) as current,
        _autotuning(request.autotune, arranged, current.folder) as on_rank_line,
    ):
        step: dict[str, float] = {}

        def on_line(rank: int | None, stream: str, line: str) -> None:
            if request.pipeline_log is not None and request.pipeline_log.take(stream, line, current.folder):
                return
            if stream == "err":
                step.update(step_of_line(line))
            current.line(rank, stream, line)
            if request.nccl is None or rank is None or not request.nccl.take(rank, line):
                observer.on_line(rank, stream, line)

        def on_placement(locations: list[RankLocation]) -> None:
            observer.on_placement(locations)
            ranks = sum(location.hub is None for location in locations)
            _log.info("%d/%d ranks placed; starting %s", ranks, ranks, program)

        recorded = RunObserver(on_line, on_placement, observer.progress)
        context = RunContext(
            recorded, time.monotonic, current.folder, request.identities, run.id, on_rank_line,
            _network_check(request.preflight),
        )  # fmt: skip
        try:
            result = runner.run(job, arranged, context)
        except PlacementError as error:
            error.result = replace(error.result, id=run.id)
            raise
        if request.pipeline_log is not None:
            result = _without_reports(result)
        current.outcome = result.to_json() | step
    _log.debug("ended with exit code %d after %.1f s", result.exit_code, result.seconds)
    return result


def _network_check(preflight: "PreflightRequest | None") -> Callable[[FlowRun], None] | None:
    if preflight is None:
        return None
    return lambda run: check_network(run, preflight)


def _without_reports(result: RunResult) -> RunResult:
    """Return the result with only what the program printed in the last lines of the failed rank."""
    failure = result.failure
    if failure is None:
        return result
    lines = tuple(line for line in failure.last_lines if not is_report(line))
    return replace(result, failure=replace(failure, last_lines=lines))


def dry_run(
    job: Job,
    hosts: Hosts,
    order: RankOrder | None = None,
    request: LaunchRequest | None = None,
    observer: RunObserver | None = None,
) -> DryRun:
    """Do all that :func:`launch` does but start the program: the commands it would start, and the files it would write.

    :raises PlinkError: whatever :func:`launch` would refuse.
    """
    request, observer = request or LaunchRequest(), observer or RunObserver()
    arranged = hosts if order is None else order.arrange(hosts, "order")
    runner = runner_for(arranged, request)
    with scratch_folder() as folder:
        return runner.dry_run(job, arranged, RunContext(observer, time.monotonic, folder, request.identities))


def runner_for(hosts: Hosts, request: LaunchRequest) -> Runner:
    """Return the runner. :raises PlinkError: when its requirements are missing here.

    :raises PlinkError: what is needed for that is not here.
    """
    return runner_named(request.runner, lambda: connector_for(hosts, request.accept_new_host_keys))


@contextlib.contextmanager
def _autotuning(
    request: AutotuneRequest | None, hosts: Hosts, folder: Path
) -> Iterator[Callable[[str], list[str]] | None]:
    """Answer rank 0 with Autotune while the job runs; its log is in the run's folder."""
    if request is None:
        yield None
        return
    from runners.autotune.daemon import Daemon

    names = [host.name for host in hosts for _ in range(host.slots)]
    settings = AutotuneSettings(change=request.threshold)
    log = None
    try:
        log = TuningLog(folder / NAME, request.masters, settings, names)
    except PlinkError as error:
        _log.warning("%s", error)
    daemon = Daemon(request.masters, log, lambda text: _log.info("%s", text), settings)
    try:
        yield daemon.answer_line
    finally:
        daemon.close()
