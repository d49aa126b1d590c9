"""A script for Slurm's sbatch that launches by steps once the nodes are free."""

import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path

from plink.errors import PlinkError, UsageError
from plink.model.hosts import Hosts
from runners.hostfiles.slurm import a_node_a_task
from runners.launchers.slurm import of_allocations

_SUBMIT_S = 60.0


def batch_script(hosts: Hosts, options: Sequence[str], command: Sequence[str]) -> str:
    """The script; ``options`` are srun's, ``command`` is what it runs on the first node.

    :raises UsageError: for an option that cannot stand in a line, and for hosts that are no names of nodes.
    """
    a_node_a_task(hosts, "--runner slurm")
    asked = [
        "--job-name=plink",
        *of_allocations(options),
        f"--nodes={len(hosts)}",
        # Every node is asked for as much as the one with most ranks: sbatch has no other way to say it in a script.
        f"--ntasks-per-node={max(host.slots for host in hosts)}",
        f"--nodelist={','.join(hosts.names)}",
    ]
    for word in asked:
        if "\n" in word:
            raise UsageError(f"--launcher-args {word!r}: an option in a batch script is one line")
    lines = "".join(f"#SBATCH {shlex.quote(word)}\n" for word in asked)
    return f"#!/bin/sh\n{lines}exec {shlex.join(command)}\n"


def submit(script: Path) -> str:
    """Hand it to sbatch; the job's number.

    :raises PlinkError: when Slurm does not take it.
    """
    try:
        done = subprocess.run(
            ("sbatch", "--parsable", str(script)), stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=_SUBMIT_S,
        )  # fmt: skip
    except OSError as error:
        raise UsageError(f"cannot start sbatch: {error.strerror}; type it where jobs are submitted from") from None
    except subprocess.TimeoutExpired:
        raise PlinkError(
            f"sbatch did not answer within {_SUBMIT_S:.0f} s: `squeue` tells whether it has the job"
        ) from None
    if done.returncode:
        raise PlinkError(f"the job was not taken: {'; '.join(done.stderr.split(chr(10)))}")
    return done.stdout.strip().split(";")[0]
