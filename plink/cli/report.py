"""``plink report``."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from plink.cli.screen import say
from plink.records import workspace

if TYPE_CHECKING:
    from plink.report.facts import Run

_PAGE = Path("report.html")


def _runs(path: Path) -> "tuple[Run, ...]":
    from plink.model.trials import read_series
    from plink.report.facts import Run

    series = read_series(path)
    return tuple(
        Run(f"{one.algo}, {trial.order}" if len(series) > 1 else trial.order, trial.predicted_us, trial.achieved_s)
        for one in series
        for trial in one.trials
    )


def report(
    network_file: Annotated[
        Path | None, typer.Argument(metavar="NETWORK", help="What `plink probe` wrote; default .plink/network.json.")
    ] = None,
    order: Annotated[
        Path | None, typer.Option(help="An order, or one name a line; default: .plink/order.json if it is of it.")
    ] = None,
    groups: Annotated[
        Path | None, typer.Option(help="Groups of hosts; default: .plink/groups.json, else by the round trips.")
    ] = None,
    results: Annotated[
        Path | None, typer.Option(help="Orders that were run, predicted and achieved; see docs/report.md.")
    ] = None,
    output: Annotated[Path, typer.Option("-o", "--output", help="The page, - for standard output.")] = _PAGE,
    png: Annotated[
        Path | None, typer.Option(help="Also write its pictures as PNG and SVG: a folder, or a file's name.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, max=2**63 - 1, help="Of the embedding.")] = 0,
) -> None:
    """Show the network as a page: one file that opens offline.

    Heat maps of the round trips as given and in plink's order, a map of the
    hosts with the way of the order, tiers, what is missing and what looks
    wrong. docs/report.md tells how to read it.

    Example: plink report cloud.json --order order.json -o report.html
    """
    from plink.cli.placing import map_of
    from plink.cli.seeing import facts_of, network_to_see
    from plink.model.storage import STANDARD, write_text
    from plink.report.files import check_target, write_pictures
    from plink.report.page import page

    read = (network_file or workspace.NETWORK, order or workspace.ORDER, groups or workspace.GROUPS, results)
    workspace.check_output(output, None, read)
    if png is not None:
        check_target(png)
    runs = () if results is None else _runs(results)
    network = network_to_see(network_file)
    facts = facts_of(network, order, groups, runs, lambda known: map_of(network, known, seed))
    write_text(output, page(facts))
    if str(output) != STANDARD:
        say(f"report -> {output}")
    if png is not None:
        written = write_pictures(facts, png)
        say(f"{len(written)} pictures -> {written[0]} and others")
