"""Lines of findings: what `plink doctor` prints, and what other commands warn of in the same words."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from plink.model.network import Network
    from solvers.diagnosis.finding import Finding


def finding_line(finding: "Finding") -> str:
    """Return a finding as one line, without its severity. What hosts report of themselves may be in it: escape it."""
    from plink.model.hostlist import fold_hostlist

    number = f"{len(finding.hosts)} hosts: " if len(finding.hosts) > 2 else ""
    hosts = number + fold_hostlist(finding.hosts, ", ")
    return f"{finding.kind}: {hosts}: {finding.evidence}; {finding.advice}"


def interface_warnings(network: "Network") -> list[str]:
    """Return a warning for each dead, slow or wrongly cabled interface and each host that does not relay.

    :raises InputError: when the file's interfaces are invalid.
    """
    from plink.api.interfaces import interface_findings
    from solvers.diagnosis.finding import Severity, merged

    findings = merged([*interface_findings(network)])
    return [f"warning: {finding_line(finding)}" for finding in findings if finding.severity != Severity.INFO]
