"""An order as the files that launchers read (docs/launchers.md says what each launcher makes of its own).

Hosts stand in rank order and take their slots in one block, so no format has to spread a host's ranks.
"""

from plink.errors import UsageError
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
    """The format of that name.

    :raises UsageError: for one that does not exist, with those that do.
    """
    if name not in FORMATS:
        raise UsageError(f"--format {name}: there are {', '.join(FORMATS)}")
    return FORMATS[name]


def render(name: str, hosts: Hosts, order: RankOrder) -> str:
    """The text of one format; ``hosts`` stand in rank order.

    :raises UsageError: for a format that does not exist, and for an order or hosts that it cannot express.
    """
    return format_named(name).render(hosts, order)


def command(name: str, file: str, hosts: Hosts) -> str | None:
    """What to type with a file of that format, None where no launcher reads it."""
    template = format_named(name).command
    return template and template.format(file=file, ranks=sum(host.slots for host in hosts))
