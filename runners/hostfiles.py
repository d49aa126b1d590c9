"""Rank orders as the files that launchers read (docs/launchers.md describes each).

Hosts are in rank order, and each host's ranks are one block, so no format has to spread them. Checked with DeepSpeed
0.19.8 (pdsh), Horovod 0.28.1 (``--gloo``: with ``--mpi`` it hands the list to mpirun, which has ideas of its own),
LightGBM 4.7.0, MPICH's Hydra 4.0.2, Open MPI 4.1.4 and 5.0.11, PyTorch 2.13 and Slurm 22.05.8.
"""

import ipaddress
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from plink.errors import UsageError, no_choice
from plink.model.hosts import Host, Hosts
from plink.model.order import RankOrder
from plink.model.storage import render_document

_TORCHRUN_PORT = 29500  # torchrun's default
_LIGHTGBM_PORT = 12400  # LightGBM's default; a host's second process listens on the next
_NODE = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")  # RFC 1123 subdomain
_MAX_NODE_CHARS = 253


@dataclass(frozen=True)
class Format:
    """A file format of rank orders.

    :param render: gets the hosts in rank order; raises a UsageError where the launcher could not keep it.
    :param command: the command line for the file, with ``{file}``, ``{ranks}`` (their number) and ``{names}`` (an
        option that Open MPI needs for these hosts, or nothing) to be filled in; None where no launcher reads it.
    """

    name: str
    description: str
    render: Callable[[Hosts, RankOrder], str]
    command: str | None = None


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
    names = "".join(f"{word} " for word in openmpi_name_options(hosts))
    return template and template.format(file=file, ranks=sum(host.slots for host in hosts), names=names)


def check_spelling(option: str, hosts: Hosts, allowed: str, takes: str) -> None:
    """Check that the launcher can read every host's address.

    :param option: of plink, for the error.
    :raises UsageError: naming the first host whose address does not match ``allowed``; ``takes`` says what would.
    """
    for host in hosts:
        if not re.fullmatch(allowed, host.address, re.ASCII):
            raise UsageError(f"{option}: host {host.name} has the address {host.address}, but {takes}")


def check_distinct(option: str, hosts: Hosts, identity_of: Callable[[Host], str], consequence: str) -> None:
    """Check that no two hosts are the same to the launcher.

    :raises UsageError: naming the first two that do; ``consequence`` says what the launcher makes of it.
    """
    first: dict[str, Host] = {}
    for host in hosts:
        text = identity_of(host)
        if text in first:
            raise UsageError(f"{option}: hosts {first[text].name} and {host.name} are both {text}, and {consequence}")
        first[text] = host


def _address(host: Host) -> str:
    return host.address


def _ranks(hosts: Hosts) -> Iterator[tuple[int, Host, int]]:
    """Yield (index of the host, host, local rank) of each rank."""
    for index, host in enumerate(hosts):
        for local_rank in range(host.slots):
            yield index, host, local_rank


def _lines(hosts: Hosts, order: RankOrder) -> str:
    return "".join(f"{host.name}{f' slots={host.slots}' if host.slots > 1 else ''}\n" for host in hosts)


def _openmpi_name(host: Host) -> str:
    """What Open MPI knows the host by: it cuts names at their first dot, and version 5 mixes up those that it keeps."""
    return host.address if _is_address(host.address) else host.address.split(".")[0]


def openmpi_name_options(hosts: Hosts) -> tuple[str, ...]:
    """Return mpirun's options for hosts with names of several labels: version 4 would pass only the first to ssh."""
    is_cut = any(_openmpi_name(host) != host.address for host in hosts)
    return ("--mca", "orte_keep_fqdn_hostnames", "1") if is_cut else ()


def _check_openmpi(option: str, hosts: Hosts) -> None:
    takes = "Open MPI takes letters, digits, '.' and '-' only (no IPv6): give it address=..."
    check_spelling(option, hosts, r"[A-Za-z0-9.-]+", takes)
    consequence = "Open MPI would take them for one machine: give them address=... with IPs"
    check_distinct(option, hosts, _openmpi_name, consequence)


def openmpi_hostfile(hosts: Hosts, option: str) -> str:
    """Return a hostfile for Open MPI's sequential mapper: a line a rank. To its usual mappers a hostfile is a set.

    :param option: of plink, for the error. :raises UsageError: for hosts that Open MPI cannot name or tell apart.
    """
    _check_openmpi(option, hosts)
    return "".join(f"{host.address}\n" for _, host, _ in _ranks(hosts))


