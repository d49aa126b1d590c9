"""``plink diff``."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from plink.cli.finding_lines import failing_count, floor_us
from plink.errors import PlinkError, UsageError
from plink.records import workspace
from plink.terminal.screen import print_json

if TYPE_CHECKING:
    from plink.model.network import Network
    from solvers.changes.compare import NetworkComparison
    from solvers.changes.network_change import ChangeThresholds, NetworkChange

_UNITS = {"latency": "us", "loss": "share", "rate": "Gbit/s", "capacity": "Gbit/s", "hops": "hops"}
_MIN_SHARE, _MAX_SHARE = 0.01, 100.0


def diff(
    old: Annotated[Path, typer.Argument(metavar="OLD", help="A network file, of yesterday say; - is standard input.")],
    new: Annotated[Path, typer.Argument(metavar="NEW", help="A network file of the same hosts, of today.")],
    threshold: Annotated[
        float, typer.Option(help="Smallest change to report, a share, 0.01 to 100: 0.25 is a quarter.")
    ] = 0.25,
    floor: Annotated[
        str, typer.Option(help="Smallest absolute change of a round trip to report, 1s at most.")
    ] = "10us",
    fail_on: Annotated[
        Literal["error", "warning"], typer.Option(help="Least severe regression that makes the exit code 1.")
    ] = "warning",
    junit: Annotated[Path | None, typer.Option(help="Also write it as JUnit XML, for CI.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Compare two probes: which hosts and links got slower beyond noise (exit code 1 on regressions).

    Changes are explained by the fewest causes: the network, a host, a link between groups, then pairs.

    Example: plink diff yesterday.json today.json
    """
    from plink.cli.diff_report import cases, show
    from plink.cli.junit import Case, write_junit
    from plink.model.network import read_network
    from solvers.changes.compare import compare
    from solvers.changes.network_change import WORSE, ChangeThresholds
    from solvers.diagnosis.changes import severity_of_change

    if str(old) == str(new) == "-":
        raise UsageError("standard input holds one file; name the other one")
    workspace.check_output(junit, None, (old, new))
    limits = ChangeThresholds(share=_share(threshold), floor_us=floor_us(floor))
    try:
        networks = read_network(old), read_network(new)
        comparison = compare(*networks, limits)
    except PlinkError as error:
        if junit is not None:  # else that of another day might stand there
            write_junit(junit, [Case("diff", "diff", None, str(error))])
        raise
    if junit is not None:
        write_junit(junit, cases(comparison))
    if as_json:
        print_json(_document(comparison, networks, limits))
    else:
        show(comparison, networks)
    worse = (severity_of_change(change) for change in comparison.findings if change.verdict == WORSE)
    failing = failing_count(worse, fail_on)
    if failing:
        raise PlinkError(f"got worse: {failing}")


def _share(threshold: float) -> float:
    """Return the threshold if it is a share in range.

    :raises UsageError: for what is no number, which is no greater and no less than any other.
    """
    if math.isnan(threshold):
        raise UsageError("--threshold nan: that is no number; give a share, 0.25 is a quarter")
    if not _MIN_SHARE <= threshold <= _MAX_SHARE:
        raise UsageError(f"--threshold {threshold:g}: give a share, {_MIN_SHARE:g} to {_MAX_SHARE:g}")
    return threshold


def _document(
    comparison: "NetworkComparison", networks: "tuple[Network, Network]", limits: "ChangeThresholds"
) -> dict[str, Any]:
    sides = [
        {"file": network.location, "measured_at": network.details.get("measured_at"), "network": network.fingerprint()}
        for network in networks
    ]
    return {
        "schema": "plink.diff/1",
        "ok": not comparison.worse,
        "old": sides[0],
        "new": sides[1],
        "threshold": limits.share,
        "floor_us": limits.floor_us,
        "hosts": list(comparison.hosts),
        "gone": list(comparison.gone),
        "come": list(comparison.come),
        "moved": list(comparison.moved),
        "compared": {"round_trips": comparison.pairs, "rates": comparison.rates, "capacities": comparison.shared},
        "shift": round(comparison.shift, 6),
        "noise": round(comparison.noise, 6),
        "findings": [_row(finding) for finding in comparison.findings],
        "notes": list(comparison.notes),
    }


def _row(finding: "NetworkChange") -> dict[str, Any]:
    from solvers.diagnosis.changes import severity_of_change

    old, new = (None if math.isnan(value) else round(value, 6) for value in (finding.old, finding.new))
    row = {
        "what": finding.what,
        "severity": severity_of_change(finding),
        "verdict": finding.verdict,
        "where": finding.where,
        "hosts": list(finding.hosts),
        "others": list(finding.others),
        "old": old,
        "new": new,
        "unit": _UNITS.get(finding.what),
        "pairs": finding.pairs,
    }
    return row | ({"way": finding.way} if finding.way else {})
