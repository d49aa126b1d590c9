"""Batch script for Slurm's sbatch, which launches once the nodes are free."""

import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path

from plink.errors import PlinkError, UsageError
from plink.model.hosts import Hosts
from plink.transport.command_output import run_to_end
from runners.hostfiles.slurm import node_per_task
from runners.launchers.slurm import allocation_options

_SUBMIT_TIMEOUT_S = 60.0


def batch_script(hosts: Hosts, options: Sequence[str], command: Sequence[str]) -> str:
    """Return the script.

    :param options: of srun. :param command: what it runs on the first node.

    :raises UsageError: for an option of several lines, and for hosts whose names are no node names.
    """
    node_per_task(hosts, "--runner slurm")
    directives = [
        "--job-name=plink",
        *allocation_options(options),
        f"--nodes={len(hosts)}",
        # For every node as many as for the one with most ranks: sbatch has no other way to say it in a script.
        f"--ntasks-per-node={max(host.slots for host in hosts)}",
        f"--nodelist={','.join(hosts.names)}",
    ]
    for directive in directives:
        if "\n" in directive:
            raise UsageError(f"--launcher-args {directive!r}: an option in a batch script is one line")
    lines = "".join(f"#SBATCH {shlex.quote(directive)}\n" for directive in directives)
    return f"#!/bin/sh\n{lines}exec {shlex.join(command)}\n"


def submit(script: Path) -> str:
    """Submit it with sbatch; return the job's number.

    :raises PlinkError: when Slurm rejects it.
    """
    try:
        done = run_to_end(("sbatch", "--parsable", str(script)), _SUBMIT_TIMEOUT_S)
    except OSError as error:
        raise UsageError(f"cannot start sbatch: {error.strerror}; run plink where jobs are submitted from") from None
    except subprocess.SubprocessError as error:
        raise PlinkError(f"sbatch was ended: {error}; check with `squeue` whether it has the job") from None
    if done.returncode:
        raise PlinkError(f"Slurm rejected the job: {'; '.join(done.stderr.split(chr(10)))}")
    return done.stdout.strip().split(";")[0]
