"""The order itself: as JSON, and as a hosts file without addresses."""

from plink.model.hosts import Hosts
from plink.model.order import RankOrder
from plink.model.storage import render_document
from runners.hostfiles.format import Format


def _order(hosts: Hosts, order: RankOrder) -> str:
    return render_document(order.to_json())


def _names(hosts: Hosts, order: RankOrder) -> str:
    return "".join(f"{host.name}{f' slots={host.slots}' if host.slots > 1 else ''}\n" for host in hosts)


ORDER = Format("order", "the order as JSON (plink.order/1)", _order, "plink launch --order {file} PROGRAM")
HOSTS = Format("hosts", "host names, one a line, and slots", _names)
