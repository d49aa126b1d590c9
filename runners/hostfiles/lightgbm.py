"""LightGBM's distributed training (checked: 4.7.0): a machine list, ``address port`` a line; a process takes the rank
of the line that has one of its machine's addresses and the port it listens on.

It compares with the machine's IPv4 addresses and resolves nothing, and any line that holds one of the letters of
``rank=`` is taken for that setting: host names cannot stand in it.
"""

import ipaddress

from plink.errors import UsageError
from plink.model.hosts import Hosts
from plink.model.order import RankOrder
from runners.hostfiles.format import Format, check_distinct

PORT = 12400  # LightGBM's default; a host's second process listens on the next


def _machine_list(hosts: Hosts, order: RankOrder) -> str:
    for host in hosts:
        try:
            ipaddress.IPv4Address(host.address)
        except ValueError:
            raise UsageError(
                f"--format lightgbm: LightGBM's machine list takes IPv4 addresses, and {host.name} is known as "
                f"{host.address}: write `{host.name} address=IP` in the hosts file"
            ) from None
    check_distinct("lightgbm", hosts, lambda host: host.address, "their processes would listen on the same ports")
    if max(host.slots for host in hosts) > 65536 - PORT:
        raise UsageError(f"--format lightgbm: a port a process, and there are {65536 - PORT} from {PORT} on")
    return "".join(f"{host.address} {PORT + local}\n" for host in hosts for local in range(host.slots))


MACHINE_LIST = Format(
    "lightgbm",
    "LightGBM machine list",
    _machine_list,
    f"lightgbm config=train.conf machine_list_filename={{file}} num_machines={{ranks}} local_listen_port={PORT}"
    "   (for every line, on its host, with its port)",
)
