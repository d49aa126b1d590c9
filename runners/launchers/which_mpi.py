"""Whose ``mpirun`` this is: they share names and no options."""

import re
import shutil
import subprocess

from plink.errors import UsageError
from runners.launchers.launcher import Launcher
from runners.launchers.mpich import Mpich
from runners.launchers.openmpi import OpenMpi
from runners.ssh.connector import SshConnector

_ANSWER_S = 20.0
_OPEN_MPI = re.compile(r"Open(?: |-)?MPI\)? v?(\d+)\.", re.IGNORECASE)


def mpirun(connector: SshConnector) -> Launcher:
    """What ``mpirun`` stands for here, Open MPI or MPICH.

    :raises UsageError: when it is neither, or not there.
    """
    if shutil.which("mpirun") is None:
        raise UsageError("--runner mpirun: there is no mpirun here; install Open MPI (or MPICH) on this and every host")
    said = _version("mpirun")
    if found := _OPEN_MPI.search(said):
        return OpenMpi(connector, int(found[1]))
    if "HYDRA" in said:
        return Mpich(connector, "mpirun")
    first = (said.strip().splitlines() or ["nothing"])[0]
    raise UsageError(f"--runner mpirun: `mpirun --version` says {first!r}; plink knows Open MPI and MPICH (Hydra)")


def mpich(connector: SshConnector) -> Launcher:
    """MPICH's Hydra, also where ``mpirun`` is somebody else's.

    :raises UsageError: when it is not there.
    """
    for program in ("mpiexec.hydra", "mpiexec", "mpirun"):
        if shutil.which(program) is not None and "HYDRA" in _version(program):
            return Mpich(connector, program)
    raise UsageError("--runner mpich: there is no mpiexec.hydra here; install MPICH on this and every host")


def _version(program: str) -> str:
    try:
        done = subprocess.run(
            [program, "--version"], stdin=subprocess.DEVNULL, capture_output=True, timeout=_ANSWER_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UsageError(f"`{program} --version` does not answer: {error}") from None
    return (done.stdout + done.stderr).decode(errors="replace")
