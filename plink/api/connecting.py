"""How hosts are reached."""

from plink.model.hosts import Hosts
from plink.remote.connector import Connector


def connector_for(hosts: Hosts, accept_new_host_keys: bool) -> Connector:
    """SSH to these hosts; for a lab's hosts from inside that lab, with its key and its known hosts."""
    from runners.lab.lifecycle import enter

    state = enter(hosts)
    from runners.ssh.connector import SshConnector

    return SshConnector(accept_new_host_keys, identity=state.identity if state else None)
