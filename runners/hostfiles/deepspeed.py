"""DeepSpeed (checked: 0.19.8, its launcher pdsh): ``host slots=N`` a line, ranks in the order of the lines."""

from plink.model.hosts import Hosts
from plink.model.order import RankOrder
from runners.hostfiles.format import Format, check_distinct


def _hostfile(hosts: Hosts, order: RankOrder) -> str:
    check_distinct("deepspeed", hosts, lambda host: host.address, "DeepSpeed refuses a host that is listed twice")
    return "".join(f"{host.address} slots={host.slots}\n" for host in hosts)


HOSTFILE = Format("deepspeed", "DeepSpeed hostfile", _hostfile, "deepspeed --hostfile {file} PROGRAM")
