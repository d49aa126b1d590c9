"""``plink spot status``."""

from typing import Annotated

import typer

from plink.terminal.options import RunId
from plink.terminal.screen import print_json


def status(run: RunId, as_json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False) -> None:
    """Show the instances of a run, why each is held, and what they cost, from the run's journal.

    Example: plink spot status last
    """
    from plink.api.spot_state import spot_state
    from plink.features.spot.rented import document_of, show_rented
    from plink.records import workspace
    from plink.records.runs import run_named

    folder = workspace.RUNS / run_named(workspace.RUNS, run).id
    document = document_of(spot_state(folder), folder)
    if as_json:
        print_json(document)
    else:
        show_rented(document)
