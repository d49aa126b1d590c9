"""Horovod (its assignment of ranks checked: 0.28.1): the value of ``-H``, ranks in the order of the list.

With ``--mpi`` it hands the list to mpirun, which has ideas of its own; ``--gloo`` keeps it.
"""

import re

from plink.model.hosts import Hosts
from plink.model.order import RankOrder
from runners.hostfiles.format import Format, check_distinct, check_spelling

_NAME = re.compile(r"[\w.-]+", re.ASCII)


def _hosts_option(hosts: Hosts, order: RankOrder) -> str:
    check_spelling("horovod", hosts, _NAME, "Horovod takes names and IPv4 addresses only: give it address=...")
    check_distinct("horovod", hosts, lambda host: host.address, "Horovod counts the ranks of a host by its name")
    return ",".join(f"{host.address}:{host.slots}" for host in hosts) + "\n"


HOSTS_OPTION = Format(
    "horovod", "the value of horovodrun's -H", _hosts_option, 'horovodrun --gloo -np {ranks} -H "$(cat {file})" PROGRAM'
)
