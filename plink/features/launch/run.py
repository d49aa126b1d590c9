"""Launch a job in a rank order, and verify where its ranks run."""

import contextlib
import datetime
import logging
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from msgspec import to_builtins

from plink.errors import PlinkError
from plink.features.launch.nccl_proof import NcclLog
from plink.model.dry_run import DryRun
from plink.model.hosts import Hosts
from plink.model.network import Network
from plink.model.order import RankOrder
from plink.records import workspace
from plink.records.pipeline_log import PipelineLog, is_report
from plink.records.runs import Record
from plink.records.scratch import scratch_folder
from plink.runtime.step_report import step_of_line
from plink.terminal.interrupts import interrupted_exit_code
from runners.autotune.daemon import NAME, Daemon, TuningLog
from runners.choice import connector_for, runner_named
from runners.job.placement import PlacementError, RankLocation, RunResult, new_id, stated
from runners.job.runner import Flow, FlowRun, HostIdentities, Job, RunContext, Runner, RunObserver
from solvers.autotune.trajectory import AutotuneSettings
from solvers.diagnosis.ring_check import expected_gbps, is_slow, slow_parts

if TYPE_CHECKING:
    from solvers.autotune.observed import MasterAssignment

_runs_log = logging.getLogger("plink.runs")


_DRAIN_S = 0.2  # what is still queued of the flows before would slow the next ones
_MAX_NAMED = 4
_log = logging.getLogger("plink.launch")


@dataclass(frozen=True)
class RecordRequest:
    """Keep a run in ``.plink/runs/ID`` of the working folder, where ``plink runs`` finds it. ``log_dir``: where each
    rank's output is written, None: to the run's folder; ``note``: further keys of the run's document."""

    log_dir: Path | None = None
    note: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class RunDescription:
    """Description of a run for its document. ``identities``: of the hosts, by name, as far as they are known."""

    id: str
    runner: str
    job: Job
    hosts: Hosts
    identities: HostIdentities


@dataclass
class Recording:
    """A run that is being recorded. ``folder``: for what a launcher reads; ``record``: None where the run is not kept;
    ``outcome``: what the record will say of its end; ``began``: when its ranks were let go, None before."""

    folder: Path
    record: Record | None
    outcome: dict[str, Any]
    began: float | None = None

    def placed(self, locations: Sequence[RankLocation]) -> None:
        """Record where ranks are that are let go now, whatever becomes of the job, or of plink."""
        self.began = time.monotonic()
        proof = {"proof": to_builtins(stated(locations))}
        self.outcome |= proof
        if self.record is not None:
            self.record.add(proof)

    def line(self, rank: int | None, stream: str, line: str) -> None:
        """Record one line that a rank, or the launcher (None), printed."""
        if self.record is not None:
            self.record.line(rank, stream, line)


@contextlib.contextmanager
def recording(request: RecordRequest | None, run: RunDescription) -> Iterator[Recording]:
    """Record a run and its result: the ``outcome`` that the block sets, or the error that leaves it.

    :param request: None: nothing is kept, and the folder is a temporary one.
    :raises PlinkError: when ``log_dir`` was asked for and nothing can be written.
    """
    record = None if request is None else _new_record(request, run)
    with _folder_of(record) as folder:
        current = Recording(folder, record, {"exit_code": 130})  # unless something better is known of it
        try:
            yield current
        except PlacementError as error:
            current.outcome = error.result.to_json()
            raise
        except PlinkError as error:
            current.outcome |= {"exit_code": error.exit_code, "error": str(error)}
            raise
        except BrokenPipeError:
            current.outcome |= {
                "exit_code": 128 + signal.SIGPIPE,
                "error": "the reader of its output has closed the pipe",
            }
            raise
        except Exception as error:
            current.outcome |= {"exit_code": 1, "error": f"{type(error).__name__}: {error}"}
            raise
        finally:
            if record is not None:
                seconds = {} if current.began is None else {"seconds": round(time.monotonic() - current.began, 3)}
                code = interrupted_exit_code()
                record.finish(seconds | current.outcome | ({} if code is None else {"exit_code": code}))
                if record.write_error is not None:
                    _runs_log.warning("%s", record.write_error)


@contextlib.contextmanager
def _folder_of(record: Record | None) -> Iterator[Path]:
    if record is not None:
        yield record.folder
        return
    with scratch_folder() as folder:
        yield folder


def _new_record(request: RecordRequest, run: RunDescription) -> Record | None:
    """Return a new record, or None and a warning where nothing can be written: the job matters more."""
    folder, job = workspace.RUNS / run.id, run.job
    document = {
        "started": datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds"),
        "runner": run.runner,
        "program": job.program,
        "args": list(job.args),
        "workdir": job.workdirs[0],
        "workdirs": list(job.workdirs),
        "pythons": list(job.pythons),
        "env": job.env,
        "timeout_s": job.timeout_s,
        "interface": job.interface,
        "master_port": job.master_port,
        "mixed_versions": job.allow_version_mismatch,
        "launcher_args": list(job.launcher_args),
        "hubs": list(job.hubs),
        "sync": None if job.sync is None else str(job.sync.absolute()),
        "hosts": [host.to_json() for host in run.hosts],
        **({} if run.hosts.lab is None else {"lab": run.hosts.lab}),
        "machines": {name: run.identities[name] for name in run.hosts.names if name in run.identities},
        "logs": str(request.log_dir or folder / "logs"),
        **request.note,
    }
    try:
        workspace.prepare()
        return Record(folder, document, request.log_dir and Path(request.log_dir))
    except PlinkError as error:
        if request.log_dir is not None:
            raise
        _runs_log.warning("this run is not kept: %s", error)
        return None


