"""Lines of findings; a comparison as a table, in which similar changes share a line, and as test cases for CI."""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import groupby

from plink.model.comparison import ComparedFile, NetworkChange, NetworkComparison
from plink.model.diagnosis import Finding, Severity
from plink.model.hostlist import shortened_hostlist
from plink.model.units import format_gbps, format_us, numbered
from plink.terminal.junit import Case
from plink.terminal.screen import print_lines, show_table

_TableRow = tuple[str, str, str, str, str, str, str]
_MAX_ROWS = 16
_MAX_SEPARATE_ROWS = 3  # findings of a kind that get a line each
_MAX_PAIRS = 10  # findings of single pairs of a kind that get a line each
_MAX_NAMES_CHARS = 60  # characters for the names of hosts
_VERDICTS = ("worse", "changed", "better")
_SEVERITIES = list(Severity)
# What can get worse, as CI names it.
_KINDS = {
    "latency": "round trips",
    "loss": "loss",
    "rate": "bandwidth",
    "capacity": "what groups share",
    "unmeasured": "pairs that were measured before",
}


def finding_lines(findings: Sequence[Finding]) -> list[str]:
    """Return a line for each finding, but of single pairs for a few of each kind."""
    kinds = Counter[str]()
    lines = []
    for finding in findings:
        kinds[finding.kind] += finding.is_of_pair
        if not finding.is_of_pair or kinds[finding.kind] <= _MAX_PAIRS:
            lines.append(f"{finding.severity}: {finding.line}")
    more = {kind: number - _MAX_PAIRS for kind, number in kinds.items() if number > _MAX_PAIRS}
    return lines + [f"{kind}: {numbered(number, 'pair')} more: --json names all" for kind, number in more.items()]


def failing_count(findings: Iterable[Finding | NetworkChange], fail_on: str) -> str:
    """Return how many findings are as severe as ``fail_on``, like ``2 errors, 1 warning``; empty without any."""
    counts = Counter(finding.severity for finding in findings)
    failing = _SEVERITIES[: _SEVERITIES.index(Severity(fail_on)) + 1]
    return ", ".join(_count(counts[severity], severity) for severity in failing if counts[severity])


def _count(number: int, severity: str) -> str:
    plural = "s" if number > 1 and severity != "info" else ""
    return f"{number} {severity}{plural}"


def print_comparison(comparison: NetworkComparison) -> None:
    """Print a table of the changes, and what else is to say of both files."""
    before, after = (_file_title(file) for file in (comparison.old, comparison.new))
    print_lines(f"{before} -> {after}: {len(comparison.hosts)} hosts, {_compared_text(comparison)}")
    rows = _rows(comparison)
    if rows:
        show_table(("", "", "where", "what", "was", "is", ""), rows[:_MAX_ROWS])
        if len(rows) > _MAX_ROWS:
            print(f"and {len(rows) - _MAX_ROWS} lines more: --json shows all")
    print_lines(*_remarks(comparison))  # of words that stand in the files


def cases(comparison: NetworkComparison) -> list[Case]:
    """Return a JUnit test case for each kind of regression; its lines are the findings."""
    results = []
    for what, name in _KINDS.items():
        worse = [row for row in _rows(comparison, what) if row[1] == "worse"]
        lines = [
            " ".join(part for part in (location, kind, f"{old} -> {new}" if old or new else "", detail) if part)
            for *_, location, kind, old, new, detail in worse
        ]
        results.append(Case("diff", name, not worse, "\n".join(lines) or "nothing got worse beyond noise"))
    return results


def _compared_text(comparison: NetworkComparison) -> str:
    compared = comparison.compared
    parts = [numbered(compared.round_trips, "pair's round trips", "pairs' round trips")]
    parts += [numbered(compared.rates, "pair's bandwidth", "pairs' bandwidths")] if compared.rates else []
    parts += [numbered(compared.host_rates, "rate of a host", "rates of hosts")] if compared.host_rates else []
    ports = compared.interface_rates
    parts += [numbered(ports, "rate of an interface", "rates of interfaces")] if ports else []
    parts += [numbered(compared.capacities, "shared capacity", "shared capacities")] if compared.capacities else []
    return ", ".join(parts)


def _file_title(compared: ComparedFile) -> str:
    when = compared.measured_at
    return f"{compared.file} ({when[:16].replace('T', ' ')})" if isinstance(when, str) else compared.file


