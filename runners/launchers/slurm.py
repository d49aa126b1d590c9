"""Slurm (checked: 22.05.8): steps of one allocation by srun, whose tasks follow the nodes in ``SLURM_HOSTFILE``.

Inside an allocation (``SLURM_JOB_ID`` is set) the steps are its own. Elsewhere salloc is asked for these very nodes,
and they are given back when the job has ended, or plink has, however it did.
"""

import contextlib
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from plink.errors import PlinkError, UsageError
from plink.model.hosts import Hosts
from runners.hostfiles.slurm import a_node_a_task
from runners.job.job import Job
from runners.job.runner import Command, Watch
from runners.launchers.process import Process
from runners.launchers.squeue import job_numbers

_HOSTFILE = "slurm-hostfile"
_CONTROL_S = 15.0
_LABELLED = re.compile(r" *(\d{1,9}): (.*)", re.DOTALL)
_TASKS_ENDED = re.compile(r"srun: error: \S+: tasks? (\d{1,9})[\d,-]*: (.+)")
_EXITED = re.compile(r"Exited with exit code (\d{1,9})")
_SIGNALS = {signal.strsignal(number): int(number) for number in signal.valid_signals()}
# What srun knows and salloc does not (both manuals, 22.05).
_OF_STEPS = re.compile(
    "--(accel-bind|bcast|bcast-exclude|compress|cpu-bind|disable-status|epilog|error|exact|export|het-group|input|"
    "kill-on-bad-exit|mpi|msg-timeout|open-mode|output|overlap|preserve-env|prolog|propagate|quit-on-interrupt|relative|"
    "resv-ports|send-libs|slurmd-debug|task-epilog|task-prolog|threads|unbuffered|wait)(=.*)?",
    re.DOTALL,
)
# Waits until plink closes the pipe or is gone, and then gives the nodes back. A name for it, and nothing of the user's.
_GIVE_BACK = 'cat; exec scancel --quiet --name="$1"'


class Slurm:
    """See :class:`runners.launchers.launcher.Launcher`."""

    name = "slurm"
    rank_variables: tuple[str, ...] = ("SLURM_PROCID",)
    interface_variables: Mapping[str, str] = MappingProxyType({})

    def files(self, hosts: Hosts, job: Job) -> dict[str, str]:
        """A node a task."""
        missing = [name for name in ("srun", "salloc", "scancel") if shutil.which(name) is None]
        if missing:
            raise UsageError(
                f"--runner slurm: there is no {missing[0]} here; type it where jobs are submitted from, or in a job"
            )
        return {_HOSTFILE: a_node_a_task(hosts, "--runner slurm")}

    def command(
        self, hosts: Hosts, job: Job, folder: Path, words: Sequence[str], forwarded: Sequence[str] = ()
    ) -> Command:
        """One step. Options of ours stand last: srun heeds the last of two. Variables go along unless it forbids."""
        # An interactive shell of the allocation (`srun --pty bash`) is a step too, and waits for us.
        share = ["--overlap"] if _allocated() else []
        ours = [*_places(hosts), "--label", "--kill-on-bad-exit=1", f"--job-name={_name(folder)}"]
        return Command(("srun", *share, *job.launcher_args, *ours, *words), _follows(folder))

    @contextlib.contextmanager
    def allocation(self, hosts: Hosts, job: Job, folder: Path, watch: Watch) -> Iterator[dict[str, str]]:
        """The allocation that this runs in, or one of exactly these nodes."""
        if _allocated():
            yield {}
            return
        name = _name(folder)
        with _given_back(name):
            argv = ("salloc", *of_allocations(job.launcher_args), *_places(hosts), "--no-shell", f"--job-name={name}")
            said: list[str] = []
            with Process(Command(argv, _follows(folder))) as process:
                for stream, line in process.lines(watch.clock, None):
                    said.append(line)
                    watch.sink(None, stream, line)
                code = process.end(_CONTROL_S)
            if code:
                why = "; ".join(line for line in said if "error:" in line) or f"exit code {code}"
                raise PlinkError(f"these nodes cannot be had: {why}; nothing was run")
            found = job_numbers(_asked("squeue", "--noheader", "--format=%A", f"--name={name}"))
            if not found:
                raise PlinkError("the allocation of these nodes is gone; nothing was run")
            yield {"SLURM_JOB_ID": found[0]}

    def told_apart(self, stream: str, line: str) -> Iterator[tuple[int | None, str, str]]:
        """By srun's labels, which it pads with blanks; lines that slurmstepd cut (at 1,024 bytes) have one a piece.

        >>> list(Slurm().told_apart("out", " 3: loss: 0.7"))
        [(3, 'out', 'loss: 0.7')]
        >>> list(Slurm().told_apart("err", "srun: job 7 queued and waiting for resources"))
        [(None, 'err', 'srun: job 7 queued and waiting for resources')]
        """
        labelled = _LABELLED.fullmatch(line)
        yield (None, stream, line) if labelled is None else (int(labelled[1]), stream, labelled[2])

    def first_failure(self, own_lines: Sequence[str]) -> tuple[int, int] | None:
        """The tasks whose end srun told of first; the others it ends because of them.

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


def of_allocations(options: Sequence[str]) -> list[str]:
    """Those of srun's options that an allocation can be asked for with; values stand after ``=``."""
    return [word for word in options if not _OF_STEPS.fullmatch(word)]


def _allocated() -> bool:
    return "SLURM_JOB_ID" in os.environ


def _name(folder: Path) -> str:
    """What this run's allocation and steps are called; the folder is named by the run."""
    return f"plink-{folder.name}"


def _places(hosts: Hosts) -> list[str]:
    tasks = sum(host.slots for host in hosts)
    return ["--distribution=arbitrary", f"--nodes={len(hosts)}", f"--ntasks={tasks}"]


def _follows(folder: Path) -> dict[str, str]:
    return {"SLURM_HOSTFILE": str(folder / _HOSTFILE)}


def _asked(*words: str) -> str:
    """What one of Slurm's commands prints; nothing when it fails."""
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        return subprocess.run(
            words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_CONTROL_S
        ).stdout
    return ""


@contextlib.contextmanager
def _given_back(name: str) -> Iterator[None]:
    """Whatever becomes of this process, a job of that name is cancelled afterwards."""
    guard = subprocess.Popen(
        ("sh", "-c", _GIVE_BACK, "sh", name),
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C is for plink
    )
    assert guard.stdin is not None
    try:
        yield
    finally:
        guard.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            guard.wait(timeout=_CONTROL_S)
