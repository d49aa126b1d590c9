"""``plink doctor`` and ``plink diff``."""

from pathlib import Path
from typing import Annotated

import typer

import plink
from plink.errors import PlinkError, UsageError
from plink.features.diagnose.request import DiffRequest, DoctorRequest
from plink.features.diagnose.show import cases, failing_count, finding_lines, print_comparison
from plink.model.diagnosis import Examination
from plink.model.storage import file_and_fragment
from plink.records import workspace
from plink.terminal.inputs import hosts_file_from, network_from
from plink.terminal.junit import Case, write_junit
from plink.terminal.options import Json, takes
from plink.terminal.screen import print_json, print_lines, print_result, progress, say


@takes(DoctorRequest)
def doctor(
    request: DoctorRequest,
    subject: Annotated[
        Path | None,
        typer.Argument(
            metavar="[HOSTS|NETWORK]", help="A hosts file, or a network file (.json); default: ./hosts.txt."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Diagnose hosts and the network between them, with the evidence and what to do (exit code 1 on findings).

    With a hosts file, hosts are checked (SSH, Python, clocks, MTU, tools) and
    measured; what looks slow is measured again, against a healthy host. A
    network file is diagnosed without new measurements.

    Example: plink doctor hosts.txt
    """
    subject = hosts_file_from(subject)
    if str(file_and_fragment(subject)[0]).removesuffix(".gz").endswith((".json", ".csv", ".tsv")):
        examination = Examination.of({}, plink.diagnose(network_from(subject), request))
    else:
        hosts = plink.read_hosts(subject)
        try:
            with progress("connecting", "measuring", "host rates", "interfaces", "shared links") as bars:
                examination = plink.examine(hosts, request, progress=lambda what, done, total: bars[what](done, total))
        except KeyboardInterrupt:
            say(
                "interrupted: nothing is kept, and the same command starts anew; what `plink probe HOSTS -o FILE.json` "
                "has measured is kept, and `plink doctor FILE.json` diagnoses it"
            )
            raise
    if as_json:
        print_json(examination.to_json())
    else:
        print_lines(*finding_lines(examination.findings))
        if not examination.findings:
            print("no problems found")
    if failing := failing_count(examination.findings, request.fail_on):
        raise PlinkError(f"problems found: {failing}")


@takes(DiffRequest)
def diff(
    request: DiffRequest,
    old: Annotated[Path, typer.Argument(metavar="OLD", help="A network file, of yesterday say; - is standard input.")],
    new: Annotated[Path, typer.Argument(metavar="NEW", help="A network file of the same hosts, of today.")],
    junit: Annotated[Path | None, typer.Option(help="Also write it as JUnit XML, for CI.")] = None,
    as_json: Json = False,
) -> None:
    """Compare two probes: which hosts and links got slower beyond noise (exit code 1 on regressions).

    Changes are explained by the fewest causes: the network, a host, a link between groups, then pairs.

    Example: plink diff yesterday.json today.json
    """
    if str(old) == str(new) == "-":
        raise UsageError("standard input holds one file; name the other one")
    workspace.check_output(junit, None, (old, new))
    try:
        comparison = plink.diff(network_from(old), network_from(new), request)
    except PlinkError as error:
        if junit is not None:  # else that of another day might stand there
            write_junit(junit, [Case("diff", "diff", None, str(error))])
        raise
    if junit is not None:
        write_junit(junit, cases(comparison))
    print_result(comparison, as_json, lambda: print_comparison(comparison))
    if failing := failing_count(comparison.findings, request.fail_on):
        raise PlinkError(f"got worse: {failing}")
