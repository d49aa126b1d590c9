"""Connector to running pods: each agent runs in one by ``kubectl exec``, in its first container.

Cluster, namespace and user are those of kubectl's own configuration.
"""

import shutil

from plink.errors import UsageError
from plink.model.hosts import Host
from plink.transport.program import BOOTSTRAP
from runners.child import ChildConnection, start

_END_TIMEOUT_S = 5.0


class ExecConnector:
    """Connector by ``kubectl exec``, whose standard input and output are the connection.

    :raises UsageError: where kubectl is not installed.
    """

    def __init__(self) -> None:
        if shutil.which("kubectl") is None:
            raise UsageError("--runner kubernetes: kubectl is not installed here")

    def open(self, host: Host) -> ChildConnection:
        """Start an agent in the pod of the host's name."""
        argv = ("kubectl", "exec", "--stdin", "--quiet", host.name, "--", "python3", "-c", BOOTSTRAP)
        return start(host, argv, _END_TIMEOUT_S)
