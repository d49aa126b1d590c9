"""Reach hosts that Slurm has given to this user (checked: 22.05.8): each agent is a step of its own, beside others.

A host may be a node of any of the user's running jobs, so that an elastic job has its reliable hosts from one of them
and its transient ones from others, which come and go.
"""

import os
import shutil
import subprocess

from plink.errors import HostError, UsageError
from plink.model.hosts import Host
from plink.remote.program import BOOTSTRAP
from runners.child import ChildConnection, start
from runners.launchers.squeue import job_numbers

_ASK_S = 15.0
_LET_S = 5.0
_STEP = ("--nodes=1", "--ntasks=1", "--overlap", "--unbuffered", "--mpi=none", "--cpu-bind=none", "--job-name=plink")


class StepConnector:
    """By ``srun``, whose standard input and output are the line.

    :raises UsageError: where there is no Slurm.
    """

    def __init__(self) -> None:
        for name in ("srun", "squeue"):
            if shutil.which(name) is None:
                raise UsageError(f"--runner slurm: there is no {name} here; type it where jobs are submitted from")

    def open(self, host: Host) -> ChildConnection:
        """A step on the node of the host's name.

        :raises HostError: when none of the user's running jobs has that node.
        """
        words = ("srun", f"--jobid={_job_with(host)}", f"--nodelist={host.name}", *_STEP, "python3", "-c", BOOTSTRAP)
        # What the job that plink itself may run in was given (memory, devices) is not what this one has; nor did the
        # agent come by the connection that the user did.
        others = ("SLURM_", "SRUN_", "SSH_CONNECTION")
        ours = {key: value for key, value in os.environ.items() if not key.startswith(others)}
        kept = {key: os.environ[key] for key in ("SLURM_CONF",) if key in os.environ}
        return start(host, words, _LET_S, ours | kept)


def _job_with(host: Host) -> str:
    """The number of a running job that has the node: the one that this runs in, or else the latest."""
    words = ("squeue", "--noheader", "--states=RUNNING", f"--user={os.getuid()}", f"--nodelist={host.name}",
             "--format=%A")  # fmt: skip
    try:
        done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_ASK_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise HostError(host.name, f"squeue: {error}") from None
    if done.returncode:
        raise HostError(host.name, done.stderr.strip().splitlines()[-1] if done.stderr.strip() else "squeue failed")
    found = job_numbers(done.stdout)
    if not found:
        raise HostError(host.name, "no running job of yours has this node; ask for it with salloc or sbatch")
    own = os.environ.get("SLURM_JOB_ID")
    return own if own in found else max(found, key=int)
