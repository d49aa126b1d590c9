"""Which file a command takes when it was given none, and how the hosts in it are reached."""

from pathlib import Path
from typing import Any

from plink.cli.screen import took
from plink.model.hosts import Hosts
from plink.records import workspace
from plink.remote.connector import Connector


def network_from(path: Path | None) -> Any:
    """The network a command was given, or the last one that was probed here; says which."""
    from plink.model.network import read_network

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