def _openmpi_rankfile(hosts: Hosts, order: RankOrder) -> str:
    """A rankfile binds: its ``slot=K`` is the core that the rank is bound to, whatever ``--bind-to`` says."""
    _check_openmpi("--format openmpi-rankfile", hosts)
    ranks = enumerate(_ranks(hosts))
    return "".join(f"rank {rank}={host.address} slot={core}\n" for rank, (_, host, core) in ranks)


def hydra_machinefile(hosts: Hosts, option: str) -> str:
    """Return a machinefile of MPICH's Hydra, ``host:ranks`` a line, filled in the order of its lines.

    :param option: of plink, for the error. :raises UsageError: for hosts that Hydra cannot name or tell apart.
    """
    takes = "Hydra reads what follows a ':' as a number of ranks: give it address=..."
    check_spelling(option, hosts, r"[^:]+", takes)
    check_distinct(option, hosts, _address, "Hydra would take them for one machine")
    return "".join(f"{host.address}:{host.slots}\n" for host in hosts)


def check_slurm_names(hosts: Hosts, option: str) -> None:
    """Check that hosts have names that Slurm's nodes can have: it knows them by their NodeName.

    :param option: of plink, for the error. :raises UsageError: for a host whose name is an address.
    """
    for host in hosts:
        if _is_address(host.name):
            raise UsageError(
                f"{option}: {host.name} is an address, and Slurm takes node names: write `NODENAME "
                f"address={host.name}` in the hosts file"
            )


def node_per_task(hosts: Hosts, option: str) -> str:
    """Return Slurm's node names, one a line, a host's slots in a block.

    :raises UsageError: as :func:`check_slurm_names`.
    """
    check_slurm_names(hosts, option)
    return "".join(f"{host.name}\n" for _, host, _ in _ranks(hosts))


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _torchrun_commands(hosts: Hosts, order: RankOrder) -> str:
    """torchrun's c10d rendezvous sorts hosts by address; the static one takes the node rank that it is given."""
    master = hosts.members[0].address
    return "".join(
        f"torchrun --rdzv-backend=static --nnodes={len(hosts)} --node-rank={node_rank} --nproc-per-node={host.slots} "
        f'--master-addr={master} --master-port={_TORCHRUN_PORT} "$@"  # {host.name}\n'
        for node_rank, host in enumerate(hosts)
    )


def _torchrun_environments(hosts: Hosts, order: RankOrder) -> str:
    master, count = hosts.members[0].address, sum(host.slots for host in hosts)
    return "".join(
        f"RANK={rank} WORLD_SIZE={count} LOCAL_RANK={local_rank} LOCAL_WORLD_SIZE={host.slots} GROUP_RANK={node_rank} "
        f"MASTER_ADDR={master} MASTER_PORT={_TORCHRUN_PORT}  # {host.name}\n"
        for rank, (node_rank, host, local_rank) in enumerate(_ranks(hosts))
    )


def _deepspeed_hostfile(hosts: Hosts, order: RankOrder) -> str:
    check_distinct("--format deepspeed", hosts, _address, "DeepSpeed refuses a host that is listed twice")
    return "".join(f"{host.address} slots={host.slots}\n" for host in hosts)


def _horovod_option(hosts: Hosts, order: RankOrder) -> str:
    option, takes = "--format horovod", "Horovod takes names and IPv4 addresses only: give it address=..."
    check_spelling(option, hosts, r"[\w.-]+", takes)
    check_distinct(option, hosts, _address, "Horovod counts the ranks of a host by its name")
    return ",".join(f"{host.address}:{host.slots}" for host in hosts) + "\n"


def _lightgbm_machine_list(hosts: Hosts, order: RankOrder) -> str:
    """A process takes the rank of the line that has one of its machine's addresses and the port it listens on.

    LightGBM compares with the machine's IPv4 addresses and resolves nothing, and any line that holds one of the letters
    of ``rank=`` is taken for that setting: host names cannot stand in it.
    """
    for host in hosts:
        try:
            ipaddress.IPv4Address(host.address)
        except ValueError:
            raise UsageError(
                f"--format lightgbm: LightGBM's machine list takes IPv4 addresses, and {host.name} is known as "
                f"{host.address}: write `{host.name} address=IP` in the hosts file"
            ) from None
    check_distinct("--format lightgbm", hosts, _address, "their processes would listen on the same ports")
    limit = 65536 - _LIGHTGBM_PORT
    if max(host.slots for host in hosts) > limit:
        raise UsageError(f"--format lightgbm: a port a process, and there are {limit} from {_LIGHTGBM_PORT} on")
    return "".join(f"{host.address} {_LIGHTGBM_PORT + local}\n" for _, host, local in _ranks(hosts))


