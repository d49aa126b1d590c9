"""``plink launch``."""

import typer

from plink.features.launch.request import Arguments, JobRequest, Program
from plink.features.launch.session import start
from plink.features.launch.setup import new_job
from plink.terminal.options import takes


@takes(JobRequest)
def launch(options: JobRequest, program: Program, args: Arguments = None) -> None:
    """Run a program as the ranks of a job, in plink's order, and verify the placement of every rank first.

    Each rank gets RANK, LOCAL_RANK, WORLD_SIZE, LOCAL_WORLD_SIZE, GROUP_RANK,
    MASTER_ADDR and MASTER_PORT as under torchrun, and GLOO_SOCKET_IFNAME and
    NCCL_SOCKET_IFNAME. The first rank that fails terminates the others. The
    job's record and output are kept in .plink/runs (`plink runs`).

    Example: plink launch --hosts hosts.txt train.py --epochs 3
    """
    if code := start(new_job(program, args or [], options, options.runner or "ssh")):
        raise typer.Exit(code)
