"""Rank orders as the files that launchers read (docs/launchers.md describes each).

Hosts are in rank order, and each host's ranks are one block, so no format has to spread them.
"""

from plink.errors import no_choice
from plink.model.hosts import Hosts
from plink.model.order import RankOrder
from runners.hostfiles import deepspeed, horovod, kubernetes, lightgbm, mpich, openmpi, plain, slurm, torchrun
from runners.hostfiles.format import Format

FORMATS: dict[str, Format] = {
    form.name: form
    for form in (
        plain.ORDER,
        plain.HOSTS,
        openmpi.SEQUENTIAL,
        openmpi.RANKFILE,
        mpich.MACHINEFILE,
        slurm.HOSTFILE,
        torchrun.COMMANDS,
        torchrun.ENVIRONMENTS,
        deepspeed.HOSTFILE,
        horovod.HOSTS_OPTION,
        lightgbm.MACHINE_LIST,
        kubernetes.POD_INDEX_MAP,
    )
}


def format_named(name: str) -> Format:
    """Return the format of that name.

    :raises UsageError: for an unknown name; the message has the choices.
    """
    if name not in FORMATS:
        raise no_choice("--format", name, FORMATS)
    return FORMATS[name]


def render(name: str, hosts: Hosts, order: RankOrder) -> str:
    """Return the text of one format; ``hosts`` are in rank order.

    :raises UsageError: for a format that does not exist, and for an order or hosts that it cannot express.
    """
    return format_named(name).render(hosts, order)


def command(name: str, file: str, hosts: Hosts) -> str | None:
    """Return the command line for a file of that format, None where no launcher reads it."""
    template = format_named(name).command
    return template and template.format(file=file, ranks=sum(host.slots for host in hosts))
