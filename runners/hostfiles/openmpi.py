"""Open MPI (checked: 4.1.4). A hostfile is a set to its usual mappers; two files keep the order: one for the sequential
mapper, a line a rank, and the rankfile.

A rankfile binds: its ``slot=K`` is the core that the rank is bound to, whatever ``--bind-to`` says. The sequential
mapper binds nothing. Version 5 (checked: 5.0.11) takes ``--hostfile F --map-by seq``; its ``seq:FILE=F`` crashes.
"""

import ipaddress
import re

from plink.model.hosts import Host, Hosts
from plink.model.order import RankOrder
from runners.hostfiles.format import Format, check_distinct, check_spelling

_NAME = re.compile(r"[A-Za-z0-9.-]+")


def _node(host: Host) -> str:
    """What Open MPI knows the host by: it cuts names at their first dot."""
    try:
        return str(ipaddress.IPv4Address(host.address))
    except ValueError:
        return host.address.split(".")[0]


def _check(form: str, hosts: Hosts) -> None:
    check_spelling(
        form, hosts, _NAME, "Open MPI takes letters, digits, '.' and '-' only (no IPv6): give it address=..."
    )
    check_distinct(form, hosts, _node, "Open MPI would take them for one machine: give them address=... with IPs")


def _sequential(hosts: Hosts, order: RankOrder) -> str:
    _check("openmpi", hosts)
    return "".join(f"{host.address}\n" for host in hosts for _ in range(host.slots))


def _rankfile(hosts: Hosts, order: RankOrder) -> str:
    _check("openmpi-rankfile", hosts)
    places = [(host.address, core) for host in hosts for core in range(host.slots)]
    return "".join(f"rank {rank}={address} slot={core}\n" for rank, (address, core) in enumerate(places))


SEQUENTIAL = Format(
    "openmpi",
    "Open MPI hostfile for the sequential mapper",
    _sequential,
    "mpirun --hostfile {file} --mca rmaps seq -n {ranks} PROGRAM",
)
RANKFILE = Format(
    "openmpi-rankfile",
    "Open MPI rankfile, a core a rank",
    _rankfile,
    "mpirun --rankfile {file} -n {ranks} PROGRAM",
)
