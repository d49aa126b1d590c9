"""One job from the command line: shown while it runs, kept, and told of when it ends."""

import contextlib
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plink.cli.job_options import JobOptions
from plink.cli.screen import print_json, progress, say, say_error
from plink.errors import PlinkError
from plink.model.hostlist import fold_hostlist
from plink.model.hosts import Hosts
from plink.records import workspace
from plink.records.runs import Record
from plink.records.scratch import scratch_folder
from runners.job.job import Job
from runners.job.output import Sink
from runners.job.proof import Finding
from runners.job.result import OrderNotKept, RunResult, new_id
from runners.job.runner import Command, Rehearsal, Runner, Watch, Writer

if TYPE_CHECKING:
    from contextlib import ExitStack

    from solvers.autotune.observed import Assignment

_LAST_LINES = 10


@dataclass(frozen=True)
class RunRequest:
    """How a job is run and shown. ``machines``: what is known of the hosts from when they were measured. ``masters``:
    those of the ranks' aggregation that Autotune is to move, None: it does not run; ``threshold``: the share of
    throughput that it looks into."""

    hosts: Hosts
    options: JobOptions
    machines: dict[str, dict[str, Any]] = field(default_factory=dict)
    masters: "Assignment | None" = None
    threshold: float = 0.2


@dataclass
class _Screen:
    """Shows lines with their ranks; with ``tail``, only the last of each rank, at the end."""

    width: int
    as_json: bool
    tail: int | None
    _kept: dict[int, deque[tuple[str, str]]] = field(default_factory=dict)

    def line(self, rank: int | None, stream: str, line: str) -> None:
        if self.tail is None or rank is None:
            self._show(rank, stream, line)
        else:
            self._kept.setdefault(rank, deque(maxlen=self.tail)).append((stream, line))

    def last_lines(self) -> None:
        for rank in sorted(self._kept):
            for stream, line in self._kept.pop(rank):
                self._show(rank, stream, line)

    def _show(self, rank: int | None, stream: str, line: str) -> None:
        file = sys.stdout if stream == "out" and not self.as_json else sys.stderr
        mark = " " * self.width if rank is None else f"{rank:>{self.width}}"
        file.buffer.write(f"[{mark}] {line}\n".encode("utf-8", "surrogateescape"))
        file.flush()


def start(runner: Runner, job: Job, request: RunRequest) -> int:
    """Run the job, or rehearse it; returns the exit code to end with.

    :raises PlinkError: when it could not be run.
    """
    if request.options.dry_run:
        rehearse(runner, job, request)
        return 0
    result = run(runner, job, request)
    if request.options.as_json:
        print_json(result.to_json())
    why = tell_failure(result)
    if why is not None:
        say_error(f"error: {why}")
    return result.exit_code


def run(
    runner: Runner, job: Job, request: RunRequest, note: dict[str, Any] | None = None, hear: Sink = lambda *_: None
) -> RunResult:
    """One job to its end, shown and kept; ``note`` is added to what is kept, ``hear`` is given every line too.

    :raises PlinkError: when it could not be run.
    """
    width = len(str(sum(host.slots for host in request.hosts) - 1))
    run_id = new_id()
    record = record_run(run_id, runner.name, job, request, note or {})
    screen = _Screen(width, request.options.as_json, request.options.tail)
    bars = contextlib.ExitStack()

    def sink(rank: int | None, stream: str, line: str) -> None:
        if record is not None:
            record.line(rank, stream, line)
        hear(rank, stream, line)
        screen.line(rank, stream, line)

    def on_proof(findings: list[Finding]) -> None:
        bars.close()
        ranks = len(findings)
        say(
            "the rank is where it was asked to be"
            if ranks == 1
            else f"all {ranks} ranks are where they were asked to be"
        )

    try:
        with recorded(record, run_id) as ended, run_folder(record) as folder, bars, _autotune(request, folder) as talk:
            watch = replace(_watch(bars, request, sink, on_proof, folder, run_id), talk=talk)
            result = runner.run(job, request.hosts, watch)
            ended.update(result.to_json())
        return result
    except OrderNotKept as error:
        for finding in error.findings:
            mark = f"  <- {finding.wrong}" if finding.wrong else ""
            say_error(f"rank {finding.rank:>{width}}: asked for {finding.host}, found {finding.hostname}{mark}")
        if request.options.as_json:
            print_json(error.result.to_json() | {"id": run_id})
        raise
    finally:
        screen.last_lines()


@contextlib.contextmanager
def recorded(record: Record | None, run_id: str) -> Iterator[dict[str, Any]]:
    """Keep how a run ended: what the block puts into the dictionary, or the error that leaves it."""
    ended: dict[str, Any] = {"exit_code": 130}  # unless something better is known of it
    try:
        yield ended
    except OrderNotKept as error:
        ended = error.result.to_json() | {"id": run_id}
        raise
    except PlinkError as error:
        ended = {"exit_code": error.exit_code, "error": str(error)}
        raise
    except BrokenPipeError:
        ended = {"exit_code": 128 + signal.SIGPIPE, "error": "nobody reads its output any more"}
        raise
    except Exception as error:
        ended = {"exit_code": 1, "error": f"{type(error).__name__}: {error}"}
        raise
    finally:
        if record is not None:
            record.finish(ended)
            if record.trouble is not None:
                say_error(record.trouble)


