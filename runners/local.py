"""Connector to a "host" that is a child process of this one: the same agents, over pipes instead of SSH."""

import sys

from plink.model.hosts import Host
from plink.remote.program import BOOTSTRAP
from runners.child import ChildConnection, start


class LocalConnector:
    """Connector that starts every agent as a child process of this one."""

    def open(self, host: Host) -> ChildConnection:
        """Start the bootstrap with this interpreter."""
        return start(host, [sys.executable, "-c", BOOTSTRAP])
