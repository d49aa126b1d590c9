"""Runners by name, and the connector to hosts."""

from collections.abc import Callable

from plink.errors import no_choice
from plink.model.hosts import Hosts
from plink.transport.fleet import Connector
from runners.child import LocalConnector
from runners.job.fleet_runner import FleetRunner, TorchrunRunner
from runners.job.runner import Runner
from runners.launchers.external_runner import ExternalLauncherRunner
from runners.launchers.slurm import Slurm

KUBERNETES = "kubernetes"  # for elastic jobs and manifests; it is no Runner

NAMES = ("ssh", "local", "torchrun", "mpirun", "mpich", "slurm")


def runner_named(name: str, connect: Callable[[], Connector]) -> Runner:
    """Return the runner of that name.

    :param connect: makes the connector to the hosts; called only where plink itself connects to them.
    :raises UsageError: for an unknown name; the message has the choices.
    """
    match name:
        case "ssh":
            return FleetRunner(name, connect())
        case "local":
            return FleetRunner(name, LocalConnector())
        case "torchrun":
            return TorchrunRunner(name, connect())
        case "mpirun" | "mpich":
            from runners.launchers import mpi
            from runners.ssh.connector import SshConnector

            connector = connect()
            assert isinstance(connector, SshConnector)
            return ExternalLauncherRunner(mpi.mpirun(connector) if name == "mpirun" else mpi.mpich(connector))
        case "slurm":
            connect()  # enters the lab where the hosts are a lab's
            return ExternalLauncherRunner(Slurm())
    raise no_choice("--runner", name, NAMES)


def connector_for(hosts: Hosts, accept_new_host_keys: bool) -> Connector:
    """Return a connector over SSH; for a lab's hosts from inside that lab, with its keys."""
    from runners.lab.lifecycle import enter

    state = enter(hosts)
    from runners.ssh.connector import SshConnector

    return SshConnector(accept_new_host_keys, identity=state.identity if state else None)
