"""What is rented for a run, and what it costs: as JSON, as a table, as a line."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from plink.api.spot_state import SpotState

_DIGITS = 6


def rented_document(folder: "Path") -> dict[str, Any] | None:
    """Return ``plink.spot-status/1`` of a run's folder, None where nothing was ever rented for it.

    :raises PlinkError: when its journal or market file cannot be read.
    """
    from plink.api.spot_state import spot_state
    from plink.records.spot_journal import FOLDER, MARKET_COPY, NAME

    if not (folder / FOLDER / NAME).exists() or not (folder / FOLDER / MARKET_COPY).exists():
        return None
    if (folder / FOLDER / NAME).stat().st_size == 0:
        return None
    return document_of(spot_state(folder), folder)


def rented_or_unknown(folder: "Path") -> dict[str, Any] | None:
    """Return what is rented for a run; None where nothing ever was, or its journal is damaged, which is said."""
    from plink.errors import PlinkError
    from plink.terminal.screen import say_error

    try:
        return rented_document(folder)
    except PlinkError as error:
        say_error(f"what is rented is not known: {error}")
        return None


def _iterations(folder: "Path") -> int:
    """Return how many iterations of the job count."""
    from plink.errors import InputError
    from plink.records.elastic_history import history_of
    from plink.records.elastic_log import NAME, read_elastic_log

    try:
        return len(history_of(read_elastic_log(folder / NAME)).completed)
    except InputError:
        return 0


def document_of(state: "SpotState", folder: "Path") -> dict[str, Any]:
    """Return ``plink.spot-status/1`` of a run's folder."""
    iterations = _iterations(folder)
    ledger, cost = state.ledger, state.account
    assert ledger.opened is not None
    ends = [each.end for each in ledger.instances.values()]
    return {
        "schema": "plink.spot-status/1",
        "run": state.run,
        "provider": ledger.opened.provider,
        "at_s": round(state.at_s, 3),
        "driver": state.driver,
        "job_ended": ledger.job_ended,
        "held": [
            {
                "instance": each.id, "host": each.host, "zone": each.market.zone, "type": each.market.type,
                "on_demand": each.market.is_on_demand,
                "bid": each.bid, "since_s": each.since_s,
                "state": "releasing" if each.released_at_s is not None
                else "draining" if each.draining_since_s is not None
                else "starting" if each.host is None else "working",
                "reason": each.reason or ledger.requests[each.token].entry.reason,
                "cost": round(state.money_of(each.id), _DIGITS),
            }
            for each in ledger.held
        ],
        "open_requests": [
            {"token": each.entry.token, "zone": each.entry.zone, "type": each.entry.type, "count": each.entry.count,
             "bid": each.entry.bid}
            for each in ledger.open_requests
        ],
        "ended": {kind: ends.count(kind) for kind in ("interrupted", "released")},
        "cost": {
            "total": round(cost.total, _DIGITS), "transient": round(cost.transient, _DIGITS),
            "anchors": round(cost.anchors, _DIGITS), "refunded": round(cost.refunded, _DIGITS),
            "on_demand": round(cost.on_demand, _DIGITS),
            "per_iteration": round(cost.total / iterations, _DIGITS) if iterations else None,
            "budget": state.budget,
        },
    }  # fmt: skip


def show_rented(document: Any) -> None:
    """Print what is held and why, and what it costs."""
    from plink.model.units import format_duration
    from plink.terminal.screen import print_lines
    from plink.terminal.tables import show_table

    driver = "no driver runs" if document["driver"] is None else f"driver: process {document['driver']}"
    over = "; the job is over" if document["job_ended"] else ""
    print_lines(f"{len(document['held'])} instances of {document['provider']} held; {driver}{over}")
    rows = [
        (row["host"] or row["instance"], row["type"], row["zone"], row["state"],
         format_duration(max(0.0, document["at_s"] - row["since_s"])), f"{row['bid']:.4f}", f"{row['cost']:.4f}",
         row["reason"])
        for row in document["held"]
    ]  # fmt: skip
    if rows:
        show_table(("host", "type", "zone", "state", "for", "bid", "cost", "why"), rows)
    for row in document["open_requests"]:
        print_lines(
            f"requested, not answered yet: {row['count']} x {row['type']} in {row['zone']} for {row['bid']:.4f}"
        )
    print(cost_line(document))
    cost, ended = document["cost"], document["ended"]
    print(f"gone: {ended['interrupted']} taken by the provider ({cost['refunded']:.4f} not charged), "
          f"{ended['released']} released")  # fmt: skip


def cost_line(document: dict[str, Any]) -> str:
    """Return a line of what a run has cost, per iteration, and what on-demand would have cost."""
    cost = document["cost"]
    title = "cost" if document["job_ended"] and not document["held"] else "cost so far"
    each = "" if cost["per_iteration"] is None else f", {cost['per_iteration']:.6f} an iteration"
    limit = "" if cost["budget"] is None else f" of {cost['budget']:g}"
    held = f"; {len(document['held'])} instances are held" if document["held"] else ""
    return (
        f"{title}: {cost['total']:.4f}{limit}{each}; reliable machines {cost['anchors']:.4f} of it; "
        f"the same machines on demand: {cost['on_demand']:.4f}{held}"
    )
