"""What is rented for a run, and what it costs: as a table, as a line."""

from pathlib import Path

from plink.errors import PlinkError
from plink.model.spot.results import SpotStatus
from plink.model.units import format_duration
from plink.terminal.screen import print_lines, say_error, show_table
from runners.spot.status import status_if_rented


def rented_or_unknown(folder: Path) -> SpotStatus | None:
    """Return what is rented for a run; None where nothing ever was, or its journal is damaged, which is said."""
    try:
        return status_if_rented(folder)
    except PlinkError as error:
        say_error(f"what is rented is not known: {error}")
        return None


def show_rented(document: SpotStatus) -> None:
    """Print what is held for a run and why, and what it costs."""
    driver = "no driver runs" if document.driver is None else f"driver: process {document.driver}"
    over = "; the job is over" if document.job_ended else ""
    print_lines(f"{len(document.held)} instances of {document.provider} held; {driver}{over}")
    if document.driver is None and (document.held or document.open_requests):
        release = f"`plink spot release {document.run}`"
        print_lines(f"{release} ends them, else their leases where there are any; `plink spot drive` goes on")
    rows = [
        (
            *(row.host or row.instance, row.type, row.zone, row.state),
            format_duration(max(0.0, document.at_s - row.since_s)),
            *(f"{row.bid:.4f}", f"{row.cost:.4f}", row.reason),
        )
        for row in document.held
    ]
    if rows:
        show_table(("host", "type", "zone", "state", "for", "bid", "cost", "why"), rows)
    for row in document.open_requests:
        print_lines(f"requested, not answered yet: {row.count} x {row.type} in {row.zone} for {row.bid:.4f}")
    taken, refunded = document.ended["interrupted"], document.cost.refunded
    print_lines(
        cost_line(document),
        f"gone: {taken} taken by the provider ({refunded:.4f} not charged), {document.ended['released']} released",
    )


def cost_line(document: SpotStatus) -> str:
    """Return a line of what a run has cost, per iteration, and what on-demand would have cost."""
    cost = document.cost
    title = "cost" if document.job_ended and not document.held else "cost so far"
    each = "" if cost.per_iteration is None else f", {cost.per_iteration:.6f} an iteration"
    limit = "" if cost.budget is None else f" of {cost.budget:g}"
    held = f"; {len(document.held)} instances are held" if document.held else ""
    return (
        f"{title}: {cost.total:.4f}{limit}{each}; reliable machines {cost.anchors:.4f} of it; "
        f"the same machines on demand: {cost.on_demand:.4f}{held}"
    )