def _remarks(comparison: NetworkComparison) -> list[str]:
    lines = []
    if not comparison.findings:
        lines.append("nothing changed beyond noise")
    throughout = any(finding.where == "network" and finding.what == "latency" for finding in comparison.findings)
    if comparison.compared.round_trips and not throughout and abs(comparison.shift - 1) >= 0.02:
        lines.append(
            f"round trips take {comparison.shift:.2f} times as long throughout: too little to name, and left out"
        )
    for names, what in ((comparison.gone, "not in the new file"), (comparison.come, "only in the new file")):
        lines += [f"{what}: {_shortened(names)}"] if names else []
    if comparison.moved:
        lines.append(f"at another address now: {_shortened(comparison.moved)}")
    return [*lines, *comparison.notes]


def _rows(comparison: NetworkComparison, what: str | None = None) -> list[_TableRow]:
    """Return the table's rows (of one kind of finding only), regressions first; many findings of a kind share a row."""
    rows = []
    findings = [finding for finding in comparison.findings if what in (None, finding.what)]

    def kind(finding: NetworkChange) -> tuple[int, int, str, str, str]:
        severity, verdict = _SEVERITIES.index(finding.severity), _VERDICTS.index(finding.verdict)
        return severity, verdict, finding.what, finding.where, finding.way or ""

    order = {key: k for k, key in enumerate(dict.fromkeys(map(kind, findings)))}
    arranged = sorted(findings, key=lambda finding: (kind(finding)[:2], order[kind(finding)]))
    for _, group in groupby(arranged, key=kind):
        similar = list(group)
        rows += (
            [_finding_row(finding) for finding in similar]
            if len(similar) <= _MAX_SEPARATE_ROWS
            else [_group_row(similar)]
        )
    return rows


def _finding_row(finding: NetworkChange) -> _TableRow:
    return (
        finding.severity.value,
        finding.verdict,
        _location(finding),
        _kind_text(finding),
        _value(finding.what, finding.old),
        ("up to " if finding.what == "loss" and finding.verdict == "worse" and finding.pairs > 1 else "")
        + _value(finding.what, finding.new),
        ", ".join([*_change(finding), *([f"{finding.pairs} pairs"] if finding.pairs > 1 else [])]),
    )


def _group_row(similar: Sequence[NetworkChange]) -> _TableRow:
    """Return one row for several findings, with the values of the largest change."""
    largest = max(similar, key=lambda finding: max(_ratio(finding), 1 / _ratio(finding)))
    first = similar[0]
    if first.where == "host":
        location = f"{len(similar)} hosts: {_shortened([name for finding in similar for name in finding.hosts])}"
    else:
        location = f"{len(similar)} {_PLURALS.get(first.where, first.where)}, such as {_location(largest)}"
    row = _finding_row(largest)
    return (*row[:2], location, *row[3:6], row[6] if first.old is None else f"up to {row[6]}")


_PLURALS = {
    "interface": "interfaces",
    "pair": "pairs",
    "link": "links",
    "uplink": "groups",
    "inside": "groups",
    "group": "groups",
}


def _location(finding: NetworkChange) -> str:
    hosts, other_hosts = _shortened(finding.hosts), _shortened(finding.others)
    return {
        "network": "the whole network",
        "interface": f"{hosts}/{finding.interface}",
        "host": hosts,
        "pair": f"{hosts} - {other_hosts}",
        "link": f"{hosts} - {other_hosts}",
        "inside": f"among {hosts}",
        "group": f"{hosts}, to all",
        "uplink": f"{hosts}, to all others",
        "within": "pairs within groups, all groups",
        "between": "pairs between groups, all groups",
    }[finding.where]


def _kind_text(finding: NetworkChange) -> str:
    return {
        "latency": "round trip",
        "loss": "loss",
        "rate": f"bandwidth, way {finding.way}" if finding.way else "bandwidth",
        "capacity": f"shared, way {finding.way}",
        "unmeasured": "measured again" if finding.verdict == "better" else "not measured now",
        "hops": "hops",
    }[finding.what]


def _value(what: str, value: float | None) -> str:
    if value is None:
        return ""
    if what == "latency":
        return format_us(value)
    if what == "loss":
        return f"{100 * value:.2f} %"
    return format_gbps(value) if what in ("rate", "capacity") else f"{value:.0f}"


def _ratio(finding: NetworkChange) -> float:
    return finding.new / finding.old if finding.old and finding.new else 1.0


def _change(finding: NetworkChange) -> list[str]:
    has_ratio = finding.what not in ("unmeasured", "hops", "loss") and _ratio(finding) != 1
    return [f"{_ratio(finding):.2f} x"] if has_ratio else []


def _shortened(names: Iterable[str]) -> str:
    return shortened_hostlist(list(names), " ", _MAX_NAMES_CHARS)
