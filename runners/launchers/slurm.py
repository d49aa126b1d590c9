"""Launcher of Slurm (checked: 22.05.8): steps of one allocation by srun, whose tasks follow ``SLURM_HOSTFILE``.

Inside an allocation (``SLURM_JOB_ID`` is set) the steps are its own. Elsewhere salloc requests exactly these nodes,
and they are released when the job or plink has ended, however that was.
"""

import contextlib
import os
import re
import shlex
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from plink.errors import HostError, PlinkError, UsageError
from plink.model.dry_run import LaunchCommand
from plink.model.hosts import Host, Hosts
from plink.transport.command_output import run_to_end
from plink.transport.program import BOOTSTRAP
from runners.child import ChildConnection, start
from runners.hostfiles import node_per_task
from runners.job.runner import Job, RunContext
from runners.launchers.launcher import LauncherProcess

_HOSTFILE = "slurm-hostfile"
_CONTROL_TIMEOUT_S = 15.0
_MAX_REASON_LINES = 3
_LABELLED = re.compile(r" *(\d{1,9}): (.*)", re.DOTALL)
_TASKS_ENDED = re.compile(r"srun: error: \S+: tasks? (\d{1,9})[\d,-]*: (.+)")
_EXITED = re.compile(r"Exited with exit code (\d{1,9})")
_SIGNALS = {signal.strsignal(number): int(number) for number in signal.valid_signals()}
# Options of srun that neither salloc nor sbatch has, and those that salloc alone lacks (all manuals, 22.05).
_STEP_OPTIONS = re.compile(
    "--(accel-bind|bcast|bcast-exclude|compress|cpu-bind|disable-status|epilog|exact|het-group|kill-on-bad-exit|mpi|"
    "msg-timeout|overlap|preserve-env|prolog|quit-on-interrupt|relative|resv-ports|send-libs|slurmd-debug|task-epilog|"
    "task-prolog|threads|unbuffered|whole)(=.*)?",
    re.DOTALL,
)
_NOT_FOR_SALLOC = re.compile("--(error|export|input|open-mode|output|propagate|wait)(=.*)?", re.DOTALL)
# Options of srun that would win over the hostfile, or keep from plink what ranks print; and what plink has instead.
# Slurm takes long ones cut short, and letters behind others that take no value.
_REFUSED = (
    # Slurm takes the number of nodes from the hostfile, and since 23.11 refuses --nodes beside it.
    (
        re.compile("-[EHlOQsuvX]*[wFNr].*|--(node[lfs]|rel|jobi)[a-z]*(=.*)?", re.DOTALL),
        "hosts and their order say where ranks run",
    ),
    (
        re.compile("-[EHlOQsuvX]*[oei].*|--(ou|er|in|pt|mu)[a-z-]*(=.*)?", re.DOTALL),
        "plink reads what ranks print, and --log-dir says where it is kept",
    ),
)
_EXCLUSIVE = re.compile("--exclus(i|ive?)?")
_WAIT = re.compile("-[HOQsv]*W.*|--wait?")
_ANY_ARRAY_TASK = "4294967294"  # NO_VAL: what scontrol has for the number of a task that does not run yet
# Waits until plink closes the pipe or has ended, and then cancels the allocation. The name is plink's own.
_RELEASE_SCRIPT = 'cat; exec scancel --quiet --name="$1"'


_SUBMIT_TIMEOUT_S = 60.0
_SQUEUE_TIMEOUT_S = 15.0
_END_TIMEOUT_S = 5.0
_AGENT_OPTIONS = (
    "--nodes=1",
    "--ntasks=1",
    "--overlap",
    "--unbuffered",
    "--mpi=none",
    "--cpu-bind=none",
    "--job-name=plink",
)


