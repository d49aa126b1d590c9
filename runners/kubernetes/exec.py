"""Reach pods that are there already: each agent runs in one by ``kubectl exec``, in its first container.

Cluster, namespace and user are those of kubectl's own configuration.
"""

import shutil

from plink.errors import UsageError
from plink.model.hosts import Host
from plink.remote.program import BOOTSTRAP
from runners.child import ChildConnection, start

_LET_S = 5.0


class ExecConnector:
    """By ``kubectl exec``, whose standard input and output are the line.

    :raises UsageError: where there is no kubectl.
    """

    def __init__(self) -> None:
        if shutil.which("kubectl") is None:
            raise UsageError("--runner kubernetes: there is no kubectl here")

    def open(self, host: Host) -> ChildConnection:
        """In the pod of the host's name."""
        words = ("kubectl", "exec", "--stdin", "--quiet", host.name, "--", "python3", "-c", BOOTSTRAP)
        return start(host, words, _LET_S)
