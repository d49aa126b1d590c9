"""Read a command's input: the file that was named, or the last result in the workspace."""

import contextlib
from pathlib import Path

from plink.errors import UsageError
from plink.model.groups import read_groups
from plink.model.hosts import Hosts, read_hosts
from plink.model.network import Network, read_network
from plink.model.order import RankOrder, read_order
from plink.model.storage import read_document
from plink.model.subnetwork import subnetwork
from plink.records import workspace
from plink.terminal.screen import say, say_read, status_line

_MAX_DIGITS = 9
_SLOW_BYTES = 10_000_000  # that take half a second to read, or more


def hosts_file_from(path: Path | None) -> Path:
    """Return the named hosts file, or the one in this folder, and say which.

    :raises UsageError: where none was named and none is here.
    """
    if path is not None:
        return path
    here = Path("hosts.txt")
    if not here.is_file():
        raise UsageError("name the hosts file: there is no hosts.txt in this folder")
    say(f"hosts: {here}")
    return here


def network_from(path: Path | None, hosts_file: Path | None = None) -> Network:
    """Read the named network, or the last one that was probed here, and say which; only what was measured between the
    hosts of a file, where one is named."""
    file = workspace.latest(workspace.NETWORK, "plink probe hosts.txt") if path is None else path
    is_large = False
    with contextlib.suppress(OSError):  # whoever reads it tells what is wrong with it
        is_large = file.is_file() and file.stat().st_size >= _SLOW_BYTES
    with status_line(f"reading {file}") if is_large else contextlib.nullcontext():
        network = read_network(file)
    if path is None:
        say_read(file, network.measured_at)
    return network if hosts_file is None else part_of(network, read_hosts(hosts_file))


def part_of(network: Network, hosts: Hosts) -> Network:
    """Return what was measured between these hosts, and say so where the network has others.

    :raises UsageError, NoAnswer: as :func:`subnetwork`.
    """
    part = subnetwork(network, hosts)
    if len(part.hosts) < len(network.hosts):
        say(f"{len(part.hosts)} of the {len(network.hosts)} hosts of {network.location}")
    return part


def last_groups(network: Network, order: RankOrder | None) -> list[list[str]] | None:
    """Return the last groups found here, if they are for this network and the order has none of its own, and say so."""
    if (order is not None and order.groups) or not workspace.GROUPS.is_file():
        return None
    if read_document(workspace.GROUPS).get("network") != network.fingerprint():
        say(f"{workspace.GROUPS} is for another network and is ignored")
        return None
    say_read(workspace.GROUPS)
    return read_groups(workspace.GROUPS)


def last_order(network: Network) -> RankOrder | None:
    """Return the last order found here, if it is for these hosts, and say so."""
    if not workspace.ORDER.is_file():
        return None
    order = read_order(workspace.ORDER)
    if set(order.hosts) != set(network.hosts.ranked().names):
        say(f"{workspace.ORDER} is for other hosts and is ignored")
        return None
    say_read(workspace.ORDER)
    other = "" if order.network in (None, network.fingerprint()) else ", on another measurement of these hosts"
    say(f"the order is one for {order.algo}{other}")
    return order


def parse_labels(text: str | None) -> tuple[str, ...]:
    """Return the labels, none where the option was not typed.

    :raises UsageError: for an empty one.
    """
    labels = () if text is None else tuple(label.strip() for label in text.split(","))
    if not all(labels):
        raise UsageError(f"--labels {text}: write labels and commas, outermost first, like my.org/block,my.org/rack")
    return labels


def parse_groups_option(groups: str) -> int | list[list[str]]:
    """Return the number of groups, or the groups that a file lists.

    :raises UsageError: for nothing. :raises InputError: for a file that cannot be read.
    """
    if not groups:
        raise UsageError("--groups: a file, or how many groups to form")
    if groups.isdecimal():
        return int(groups) if len(groups) <= _MAX_DIGITS else 0
    return read_groups(groups)