class Slurm:
    """See :class:`runners.launchers.launcher.Launcher`."""

    name = "slurm"
    rank_variables: tuple[str, ...] = ("SLURM_PROCID",)
    interface_variables: Mapping[str, str] = MappingProxyType({})
    waits_for_ranks = False

    def files(self, hosts: Hosts, job: Job) -> dict[str, str]:
        """Return the hostfile: one node a task."""
        check_step_options(job.launcher_args)
        missing = [name for name in ("srun", "salloc", "scancel") if shutil.which(name) is None]
        if missing:
            raise UsageError(
                f"--runner slurm: {missing[0]} is not installed here; run plink where jobs are submitted, or in a job"
            )
        return {_HOSTFILE: node_per_task(hosts, "--runner slurm")}

    def command(
        self, hosts: Hosts, job: Job, folder: Path, arguments: Sequence[str], forwarded: Sequence[str] = ()
    ) -> LaunchCommand:
        """Return one step. Own options are last: srun takes the last of two."""
        # An interactive shell of the allocation (`srun --pty bash`) is a step too, and waits for us.
        shares = _is_inside_job() and not any(_EXCLUSIVE.fullmatch(word) for word in job.launcher_args)
        share = {"SLURM_OVERLAP": "1"} if shares else {}
        own_options = [*_node_options(hosts), "--label", "--kill-on-bad-exit=1", f"--job-name={_name(folder)}"]
        # A job that was submitted with --export=NONE says so to its steps, too, which would not find python3.
        argv = ("srun", "--export=ALL", *job.launcher_args, *own_options, *arguments)
        return LaunchCommand(argv, _hostfile_variable(folder) | share)

    @contextlib.contextmanager
    def allocation(self, hosts: Hosts, job: Job, folder: Path, context: RunContext) -> Iterator[dict[str, str]]:
        """Use the allocation that this runs in, or request exactly these nodes."""
        if _is_inside_job():
            yield {}
            return
        name = _name(folder)
        with _released(name):
            argv = (
                "salloc",
                *allocation_options(job.launcher_args),
                *_node_options(hosts),
                "--no-shell",
                f"--job-name={name}",
            )
            output: list[str] = []
            with LauncherProcess(LaunchCommand(argv, _hostfile_variable(folder))) as process:
                for stream, line in process.lines(context.clock, None):
                    output.append(line)
                    context.observer.on_line(None, stream, line)
                code = process.end(_CONTROL_TIMEOUT_S)
            if code:
                errors = [line for line in output if "error:" in line]
                reason = "; ".join(errors or output[-_MAX_REASON_LINES:]) or f"exit code {code}"
                raise PlinkError(f"these nodes could not be allocated: {reason}; nothing was run")
            job_ids = job_numbers(_run_command("squeue", "--noheader", "--format=%A", f"--name={name}"))
            if not job_ids:
                raise PlinkError("the allocation of these nodes has ended; nothing was run")
            yield {"SLURM_JOB_ID": job_ids[0]}

    def parse_output_line(self, stream: str, line: str) -> Iterator[tuple[int | None, str, str]]:
        """Split by srun's labels, padded with blanks; each part of a line that slurmstepd cut (1,024 bytes) has one.

        >>> list(Slurm().parse_output_line("out", " 3: loss: 0.7"))
        [(3, 'out', 'loss: 0.7')]
        >>> list(Slurm().parse_output_line("err", "srun: job 7 queued and waiting for resources"))
        [(None, 'err', 'srun: job 7 queued and waiting for resources')]
        """
        labelled = _LABELLED.fullmatch(line)
        yield (None, stream, line) if labelled is None else (int(labelled[1]), stream, labelled[2])

    def first_failure(self, own_lines: Sequence[str]) -> tuple[int, int] | None:
        """Return the task whose end srun reported first; it ends the others because of it.

        >>> Slurm().first_failure(["srun: error: node-01: tasks 2-3: Exited with exit code 7",
        ...                        "srun: error: node-02: task 4: Terminated"])
        (2, 7)
        >>> Slurm().first_failure(["srun: error: node-02: task 4: Segmentation fault (core dumped)"])
        (4, 139)
        """
        for line in own_lines:
            ended = _TASKS_ENDED.fullmatch(line)
            if ended is None:
                continue
            exited = _EXITED.fullmatch(ended[2])
            if exited is not None:
                return int(ended[1]), int(exited[1])
            number = _SIGNALS.get(ended[2].removesuffix(" (core dumped)"))
            return int(ended[1]), 1 if number is None else 128 + number
        return None


