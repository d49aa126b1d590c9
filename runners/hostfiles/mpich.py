"""MPICH's Hydra (checked: 4.0.2): a machinefile, ``host:ranks`` a line, filled in the order of its lines."""

import re

from plink.model.hosts import Hosts
from plink.model.order import RankOrder
from runners.hostfiles.format import Format, check_spelling

_NAME = re.compile(r"[^:]+")


def _machinefile(hosts: Hosts, order: RankOrder) -> str:
    check_spelling("mpich", hosts, _NAME, "Hydra reads what follows a ':' as a number of ranks: give it address=...")
    return "".join(f"{host.address}:{host.slots}\n" for host in hosts)


MACHINEFILE = Format("mpich", "MPICH (Hydra) machinefile", _machinefile, "mpiexec.hydra -f {file} -n {ranks} PROGRAM")
