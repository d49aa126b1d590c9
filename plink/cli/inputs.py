"""Which file a command takes when it was given none, and how the hosts in it are reached."""

from pathlib import Path
from typing import Any

from plink import workspace
from plink.cli.screen import say, took
from plink.errors import UsageError
from plink.hosts import Hosts, read_hosts
from plink.remote.connector import Connector


def network_from(path: Path | None) -> Any:
    """The network a command was given, or the last one that was probed here; says which."""
    from plink.network import read_network

    if path is not None:
        return read_network(path)
    found = workspace.latest(workspace.NETWORK, "plink probe hosts.txt")
    network = read_network(found)
    took(found)
    return network


def connector_for(hosts: Hosts, accept_new_host_keys: bool) -> Connector:
    """SSH to these hosts; for a lab's hosts from inside that lab, with its key and its known hosts."""
    from runners.lab.lifecycle import enter

    state = enter(hosts)
    from runners.ssh.connector import SshConnector

    return SshConnector(accept_new_host_keys, identity=state.identity if state else None)


def job_hosts(hosts_file: Path | None, order_file: Path | None) -> tuple[Hosts, dict[str, dict[str, Any]]]:
    """The hosts of a job in rank order, and what the network file knows of their machines; says where each came from.

    Hosts: the file given, else those of the last network. Order: the file given, else the last one that was found for
    exactly these hosts, else as the hosts stand.
    """
    from plink.network import read_network
    from plink.order import read_order

    network = read_network(workspace.NETWORK) if workspace.NETWORK.is_file() else None
    if hosts_file is not None:
        hosts = read_hosts(hosts_file)
    elif network is not None:
        took(workspace.NETWORK)
        hosts = network.hosts
    else:
        raise UsageError("no hosts: give --hosts hosts.txt, or `plink probe hosts.txt` first")
    if order_file is not None:
        hosts = read_order(order_file).arrange(hosts, str(order_file))
    elif workspace.ORDER.is_file():
        order = read_order(workspace.ORDER)
        if set(order.hosts) == set(hosts.names):
            took(workspace.ORDER)
            hosts = order.arrange(hosts, str(workspace.ORDER))
        else:
            say(f"{workspace.ORDER} is for other hosts and is left aside; ranks as the hosts stand")
    else:
        say("no order here yet (`plink reorder`); ranks as the hosts stand")
    machines: dict[str, dict[str, Any]] = {}
    if network is not None:
        known = network.details.get("machines")
        if isinstance(known, list) and len(known) == len(network.hosts):
            machines = {
                name: machine
                for name, machine in zip(network.hosts.names, known, strict=True)
                if _is_machine(machine) and name in set(hosts.names)
            }
    return hosts, machines


def _is_machine(value: object) -> bool:
    """Whether an entry of a network file's ``machines`` tells who a host is."""
    if not isinstance(value, dict) or not isinstance(value.get("hostname"), str):
        return False
    addresses = value.get("addresses", [])
    return isinstance(addresses, list) and all(isinstance(address, str) for address in addresses)
