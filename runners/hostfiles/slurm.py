"""Slurm (checked: 22.05.8): ``SLURM_HOSTFILE``, a node a task, which srun follows with the distribution *arbitrary*.

Slurm knows nodes by their NodeName, so names are written and not addresses.
"""

import ipaddress

from plink.errors import UsageError
from plink.model.hosts import Hosts
from runners.hostfiles.format import Format


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def node_per_task(hosts: Hosts, option: str) -> str:
    """Return node names, one a line, a host's slots in a block.

    :param option: of plink, for the error. :raises UsageError: for a host whose name is an address.
    """
    for host in hosts:
        if _is_address(host.name):
            raise UsageError(
                f"{option}: {host.name} is an address, and Slurm takes node names: write `NODENAME "
                f"address={host.name}` in the hosts file"
            )
    return "".join(f"{host.name}\n" for host in hosts for _ in range(host.slots))


HOSTFILE = Format(
    "slurm",
    "SLURM_HOSTFILE, a node a task",
    lambda hosts, order: node_per_task(hosts, "--format slurm"),
    "SLURM_HOSTFILE={file} srun --distribution=arbitrary -n {ranks} PROGRAM",
)