def _pod_index_map(hosts: Hosts, order: RankOrder) -> str:
    """Which node the pod of each index belongs on (unverified), a pod a rank.

    An Indexed Job numbers its pods and lets the scheduler put them anywhere, so the map has to be applied: pods that
    wait behind a scheduling gate are given their node and released (docs/launchers.md; Kueue's ungater does the same).
    """
    check_node_names(hosts, "--format kubernetes")
    return "".join(f"{index} {host.name}\n" for index, (_, host, _) in enumerate(_ranks(hosts)))


def check_node_names(hosts: Hosts, option: str) -> None:
    """Check that hosts have names that Kubernetes' nodes can have.

    :param option: or command of plink, for the error. :raises UsageError: for a host that has none.
    """
    for host in hosts:
        if not _NODE.fullmatch(host.name) or len(host.name) > _MAX_NODE_CHARS:
            raise UsageError(
                f"{option}: {host.name} cannot be a node's name (lower-case letters, digits, '.', '-'): "
                f"write `NODE address={host.address}` in the hosts file"
            )


FORMATS: dict[str, Format] = {
    form.name: form
    for form in (
        Format(
            "order",
            "the order as JSON (plink.order/1)",
            lambda hosts, order: render_document(order.to_json()),
            "plink launch --order {file} PROGRAM",
        ),
        Format("hosts", "host names, one a line, and slots", _lines),
        Format(
            "openmpi",
            "Open MPI hostfile for the sequential mapper",
            lambda hosts, order: openmpi_hostfile(hosts, "--format openmpi"),
            "mpirun --hostfile {file} --map-by seq {names}-n {ranks} PROGRAM",
        ),
        Format(
            "openmpi-rankfile",
            "Open MPI rankfile, a core a rank",
            _openmpi_rankfile,
            "mpirun --rankfile {file} {names}-n {ranks} PROGRAM   (Open MPI 5: mpirun --hostfile HOSTFILE --map-by "
            "rankfile:file={file} -n {ranks} PROGRAM, with HOSTFILE of --format openmpi)",
        ),
        Format(
            "mpich",
            "MPICH (Hydra) machinefile",
            lambda hosts, order: hydra_machinefile(hosts, "--format mpich"),
            "mpiexec.hydra -f {file} -n {ranks} PROGRAM",
        ),
        Format(
            "slurm",
            "SLURM_HOSTFILE, a node a task",
            lambda hosts, order: node_per_task(hosts, "--format slurm"),
            "SLURM_HOSTFILE={file} srun --distribution=arbitrary -n {ranks} PROGRAM",
        ),
        Format(
            "torchrun",
            "torchrun with static rendezvous, a command a host",
            _torchrun_commands,
            "grep ' # HOST$' {file} | sh -s -- PROGRAM   (on every host, with its own name)",
        ),
        Format(
            "torchrun-env",
            "the variables torchrun sets, a line a rank",
            _torchrun_environments,
            "env $(grep '^RANK=R ' {file} | cut -d'#' -f1) python PROGRAM   (for every rank R, on its host)",
        ),
        Format("deepspeed", "DeepSpeed hostfile", _deepspeed_hostfile, "deepspeed --hostfile {file} PROGRAM"),
        Format(
            "horovod",
            "the value of horovodrun's -H",
            _horovod_option,
            'horovodrun --gloo -np {ranks} -H "$(cat {file})" PROGRAM',
        ),
        Format(
            "lightgbm",
            "LightGBM machine list",
            _lightgbm_machine_list,
            f"lightgbm config=train.conf machine_list_filename={{file}} num_machines={{ranks}} "
            f"local_listen_port={_LIGHTGBM_PORT}   (for every line, on its host, with its port)",
        ),
        Format(
            "kubernetes",
            "Indexed Job: the node of each pod index",
            _pod_index_map,
            "see docs/launchers.md: gated pods are given the node of their index in {file}",
        ),
    )
}