@contextlib.contextmanager
def _autotune(request: RunRequest, folder: Path) -> "Iterator[Callable[[str], list[str]] | None]":
    """What answers rank 0 while the job runs; its log is in the run's folder."""
    if request.masters is None:
        yield None
        return
    from runners.autotune.daemon import Daemon
    from runners.autotune.log import NAME, Log
    from solvers.autotune.course import Settings

    hosts = [host.name for host in request.hosts for _ in range(host.slots)]
    settings = Settings(change=request.threshold)
    try:
        log = Log(folder / NAME, request.masters, settings, hosts)
    except PlinkError as error:
        say_error(str(error))
        log = None
    daemon = Daemon(request.masters, log, say, settings)
    try:
        yield daemon.talk
    finally:
        daemon.close()


def rehearse(runner: Writer, job: Job, request: RunRequest) -> None:
    """Show what would be started.

    :raises PlinkError: when it could not be.
    """
    rehearsal = rehearsal_of(runner, job, request)
    if request.options.as_json:
        print_json(rehearsal.to_json())
    else:
        _show_rehearsal(rehearsal)


def check_runs(runner: Writer, job: Job, hosts: Hosts) -> None:
    """Refuse a job that these hosts could not run, whatever their order.

    :raises PlinkError: when they cannot be reached, or one lacks the program, its interpreter or the folder.
    """
    rehearsal_of(runner, job, RunRequest(hosts, JobOptions(dry_run=True)))


def rehearsal_of(runner: Writer, job: Job, request: RunRequest) -> Rehearsal:
    """What would be started.

    :raises PlinkError: when it could not be.
    """
    bars = contextlib.ExitStack()
    screen = _Screen(1, True, None)
    with scratch_folder() as folder, bars:
        watch = _watch(bars, request, screen.line, lambda findings: None, folder, new_id())
        return runner.rehearse(job, request.hosts, watch)


def _watch(bars: "ExitStack", request: RunRequest, sink: Any, on_proof: Any, folder: Path, run_id: str) -> Watch:
    shown = bars.enter_context(progress("connecting", "copying"))
    return Watch(
        sink, on_proof, time.monotonic, folder, shown["connecting"], shown["copying"], request.machines, run_id
    )


@contextlib.contextmanager
def run_folder(record: Record | None) -> Iterator[Path]:
    """Where a launcher's files go: the run's folder, a temporary one where the run is not kept."""
    if record is not None:
        yield record.folder
        return
    with scratch_folder() as folder:
        yield folder


def _show_rehearsal(rehearsal: Rehearsal) -> None:
    for path, text in rehearsal.files.items():
        print(f"# {path}")
        print(text.rstrip("\n"))
    for command in rehearsal.commands:
        print(_typed(command))


def _typed(command: Command) -> str:
    """The command as it would be typed into a shell."""
    import shlex

    where = [] if command.host is None else [f"# on {command.host}, rank {', '.join(map(str, command.ranks))}\n"]
    folder = [] if command.workdir is None else [f"cd {shlex.quote(command.workdir)} &&"]
    env = ["env", *(f"{name}={shlex.quote(value)}" for name, value in command.env.items())] if command.env else []
    return "".join(where) + " ".join([*folder, *env, shlex.join(command.argv)])


def tell_failure(result: RunResult) -> str | None:
    """Show the last lines of the first rank that failed, and what ranks failed in the same way; returns why the job
    failed, in a sentence, None when it did not."""
    failure = result.failure
    if failure is None:
        return None
    for line in failure.last_lines[-_LAST_LINES:]:
        say_error(line if failure.rank is None else f"[{failure.rank}] {line}")
    owner = {finding.rank: finding.host for finding in result.proof}
    by_code: dict[int, list[int]] = {}
    for rank, code in sorted(result.exits.items()):
        if code:
            by_code.setdefault(code, []).append(rank)
    for code, ranks in sorted(by_code.items()):
        if len(ranks) > 1:
            say_error(f"{fold_hostlist(list(dict.fromkeys(owner[rank] for rank in ranks)), ' ')}: exit code {code}")
    if failure.cause is not None:
        return failure.cause
    if failure.rank is None:
        return f"the launcher ended with exit code {failure.code}"
    if result.timed_out:
        return f"the job was ended after {result.seconds:.0f} s: that was its --timeout"
    why = "" if failure.exception is None else f": {failure.exception}"
    return f"rank {failure.rank} on {failure.host} was the first to fail, with exit code {failure.code}{why}"


def record_run(run_id: str, runner: str, job: Job, request: RunRequest, note: dict[str, Any]) -> Record | None:
    """Where the run is kept, with ``note`` beside what was asked for; None, and a word about it, where nothing can be
    written: the job matters more."""
    import datetime

    folder = workspace.RUNS / run_id
    hosts = request.hosts
    document = {
        "started": datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds"),
        "runner": runner,
        "program": job.program,
        "args": list(job.args),
        "workdir": job.workdirs[0],
        "workdirs": list(job.workdirs),
        "python": request.options.python,
        "pythons": list(job.pythons),
        "env": job.env,
        "timeout_s": job.timeout_s,
        "interface": job.interface,
        "master_port": job.master_port,
        "mixed_versions": job.mixed_versions,
        "launcher_args": list(job.launcher_args),
        "sync": None if job.sync is None else str(job.sync.absolute()),
        "hosts": [host.to_json() for host in hosts],
        **({} if hosts.lab is None else {"lab": hosts.lab}),
        "machines": request.machines,
        "logs": str(request.options.log_dir or folder / "logs"),
        **note,
    }
    try:
        workspace.prepare()
        return Record(folder, document, request.options.log_dir)
    except PlinkError as error:
        if request.options.log_dir is not None:
            raise
        say_error(f"this run is not kept: {error}")
        return None
