"""torchrun (checked: PyTorch 2.13): its c10d rendezvous sorts hosts by address and loses the order, the static one
takes the node rank that it is given. One command a host; or, to do without torchrun, the variables it would set, a line
a rank.
"""

from plink.model.hosts import Hosts
from plink.model.order import RankOrder
from runners.hostfiles.format import Format

PORT = 29500  # torchrun's default


def _commands(hosts: Hosts, order: RankOrder) -> str:
    master = hosts.members[0].address
    return "".join(
        f"torchrun --rdzv-backend=static --nnodes={len(hosts)} --node-rank={node_rank} --nproc-per-node={host.slots} "
        f'--master-addr={master} --master-port={PORT} "$@"  # {host.name}\n'
        for node_rank, host in enumerate(hosts)
    )


def _environments(hosts: Hosts, order: RankOrder) -> str:
    master, ranks = hosts.members[0].address, sum(host.slots for host in hosts)
    assignments = [
        (node_rank, host, local_rank) for node_rank, host in enumerate(hosts) for local_rank in range(host.slots)
    ]
    return "".join(
        f"RANK={rank} WORLD_SIZE={ranks} LOCAL_RANK={local_rank} LOCAL_WORLD_SIZE={host.slots} GROUP_RANK={node_rank} "
        f"MASTER_ADDR={master} MASTER_PORT={PORT}  # {host.name}\n"
        for rank, (node_rank, host, local_rank) in enumerate(assignments)
    )


COMMANDS = Format(
    "torchrun",
    "torchrun with static rendezvous, a command a host",
    _commands,
    "grep ' # HOST$' {file} | sh -s -- PROGRAM   (on every host, with its own name)",
)
ENVIRONMENTS = Format(
    "torchrun-env",
    "the variables torchrun sets, a line a rank",
    _environments,
    "env $(grep '^RANK=R ' {file} | cut -d'#' -f1) python PROGRAM   (for every rank R, on its host)",
)