@dataclass(frozen=True)
class PreflightRequest:
    """What a job's network is compared with: ``network``, which has all of its hosts. ``ring``: their names in the
    order of the flows; ``strict``: refuse to start the job instead of warning."""

    network: Network
    ring: tuple[str, ...]
    strict: bool = False


def check_network(run: FlowRun, request: PreflightRequest) -> None:
    """Run a ring of flows, and again those that are slow or fail; warn of what is slower than half of before.

    :raises PlinkError: with ``strict``, for what is warned of otherwise.
    """
    network, ring = request.network, request.ring
    flows: list[Flow] = list(zip(ring, (*ring[1:], ring[0]), strict=True)) if len(ring) > 1 else []
    index = {name: host for host, name in enumerate(network.hosts.names)}
    source, target = np.array([[index[name] for name in flow] for flow in flows], dtype=np.intp).reshape(-1, 2).T
    expected = expected_gbps(network, source, target)
    if not np.isfinite(expected).any():
        message = f"{network.location} has no rates of these hosts to compare with; `plink probe` measures them"
        if request.strict:
            raise PlinkError(f"{message}; nothing was run (--set preflight=strict)")
        _log.debug("no preflight of the network: %s", message)
        return
    started = time.monotonic()
    results = run(flows)

    def rates() -> npt.NDArray[np.float64]:
        return np.array([rate if isinstance(rate := results[flow], float | int) else np.nan for flow in flows])

    doubtful = [flow for flow, bad in zip(flows, is_slow(rates(), expected) | np.isnan(rates()), strict=True) if bad]
    if len(doubtful) == len(flows) and np.isnan(rates()).all():
        _report([], [f"no flow came through between hosts ({results[flows[0]]})"], request.strict)
        return
    if doubtful:  # by themselves: hosts that were busy for a moment, or shared cores, are no fault of the network
        time.sleep(_DRAIN_S)
        for flow, again in run(doubtful).items():
            before = results[flow]
            both = [rate for rate in (before, again) if isinstance(rate, float | int)]
            results[flow] = max(both) if both else again
    _log.debug("preflight of %d flows in %.2f s", len(flows), time.monotonic() - started)
    failed = [
        f"no flow came through from {a} to {b} ({results[a, b]})" for a, b in flows if isinstance(results[a, b], str)
    ]
    _report([str(part) for part in slow_parts(network, source, target, rates(), expected)], failed, request.strict)


def _report(slow: list[str], failed: list[str], strict: bool) -> None:
    for what, problems, advice in (
        ("slower than when the network was measured", slow, "measure anew (`plink probe`) or leave them out"),
        ("the network could not be checked", failed, "are ports closed between the hosts?"),
    ):
        if not problems:
            continue
        more = f" and {len(problems) - _MAX_NAMED} more" if len(problems) > _MAX_NAMED else ""
        line = f"{what}: {'; '.join(problems[:_MAX_NAMED])}{more}; {advice}"
        if strict:
            raise PlinkError(f"{line}; nothing was run (--set preflight=strict)")
        _log.warning("%s (--set preflight=off skips this check)", line)


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
    if order is not None:
        job, hosts = replace(job, env=order.environment | job.env), order.arrange(hosts, "order")
    runner = runner_for(hosts, request)
    program = job.program if request.program is None else request.program
    run = RunDescription(new_id(), request.runner, job, hosts, request.identities)
    with (
        recording(request.record, run) as current,
        _autotuning(request.autotune, hosts, current.folder) as on_rank_line,
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
            current.placed(locations)
            ranks = sum(location.hub is None for location in locations)
            _log.info("%d/%d ranks placed; starting %s", ranks, ranks, program)

        recorded = RunObserver(on_line, on_placement, observer.progress)
        context = RunContext(
            recorded,
            time.monotonic,
            current.folder,
            request.identities,
            run.id,
            on_rank_line,
            _network_check(request.preflight),
        )
        try:
            result = runner.run(job, hosts, context)
        except PlacementError as error:
            error.result = replace(error.result, id=run.id)
            raise
        if request.pipeline_log is not None:
            result = _without_reports(result)
        proof = None if request.nccl is None else request.nccl.proof(hosts)
        if proof is not None and proof.problems and result.exit_code == 0:
            result = replace(result, exit_code=1)
        current.outcome = result.to_json() | step | ({} if proof is None else {"nccl": to_builtins(proof)})
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
    if order is not None:
        job, hosts = replace(job, env=order.environment | job.env), order.arrange(hosts, "order")
    runner = runner_for(hosts, request)
    with scratch_folder() as folder:
        return runner.dry_run(job, hosts, RunContext(observer, time.monotonic, folder, request.identities))


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
