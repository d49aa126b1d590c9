"""Warnings about a network's interfaces."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from plink.model.network import Network


def interface_warnings(network: "Network") -> list[str]:
    """Return a warning for each dead, slow or wrongly cabled interface and each host that does not relay.

    :raises InputError: when the file's interfaces are invalid.
    """
    from plink.api.interfaces import interface_findings
    from plink.model.diagnosis import Severity
    from solvers.diagnosis.findings import merged

    findings = merged([*interface_findings(network)])
    return [f"warning: {finding.line}" for finding in findings if finding.severity != Severity.INFO]
