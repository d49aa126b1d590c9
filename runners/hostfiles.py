"""An order as the files that launchers read."""

from collections.abc import Callable

from plink.errors import UsageError
from plink.hosts import Hosts
from plink.order import Order
from plink.storage import render_document


def _names(hosts: Hosts, order: Order) -> str:
    return "".join(f"{host.name}\n" for host in hosts)


def _openmpi(hosts: Hosts, order: Order) -> str:
    # A hostfile is a set to Open MPI's usual mappers; only the sequential one keeps the lines' order, one line a rank:
    # `mpirun --hostfile F --mca rmaps seq` (4.1) or `--map-by seq:FILE=F` (5).
    return "".join(f"{host.address}\n" for host in hosts for _ in range(host.slots))


FORMATS: dict[str, Callable[[Hosts, Order], str]] = {
    "order": lambda hosts, order: render_document(order.to_json()),
    "hosts": _names,
    "openmpi": _openmpi,
}


def render(name: str, hosts: Hosts, order: Order) -> str:
    """The text of one format; ``hosts`` stand in rank order.

    :raises UsageError: for a format that does not exist.
    """
    if name not in FORMATS:
        raise UsageError(f"--format {name}: there are {', '.join(FORMATS)}")
    return FORMATS[name](hosts, order)
