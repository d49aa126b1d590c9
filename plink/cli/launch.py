"""``plink launch``."""

import typer

from plink.cli.job_options import AGILEML, Arguments, JobOptions, Program, takes


@takes(
    "hosts_file", "order", "algo", "runner", "slots", "launcher_args", "backend", "autotune", "env", "python",
    "workdir", "sync", "interface", "timeout", "settings", "accept_new_host_keys", "log_dir", "tail", "dry_run",
    "as_json",
)  # fmt: skip
def launch(program: Program, options: JobOptions, args: Arguments = None) -> None:
    """Run a program as the ranks of a job, in plink's order, and prove that every rank is where it should be.

    Each rank gets RANK, LOCAL_RANK, WORLD_SIZE, LOCAL_WORLD_SIZE, GROUP_RANK,
    MASTER_ADDR and MASTER_PORT as under torchrun, and GLOO_SOCKET_IFNAME and
    NCCL_SOCKET_IFNAME. The first rank that fails ends the others. What was
    run, the proof and the output stay in .plink/runs (`plink runs`).

    Example: plink launch --hosts hosts.txt train.py --epochs 3
    """
    if options.backend == AGILEML:
        from plink.cli.elastic.job import launch_with_defaults

        code = launch_with_defaults(program, args or [], options)
    else:
        from plink.cli.job_setup import new_job
        from plink.cli.launching import start

        code = start(new_job(program, args or [], options, options.runner or "ssh"))
    if code:
        raise typer.Exit(code)
