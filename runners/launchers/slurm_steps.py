"""Connector to hosts that Slurm has allocated to this user (checked: 22.05.8): each agent is a step of its own.

A host may be a node of any of the user's running jobs: an elastic job may have its reliable hosts from one of them and
its transient ones from others.
"""

import os
import shutil
import subprocess

from plink.errors import HostError, UsageError
from plink.model.hosts import Host
from plink.transport.command_output import run_to_end
from plink.transport.program import BOOTSTRAP
from runners.child import ChildConnection, start
from runners.launchers.slurm import job_numbers

_SQUEUE_TIMEOUT_S = 15.0
_END_TIMEOUT_S = 5.0
_STEP_OPTIONS = (
    "--nodes=1",
    "--ntasks=1",
    "--overlap",
    "--unbuffered",
    "--mpi=none",
    "--cpu-bind=none",
    "--job-name=plink",
)


class StepConnector:
    """Connector by ``srun``, whose standard input and output are the connection.

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
            *_STEP_OPTIONS,
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
    argv = ("squeue", "--noheader", "--states=RUNNING", f"--user={os.getuid()}", f"--nodelist={host.name}",
             "--format=%A")  # fmt: skip
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
