"""Runners by name, and the connector to hosts."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from plink.errors import no_choice
from plink.model.hosts import Hosts
from plink.transport.fleet import Connector
from runners.child import LocalConnector
from runners.job.fleet_runner import FleetRunner, TorchrunRunner
from runners.job.runner import Runner
from runners.launchers.external_runner import ExternalLauncherRunner
from runners.launchers.slurm import Slurm

if TYPE_CHECKING:
    from runners.ssh.connector import SshConnector

KUBERNETES = "kubernetes"  # for elastic jobs and manifests; it is no Runner


def _ssh(connect: Callable[[], Connector]) -> Runner:
    return FleetRunner("ssh", connect())


def _local(connect: Callable[[], Connector]) -> Runner:
    return FleetRunner("local", LocalConnector())


def _torchrun(connect: Callable[[], Connector]) -> Runner:
    return TorchrunRunner("torchrun", connect())


def _mpirun(connect: Callable[[], Connector]) -> Runner:
    from runners.launchers.mpi import mpirun

    return ExternalLauncherRunner(mpirun(_over_ssh(connect)))


def _mpich(connect: Callable[[], Connector]) -> Runner:
    from runners.launchers.mpi import mpich

    return ExternalLauncherRunner(mpich(_over_ssh(connect)))


def _over_ssh(connect: Callable[[], Connector]) -> "SshConnector":
    from runners.ssh.connector import SshConnector

    connector = connect()
    assert isinstance(connector, SshConnector)
    return connector


def _slurm(connect: Callable[[], Connector]) -> Runner:
    connect()  # enters the lab where the hosts are a lab's
    return ExternalLauncherRunner(Slurm())


_RUNNERS: dict[str, Callable[[Callable[[], Connector]], Runner]] = {
    "ssh": _ssh,
    "local": _local,
    "torchrun": _torchrun,
    "mpirun": _mpirun,
    "mpich": _mpich,
    "slurm": _slurm,
}
NAMES = tuple(_RUNNERS)


def runner_named(name: str, connect: Callable[[], Connector]) -> Runner:
    """Return the runner of that name.

    :param connect: makes the connector to the hosts; called only where plink itself connects to them.
    :raises UsageError: for an unknown name; the message has the choices.
    """
    if name not in NAMES:
        raise no_choice("--runner", name, NAMES)
    return _RUNNERS[name](connect)


def connector_for(hosts: Hosts, accept_new_host_keys: bool) -> Connector:
    """Return a connector over SSH; for a lab's hosts from inside that lab, with its keys."""
    from runners.lab.lifecycle import enter

    state = enter(hosts)
    from runners.ssh.connector import SshConnector

    return SshConnector(accept_new_host_keys, identity=state.identity if state else None)
