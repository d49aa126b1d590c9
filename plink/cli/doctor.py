"""``plink doctor``."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from plink.cli.screen import print_json, printable, progress
from plink.errors import PartlyDone


def doctor(
    subject: Annotated[Path, typer.Argument(metavar="HOSTS|NETWORK", help="A hosts file, or a network file (.json).")],
    accept_new_host_keys: Annotated[
        bool, typer.Option("--accept-new-host-keys", help="Note unknown SSH host keys instead of refusing them.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Diagnose hosts and the network between them, with the evidence and what to do (exit code 3 on findings).

    With a hosts file, hosts are checked (SSH, Python, clocks, MTU, tools) and measured; suspects are measured again,
    each against a healthy host. A network file is judged as it is.

    Example: plink doctor hosts.txt
    """
    from plink.api.diagnosing import Examination, diagnose, examine

    if str(subject).endswith((".json", ".json.gz")):
        from plink.model.network import read_network

        examination = Examination({}, diagnose(read_network(subject)))
    else:
        from plink.model.hosts import read_hosts

        hosts = read_hosts(subject)
        with progress("connecting", "measuring", "host rates") as bars:
            examination = examine(hosts, accept_new_host_keys, lambda what, done, total: bars[what](done, total))
    findings = examination.findings
    if as_json:
        rows = [asdict(finding) for finding in findings]
        print_json({"schema": "plink.doctor/1", "ok": not findings, "hosts": examination.facts, "findings": rows})
    else:
        for finding in findings:
            # What hosts say of themselves is among the evidence.
            print(printable(f"{finding.kind}: {', '.join(finding.hosts)}: {finding.evidence}; {finding.advice}"))
        if not findings:
            print("no problems found")
    if findings:
        raise PartlyDone(f"{len(findings)} finding{'s' if len(findings) > 1 else ''}")
