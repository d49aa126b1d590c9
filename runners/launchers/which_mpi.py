"""Detection of the MPI that ``mpirun`` belongs to: they share names and no options."""

import re
import shutil
import subprocess

from plink.errors import UsageError
from plink.transport.command_output import run_to_end
from runners.launchers.launcher import Launcher
from runners.launchers.mpich import Mpich
from runners.launchers.openmpi import OpenMpi
from runners.ssh.connector import SshConnector

_VERSION_TIMEOUT_S = 20.0
_OPEN_MPI = re.compile(r"Open(?: |-)?MPI\)? v?(\d+)\.", re.IGNORECASE)


def mpirun(connector: SshConnector) -> Launcher:
    """Return the launcher that ``mpirun`` is here, Open MPI or MPICH.

    :raises UsageError: when it is neither, or not installed.
    """
    if shutil.which("mpirun") is None:
        raise UsageError(
            "--runner mpirun: mpirun is not installed here; install Open MPI (or MPICH) on this and every host"
        )
    version = _version("mpirun")
    if match := _OPEN_MPI.search(version):
        return OpenMpi(connector, int(match[1]))
    if "HYDRA" in version:
        return Mpich(connector, "mpirun")
    first = (version.strip().splitlines() or ["nothing"])[0]
    raise UsageError(f"--runner mpirun: `mpirun --version` prints {first!r}; plink supports Open MPI and MPICH (Hydra)")


def mpich(connector: SshConnector) -> Launcher:
    """Return the launcher of MPICH's Hydra, also where ``mpirun`` is another one.

    :raises UsageError: when it is not installed.
    """
    for program in ("mpiexec.hydra", "mpiexec", "mpirun"):
        if shutil.which(program) is not None and "HYDRA" in _version(program):
            return Mpich(connector, program)
    raise UsageError("--runner mpich: mpiexec.hydra is not installed here; install MPICH on this and every host")


def _version(program: str) -> str:
    try:
        done = run_to_end([program, "--version"], _VERSION_TIMEOUT_S)
    except (OSError, subprocess.SubprocessError) as error:
        raise UsageError(f"`{program} --version` does not answer: {error}") from None
    return done.stdout + done.stderr