def allocation_options(options: Sequence[str]) -> list[str]:
    """Return those of srun's options that salloc takes too; values follow ``=``."""
    return [word for word in options if not _STEP_OPTIONS.fullmatch(word) and not _NOT_FOR_SALLOC.fullmatch(word)]


def step_options(options: Sequence[str]) -> list[str]:
    """Return those options of a submission that are not sbatch's but those of the srun in it.

    :raises UsageError: for one that would place ranks otherwise.
    """
    words = [word for word in options if _STEP_OPTIONS.fullmatch(word)]
    check_step_options(words)
    return words


def check_step_options(options: Sequence[str]) -> None:
    """:raises UsageError: for an option of srun that would place ranks otherwise, or hide what they print."""
    for word in options:
        if reason := next((reason for refused, reason in _REFUSED if refused.fullmatch(word)), None):
            raise UsageError(f"--launcher-args {word}: {reason}; omit it")


def _is_inside_job() -> bool:
    return "SLURM_JOB_ID" in os.environ


def _name(folder: Path) -> str:
    """Return the name of this run's allocation and steps; the folder is named after the run."""
    return f"plink-{folder.name}"


def _node_options(hosts: Hosts) -> list[str]:
    """Return how many tasks; the number of nodes is the hostfile's."""
    tasks = sum(host.slots for host in hosts)
    return ["--distribution=arbitrary", f"--ntasks={tasks}"]


def _hostfile_variable(folder: Path) -> dict[str, str]:
    return {"SLURM_HOSTFILE": str(folder / _HOSTFILE)}


def _run_command(*argv: str) -> str:
    """Return what one of Slurm's commands prints; nothing when it fails."""
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        return run_to_end(argv, _CONTROL_TIMEOUT_S).stdout
    return ""


@contextlib.contextmanager
def _released(name: str) -> Iterator[None]:
    """Cancel the job of that name afterwards, also where this process is killed."""
    releaser = subprocess.Popen(
        ("sh", "-c", _RELEASE_SCRIPT, "sh", name),
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C is for plink
    )
    assert releaser.stdin is not None
    try:
        yield
    finally:
        releaser.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            releaser.wait(timeout=_CONTROL_TIMEOUT_S)


def job_numbers(text: str) -> list[str]:
    """Return the job numbers in their order; skips other lines (a warning, a greeting of a wrapper).

    >>> job_numbers("squeue: retry 5 of 10\\n 12\\n7 \\n")
    ['12', '7']
    """
    lines = (line.strip() for line in text.splitlines())
    return [line for line in lines if line.isascii() and line.isdigit() and len(line) < 19 and int(line)]


def batch_script(hosts: Hosts, options: Sequence[str], command: Sequence[str]) -> str:
    """Return the script.

    :param options: of sbatch, which takes the last of two; :func:`step_options` are left out. :param command: what it
        runs on the first node.

    :raises UsageError: for an option of several lines, or to wait, and for hosts whose names are no node names.
    """
    node_per_task(hosts, "--runner slurm")
    # For every node as many as for the one with most ranks: sbatch has no other way to say it in a script.
    tasks = max(host.slots for host in hosts)
    directives = [
        "--job-name=plink",
        *(word for word in options if not _STEP_OPTIONS.fullmatch(word)),
        f"--nodes={len(hosts)}",
        f"--ntasks={tasks * len(hosts)}",
        f"--ntasks-per-node={tasks}",
        f"--nodelist={','.join(hosts.names)}",
    ]
    for directive in directives:
        if "\n" in directive:
            raise UsageError(f"--launcher-args {directive!r}: an option in a batch script is one line")
        if _WAIT.fullmatch(directive):
            waiting = "`plink submit` does not wait for the job; `plink launch --runner slurm` does"
            raise UsageError(f"--launcher-args {directive}: {waiting}")
    lines = "".join(f"#SBATCH {shlex.quote(directive)}\n" for directive in directives)
    # Steps do not take this one from their job (srun's manual, 22.05).
    cpus = '[ -z "$SLURM_CPUS_PER_TASK" ] || export SRUN_CPUS_PER_TASK="$SLURM_CPUS_PER_TASK"\n'
    return f"#!/bin/sh\n{lines}{cpus}exec {shlex.join(command)}\n"


