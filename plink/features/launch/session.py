"""Run one job from the command line: show its output, then its result."""

import contextlib
import sys
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from msgspec import to_builtins

from plink.features.launch.nccl_proof import proof_lines
from plink.features.launch.request import JobRequest
from plink.features.launch.run import LaunchRequest, dry_run, launch
from plink.model.dry_run import DryRun, LaunchCommand
from plink.model.hostlist import fold_hostlist
from plink.model.hosts import Hosts
from plink.model.pipeline.rank_report import table_of_reports
from plink.terminal.screen import print_json, print_lines, progress, say, say_error
from runners.choice import KUBERNETES
from runners.job.monitor import Sink
from runners.job.placement import PlacementError, RunResult
from runners.job.runner import Job, RunObserver

_LAST_LINES = 10


@dataclass(frozen=True)
class JobSetup:
    """A job that can be started. ``hosts``: in rank order; ``baseline``: in the order of the hosts file;
    ``predicted_s``: seconds of a minibatch, by the plan of a pipeline; ``restart``: decides what follows a job that
    ended so; ``resume_hint``: how the user goes on by hand from what has been reported so far."""

    job: Job
    hosts: Hosts
    baseline: Hosts
    request: LaunchRequest
    options: JobRequest
    predicted_s: float | None = None
    restart: "Callable[[RunResult], Restart]" = lambda result: Restart()
    resume_hint: Callable[[], str | None] = lambda: None


@dataclass(frozen=True)
class Restart:
    """What follows a job. ``setup``: the job to start, None: nothing; ``message``: what the user should know."""

    setup: JobSetup | None = None
    message: str | None = None


@dataclass
class _Screen:
    """Print lines with their ranks, or hubs behind these; with ``tail`` only the last lines of each, at the end."""

    ranks: int
    as_json: bool
    tail: int | None
    _last_lines: dict[int, deque[tuple[str, str]]] = field(default_factory=dict)

    def line(self, rank: int | None, stream: str, line: str) -> None:
        if self.tail is None or rank is None:
            self._show(rank, stream, line)
        else:
            last = self._last_lines.setdefault(rank, deque(maxlen=self.tail))
            if last and last[-1][1].endswith("\r"):  # the state of a progress bar gives way to what follows it
                last.pop()
            last.append((stream, line))

    def last_lines(self) -> None:
        for rank in sorted(self._last_lines):
            for stream, line in self._last_lines.pop(rank):
                self._show(rank, stream, line)

    def _show(self, rank: int | None, stream: str, line: str) -> None:
        file = sys.stdout if stream == "out" and not self.as_json else sys.stderr
        width = len(str(self.ranks - 1))
        mark = " " * width if rank is None else f"{rank:>{width}}" if rank < self.ranks else f"hub-{rank - self.ranks}"
        file.buffer.write(f"[{mark}] {line}\n".encode("utf-8", "surrogateescape"))
        file.flush()


def start(setup: JobSetup) -> int:
    """Run the job, or show a dry run; return the exit code.

    :raises PlinkError: when it could not be run.
    """
    if setup.options.dry_run:
        show_dry_run(dry_run_shown(setup.job, setup.hosts, setup.request), setup.options.as_json)
        return 0
    result = _run_with_hint(setup)
    while (following := setup.restart(result)).setup is not None:
        say_error(f"error: {report_failure(result)}")
        say(following.message or "restarting")
        setup = following.setup
        result = _run_with_hint(setup)
    log, nccl = setup.request.pipeline_log, setup.request.nccl
    proof = None if nccl is None else nccl.proof(setup.hosts)
    if setup.options.as_json:
        parts = {} if log is None else {"pipeline": [report.to_json() for report in log.reports]}
        print_json(result.to_json() | parts | ({} if proof is None else {"nccl": to_builtins(proof)}))
    elif log is not None:
        print("".join(f"{line}\n" for line in table_of_reports(log.reports, setup.predicted_s)), end="")
    error = report_failure(result)
    if error is not None:
        say_error(f"error: {error}")
    if following.message is not None:
        say(following.message)
    if proof is None or result.failure is not None:
        return result.exit_code
    for line in proof_lines(proof):
        say(line)
    for problem in proof.problems:
        say_error(f"error: {problem}")
    return result.exit_code


