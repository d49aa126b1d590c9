"""Connectors to hosts, and the callback that reports progress."""

from collections.abc import Callable

from plink.model.hosts import Hosts
from plink.transport.connector import Connector

# What is under way ("connecting", "measuring", "fitting"), how much of it is done, and of how much.
Progress = Callable[[str, int, int], None]


def connector_for(hosts: Hosts, accept_new_host_keys: bool) -> Connector:
    """Return a connector over SSH; for a lab's hosts from inside that lab, with its keys."""
    from runners.lab.lifecycle import enter

    state = enter(hosts)
    from runners.ssh.connector import SshConnector

    return SshConnector(accept_new_host_keys, identity=state.identity if state else None)
