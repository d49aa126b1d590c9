"""``plink doctor``."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

import typer

from plink.cli.finding_lines import failing_count, floor_us
from plink.errors import PlinkError
from plink.terminal.inputs import hosts_file_from
from plink.terminal.screen import print_json, print_lines, progress, say


def doctor(
    subject: Annotated[
        Path | None,
        typer.Argument(
            metavar="[HOSTS|NETWORK]", help="A hosts file, or a network file (.json); default: ./hosts.txt."
        ),
    ] = None,
    floor: Annotated[str, typer.Option(help="Smallest excess of a round trip to report, 1s at most.")] = "10us",
    fail_on: Annotated[
        Literal["error", "warning", "info"], typer.Option(help="Least severe finding that makes the exit code 1.")
    ] = "warning",
    accept_new_host_keys: Annotated[
        bool, typer.Option("--accept-new-host-keys", help="Note unknown SSH host keys instead of refusing them.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Diagnose hosts and the network between them, with the evidence and what to do (exit code 1 on findings).

    With a hosts file, hosts are checked (SSH, Python, clocks, MTU, tools) and
    measured; what looks slow is measured again, against a healthy host. A
    network file is diagnosed without new measurements.

    Example: plink doctor hosts.txt
    """
    from plink.api.diagnosing import Examination, diagnose, examine
    from plink.model.storage import file_and_fragment

    least_us = floor_us(floor)
    subject = hosts_file_from(subject)
    if str(file_and_fragment(subject)[0]).removesuffix(".gz").endswith((".json", ".csv", ".tsv")):
        from plink.model.network import read_network

        examination = Examination({}, diagnose(read_network(subject), least_us))
    else:
        from plink.model.hosts import read_hosts

        hosts = read_hosts(subject)
        try:
            with progress("connecting", "measuring", "host rates", "interfaces", "shared links") as bars:
                examination = examine(
                    hosts, accept_new_host_keys, lambda what, done, total: bars[what](done, total), least_us
                )
        except KeyboardInterrupt:
            say(
                "interrupted: nothing is kept, and the same command starts anew; what `plink probe HOSTS -o FILE.json` "
                "has measured is kept, and `plink doctor FILE.json` diagnoses it"
            )
            raise
    findings = examination.findings
    if as_json:
        rows = [asdict(finding) for finding in findings]
        is_ok = not any(finding.severity != "info" for finding in findings)
        print_json({"schema": "plink.doctor/1", "ok": is_ok, "hosts": examination.facts, "findings": rows})
    else:
        print_lines(*(f"{finding.severity}: {finding.line}" for finding in findings))
        if not findings:
            print("no problems found")
    failing = failing_count((finding.severity for finding in findings), fail_on)
    if failing:
        raise PlinkError(failing)