def _run_with_hint(setup: JobSetup) -> RunResult:
    """Run one job; on Ctrl-C say how to go on from what it has left."""
    try:
        return run(setup)
    except KeyboardInterrupt:
        if (hint := setup.resume_hint()) is not None:
            say(hint)
        raise


def run(setup: JobSetup, on_line: Sink = lambda *_: None) -> RunResult:
    """Run one job to its end and show its output; ``on_line`` receives every line too.

    :raises PlinkError: when it could not be run.
    """
    ranks = sum(host.slots for host in setup.hosts)
    width = len(str(ranks - 1))
    screen = _Screen(ranks, setup.options.as_json, setup.options.tail)

    def on_any_line(rank: int | None, stream: str, line: str) -> None:
        on_line(rank, stream, line)
        screen.line(rank, stream, line)

    try:
        with contextlib.ExitStack() as bars:
            advance = bars.enter_context(progress("connecting", "copying"))
            observer = RunObserver(
                on_any_line, lambda locations: bars.close(), lambda what, done, total: advance[what](done, total)
            )
            return launch(setup.job, setup.hosts, None, setup.request, observer)
    except PlacementError as error:
        for rank in error.locations:
            mark = f"  <- {rank.problem}" if rank.problem else ""
            name = f"rank {rank.rank:>{width}}" if rank.hub is None else rank.process
            say_error(f"{name}: assigned to {rank.host}, runs on {rank.hostname}{mark}")
        if setup.options.as_json:
            print_json(error.result.to_json())
        raise
    finally:
        screen.last_lines()


def dry_run_shown(job: Job, hosts: Hosts, request: LaunchRequest) -> DryRun:
    """Return what would be started, with progress bars while hosts are contacted.

    :raises PlinkError: when it could not be: hosts cannot be reached, or one lacks the program, its interpreter or the
        folder.
    """
    screen = _Screen(sum(host.slots for host in hosts), True, None)
    with progress("connecting", "copying") as advance:
        observer = RunObserver(screen.line, progress=lambda what, done, total: advance[what](done, total))
        return dry_run(job, hosts, None, request, observer)


def show_dry_run(preview: DryRun, as_json: bool) -> None:
    """Print what would be started."""
    if as_json:
        print_json(preview.to_json())
        return
    for path, text in preview.files.items():
        print_lines(f"# {path}")
        print(text.rstrip("\n"))
    mark = "# " if preview.runner == KUBERNETES else ""  # behind YAML, which stays such
    for command in preview.commands:
        print(mark + _shell_command(command))


def _shell_command(command: LaunchCommand) -> str:
    """Return the command as typed into a shell."""
    import shlex

    process = f"rank {', '.join(map(str, command.ranks))}" if command.ranks else "hub"
    comment = [] if command.host is None else [f"# on {command.host}, {process}\n"]
    folder = [] if command.workdir is None else [f"cd {shlex.quote(command.workdir)} &&"]
    env = ["env", *(f"{name}={shlex.quote(value)}" for name, value in command.env.items())] if command.env else []
    return "".join(comment) + " ".join([*folder, *env, shlex.join(command.argv)])


def report_failure(result: RunResult) -> str | None:
    """Print the last lines of the first rank that failed, and which ranks failed alike. Returns the reason in a
    sentence, None when the job did not fail."""
    failure = result.failure
    if failure is None:
        return None
    for line in failure.last_lines[-_LAST_LINES:]:
        say_error(line if failure.rank is None else f"[{failure.process.removeprefix('rank ')}] {line}")
    host_of_rank = {rank.rank: rank.host for rank in result.locations}
    by_code: dict[int, list[int]] = {}
    for rank, code in sorted(result.exits.items()):
        if code:
            by_code.setdefault(code, []).append(rank)
    for code, ranks in sorted(by_code.items()):
        if len(ranks) > 1:
            say_error(
                f"{fold_hostlist(list(dict.fromkeys(host_of_rank[rank] for rank in ranks)), ' ')}: exit code {code}"
            )
    return result.reason