def batch_command(script: Path) -> tuple[str, ...]:
    """Return the command that submits a script and prints the job's number."""
    return "sbatch", "--parsable", str(script)


def submit_batch(script: Path) -> tuple[str, str]:
    """Submit it with sbatch; return the job's number, and the cluster that has it where sbatch says one (else "").

    :raises PlinkError: when Slurm has no job then.
    """
    try:
        env = {name: value for name, value in os.environ.items() if name != "SBATCH_WAIT"}
        done = run_to_end(batch_command(script), _SUBMIT_TIMEOUT_S, env=env)
    except OSError as error:
        raise UsageError(f"cannot start sbatch: {error.strerror}; run plink where jobs are submitted from") from None
    except subprocess.SubprocessError as error:
        raise PlinkError(f"sbatch was ended: {error}; check with `squeue` whether it has the job") from None
    for line in done.stdout.splitlines():
        number, _, cluster = line.strip().partition(";")
        if job_numbers(number):
            return number, cluster
    outcome = "Slurm rejected the job" if done.returncode else "sbatch submitted nothing"
    raise PlinkError(f"{outcome}: {'; '.join(done.stderr.splitlines()) or f'exit code {done.returncode}'}")


def output_file(job_id: str, cluster: str) -> str | None:
    """Return where a submitted job's output goes, as Slurm says it; ``*`` for the tasks of an array. None: unknown."""
    where = [f"--clusters={cluster}"] if cluster else []
    match = re.search(r"^\s*StdOut=(.+)$", _run_command("scontrol", *where, "show", "job", job_id), re.MULTILINE)
    return None if match is None else match[1].replace(_ANY_ARRAY_TASK, "*")


class StepConnector:
    """Connector by ``srun``, whose standard input and output are the connection.

    A host may be a node of any of the user's running jobs: an elastic job may have its reliable hosts from one of them
    and its transient ones from others.

    :raises UsageError: where Slurm is not installed.
    """

    def __init__(self) -> None:
        for name in ("srun", "squeue"):
            if shutil.which(name) is None:
                raise UsageError(
                    f"--runner slurm: {name} is not installed here; run plink where jobs are submitted from"
                )

    def open(self, host: Host) -> ChildConnection:
        """Start a step on the node of the host's name.

        :raises HostError: when none of the user's running jobs has that node.
        """
        argv = (
            "srun",
            f"--jobid={_job_of(host)}",
            f"--nodelist={host.name}",
            *_AGENT_OPTIONS,
            "python3",
            "-c",
            BOOTSTRAP,
        )
        # The job that plink itself may run in has other resources (memory, devices) than this one, and the agent does
        # not run below the user's SSH connection.
        excluded = ("SLURM_", "SRUN_", "SSH_CONNECTION")
        env = {key: value for key, value in os.environ.items() if not key.startswith(excluded)}
        slurm_conf = {key: os.environ[key] for key in ("SLURM_CONF",) if key in os.environ}
        return start(host, argv, _END_TIMEOUT_S, env | slurm_conf)


def _job_of(host: Host) -> str:
    """Return a running job that has the node: the one that this runs in, or else the latest."""
    argv = (
        "squeue",
        "--noheader",
        "--states=RUNNING",
        f"--user={os.getuid()}",
        f"--nodelist={host.name}",
        "--format=%A",
    )
    try:
        done = run_to_end(argv, _SQUEUE_TIMEOUT_S)
    except (OSError, subprocess.SubprocessError) as error:
        raise HostError(host.name, f"squeue: {error}") from None
    if done.returncode:
        raise HostError(host.name, done.stderr.strip().splitlines()[-1] if done.stderr.strip() else "squeue failed")
    job_ids = job_numbers(done.stdout)
    if not job_ids:
        raise HostError(host.name, "no running job of yours has this node; allocate it with salloc or sbatch")
    own = os.environ.get("SLURM_JOB_ID")
    return own if own in job_ids else max(job_ids, key=int)
