"""Read what commands that draw a network show: named files, else the last ones of this network.

Imported by these commands, when they run.
"""

from dataclasses import replace
from pathlib import Path

from plink.features.report.gather import ReportRequest, check_drawable
from plink.model.codec import decode
from plink.model.embedding import NetworkEmbedding
from plink.model.groups import read_groups
from plink.model.network import Network
from plink.model.order import read_order
from plink.model.storage import read_document
from plink.records import workspace
from plink.report.report_data import HostMap, ReportData
from plink.terminal.inputs import network_from
from plink.terminal.screen import say, say_read


def network_to_draw(path: Path | None) -> Network:
    """Return the named network, or the last one; refuse one without anything to draw.

    :raises PlinkError: as :func:`plink.features.report.gather.check_drawable`.
    """
    network: Network = network_from(path)
    check_drawable(network)
    return network


def report_request(network: Network, order: Path | None, groups: Path | None) -> ReportRequest:
    """Return the request for a report from the named files, else the last ones.

    :raises InputError: when a file cannot be read.
    """
    return _with_groups(_with_order(ReportRequest(), network, order), network, groups)


def _with_order(request: ReportRequest, network: Network, path: Path | None) -> ReportRequest:
    if path is None and not workspace.ORDER.is_file():
        return replace(request, no_order="There is no order yet; `plink reorder` finds one.")
    order = read_order(path or workspace.ORDER)
    if path is not None:
        if order.network not in (None, network.fingerprint()):
            say(f"{path} was found for another measurement")
    elif order.network != network.fingerprint():
        say(f"{workspace.ORDER} was found for another network and is ignored")
        return replace(
            request, no_order="The last order was found for another network; `plink reorder` finds one for this."
        )
    else:
        say_read(workspace.ORDER)
    return replace(request, order=order, order_source=str(path or workspace.ORDER))


def _with_groups(request: ReportRequest, network: Network, path: Path | None) -> ReportRequest:
    if path is None and workspace.GROUPS.is_file():
        group_hosts = {name for group in read_groups(workspace.GROUPS) for name in group}
        if group_hosts == set(network.hosts.names):
            say_read(workspace.GROUPS)
            path = workspace.GROUPS
        else:
            say(f"{workspace.GROUPS} is for other hosts and is ignored")
    return request if path is None else replace(request, groups=read_groups(path), groups_source=str(path))


def host_map(network: Network, data: ReportData, seed: int) -> tuple[HostMap | None, str]:
    """Return the map of the last embedding if it is of this network, else of a new one.

    :raises InputError: when the last embedding cannot be read.
    """
    from plink.features.report.host_map import fitted_map, map_of  # imports PyTorch

    if workspace.EMBEDDING.is_file():
        location = str(workspace.EMBEDDING)
        document = read_document(workspace.EMBEDDING)
        if document.get("network") == network.fingerprint():
            embedded_map = map_of(network, data.groups.of, decode(NetworkEmbedding, document, location), location)
            say_read(workspace.EMBEDDING)
            return embedded_map, ""
    return fitted_map(network, data, seed)
