"""Which file a command takes when it was given none, and how the hosts in it are reached."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from plink.cli.screen import say, say_read
from plink.records import workspace

if TYPE_CHECKING:
    from plink.api.constraints import RequestedGroups
    from plink.model.network import Network
    from plink.model.order import RankOrder


def network_from(path: Path | None) -> Any:
    """The network a command was given, or the last one that was probed here; says which."""
    from plink.model.network import read_network

    if path is not None:
        return read_network(path)
    latest = workspace.latest(workspace.NETWORK, "plink probe hosts.txt")
    network = read_network(latest)
    say_read(latest)
    return network


def last_groups(network: "Network") -> "RequestedGroups | None":
    """The groups that were found here last, if for this very network; says so."""
    from plink.model.groups import read_groups
    from plink.model.storage import read_document

    if not workspace.GROUPS.is_file():
        return None
    if read_document(workspace.GROUPS).get("network") != network.fingerprint():
        say(f"{workspace.GROUPS} is for another network and is left aside")
        return None
    say_read(workspace.GROUPS)
    return read_groups(workspace.GROUPS)


def last_order(network: "Network") -> "RankOrder | None":
    """The order that was found here last, if it is one of these hosts; says which is taken."""
    from plink.model.order import read_order

    if not workspace.ORDER.is_file():
        return None
    order = read_order(workspace.ORDER)
    if set(order.hosts) != set(network.hosts.names):
        say(f"{workspace.ORDER} is for other hosts and is left aside")
        return None
    say_read(workspace.ORDER)
    other = "" if order.network in (None, network.fingerprint()) else ", on another measurement of these hosts"
    say(f"the order is one for {order.algo}{other}")
    return order
