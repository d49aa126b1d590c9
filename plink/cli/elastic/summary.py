"""``plink elastic summary``."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from plink.cli.elastic.cost import format_cost
from plink.cli.elastic.status import replication_lines
from plink.errors import printable
from plink.terminal.screen import print_json, print_lines

if TYPE_CHECKING:
    from plink.records.elastic_history import History


def summary(
    run: Annotated[str, typer.Argument(metavar="RUN", help="The run's id, the beginning of it, `last`, or a log.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """What an elastic run did and cost: iterations, their time by stage, bytes by host, what happened.

    The cost goes by the prices in the hosts file (price=X, money per hour) and by how long each host took part. Of a
    job with rented instances it is what these and the reliable machines cost, as `plink spot status` shows it.

    Example: plink elastic summary last
    """
    from plink.cli.elastic.history import history_from, log_path
    from plink.cli.elastic.status import spot_of

    document = _document(history_from(run)) | spot_of(log_path(run).parent)
    if as_json:
        print_json(document)
    else:
        _show(document)


def _document(history: "History") -> dict[str, Any]:
    from runners.elastic.cost_tracker import spent

    iterations = history.completed
    objectives = [each.objective for each in iterations if each.objective is not None]
    end = history.end
    return {
        "schema": "plink.elastic-summary/1",
        "seconds": round(history.seconds, 3),
        "end": None if end is None else {"why": end.why, "code": end.code},
        "iterations": len(iterations),
        "lost": sum(step.rolled_back for step in history.steps),
        "objective": objectives[-1] if objectives else None,
        "stages": _stages(history),
        "hosts": _hosts(history),
        "rule": history.rule,
        "shares": history.shares,
        "waited": _waited(history),
        "updates": history.updates.to_json(),
        "moved": round(sum(each.moved for each in iterations) / max(1, len(iterations)), 4),
        "help": _help(history),
        "hint": _hint(history),
        "replication": {
            "rounds": sum(each.rounds for each in history.replication),
            "bytes": sum(each.bytes for each in history.replication),
            "bound": history.divergence or None,
            "largest_distance": max((each.largest_distance for each in history.replication), default=0.0),
        },
        "events": [_event(event) for event in history.events],
        "cost": spent(history.members, len(iterations)),
    }


def _stages(history: "History") -> list[dict[str, Any]]:
    import statistics

    times: dict[int, list[float]] = {}
    for each in history.completed:
        times.setdefault(each.stage, []).append(each.seconds)
    return [
        {"stage": stage, "iterations": len(taken), "median_s": round(statistics.median(taken), 6)}
        for stage, taken in sorted(times.items())
    ]


def _hosts(history: "History") -> list[dict[str, Any]]:
    """By name, in the order of joining: a host that came back is one line, as its traffic is."""
    rows: dict[str, dict[str, Any]] = {}
    for member in history.members:
        joined = member.joined
        row = rows.setdefault(joined.host, {"host": joined.host, "tier": joined.tier, "price": None, "held_s": 0.0})
        row |= {
            "tier": joined.tier,
            "price": joined.price,
            "held_s": round(row["held_s"] + member.until - joined.at, 3),
        }
    for host, (sent, received) in history.traffic.items():
        row = rows.setdefault(host, {"host": host, "tier": None, "price": None, "held_s": None})
        row |= {"sent_bytes": sent, "received_bytes": received}
    for each in history.completed:
        for host, (computed_s, waited_s, steps) in each.work.items():
            row = rows.setdefault(host, {"host": host, "tier": None, "price": None, "held_s": None})
            row["computed_s"] = round(row.get("computed_s", 0.0) + computed_s, 6)
            row["waited_s"] = round(row.get("waited_s", 0.0) + waited_s, 6)
            row["steps"] = row.get("steps", 0) + steps
    nothing = dict.fromkeys(("sent_bytes", "received_bytes", "computed_s", "waited_s", "steps"))
    return [nothing | row for row in rows.values()]


def _waited(history: "History") -> float | None:
    """The share of the workers' time that they waited for others."""
    work = [row for each in history.completed for row in each.work.values()]
    total = sum(computed_s + waited_s for computed_s, waited_s, _ in work)
    return round(sum(waited_s for _, waited_s, _ in work) / total, 4) if total else None


def _help(history: "History") -> dict[str, dict[str, float]]:
    """By host which share of its work others did for it, of a mean iteration in which it worked."""
    result: dict[str, dict[str, float]] = {}
    worked: dict[str, int] = {}
    for each in history.completed:
        for host in each.work:
            worked[host] = worked.get(host, 0) + 1
        for host, helpers in each.help.items():
            shares = result.setdefault(host, {})
            for helper, share in helpers.items():
                shares[helper] = shares.get(helper, 0.0) + share
    return {
        host: {helper: round(share / max(1, worked.get(host, 0)), 4) for helper, share in helpers.items()}
        for host, helpers in result.items()
    }


def _hint(history: "History") -> dict[str, Any] | None:
    """A rule that would have saved more than a tenth."""
    if history.rule is None:
        return None
    from runners.elastic.rule_replay import Division, hint, step_seconds

    completed = history.completed
    batches = max(1, completed[-1].clock // (completed[-1].iteration + 1)) if completed else 1
    division = Division(history.shards, batches)
    steps = step_seconds([each.work for each in completed])
    result = hint(steps, history.rule, history.shares or "slots", division, optimisers=history.optimisers)
    return None if result is None else {"rule": result.rule, "saved": round(result.saved, 3)}


def _event(event: Any) -> dict[str, Any]:
    from dataclasses import asdict

    fields = {key: value for key, value in asdict(event).items() if value is not None}
    return {"at": fields.pop("at"), "what": event.what} | fields


def _show(document: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    from plink.model.units import format_bytes

    print_lines(*_sentences(document))
    console = Console(highlight=False, markup=False)
    if not console.is_terminal:
        console = Console(highlight=False, markup=False, width=200)
    measured = ("computed", "waited", "steps") if document["waited"] is not None else ()
    table = Table("host", "tier", "held", *measured, "sent", "received", "price/h", box=None, pad_edge=False)
    for row in document["hosts"]:
        held, *times = (
            "" if row[key] is None else f"{row[key]:,.1f} s" for key in ("held_s", "computed_s", "waited_s")
        )
        work = [*times, "" if row["steps"] is None else f"{row['steps']:,}"] if measured else []
        sizes = ("" if size is None else format_bytes(size) for size in (row["sent_bytes"], row["received_bytes"]))
        price = "" if row["price"] is None else f"{row['price']:g}"
        table.add_row(printable(row["host"]), row["tier"] or "", held, *work, *sizes, price)
    if document["hosts"]:
        console.print(table)
    if "spot" in document:
        from plink.cli.rented import show_rented

        show_rented(document["spot"])
    print_lines(*(f"{each[0]['at']:9,.1f} s  {_line(each)}" for each in _together(document["events"])))


def _sentences(document: dict[str, Any]) -> list[str]:
    from plink.cli.elastic.status import updates_sentence
    from plink.records.work_shares import help_sentence

    end, lost = document["end"], document["lost"]
    how = (
        "it still runs, or was cut off"
        if end is None
        else f"exit code {end['code']}" + (f" ({end['why']})" * bool(end["why"]))
    )
    lines = [f"{document['iterations']} iterations in {document['seconds']:,.1f} s; {how}"]
    if lost:
        lines.append(f"{lost} iterations were lost to roll-backs")
    if document["objective"] is not None:
        lines.append(f"objective: {document['objective']:.6g}")
    lines += [
        f"stage {row['stage']}: {row['iterations']} iterations, median {row['median_s']:.4g} s"
        for row in document["stages"]
    ]
    if document["waited"] is not None:
        rule = document["rule"] or "not known"
        rule += " --shares speed" if document["shares"] == "speed" else ""
        lines.append(f"rule {rule}: workers waited {document['waited']:.0%} of their time")
    if document["updates"] is not None:
        lines.append(updates_sentence(document["updates"]))
    if line := help_sentence(document["moved"], document["help"]):
        lines.append(line)
    lines += replication_lines(document["replication"])
    if document["hint"] is not None:
        lines.append(hint_line(document["hint"]))
    if "spot" in document:
        return lines
    cost = document["cost"]
    if cost["total"] is not None:
        lines.append(f"cost: {format_cost(cost)}")
    if cost["without_price"]:
        left_out = ", ".join(cost["without_price"][:5]) + ("..." if len(cost["without_price"]) > 5 else "")
        lines.append(f"without a price (price=X in the hosts file), so not in the cost: {left_out}")
    return lines


def hint_line(hint: dict[str, Any]) -> str:
    """What a hint says to a person."""
    exact = "exact as bsp" if hint["rule"].startswith("bsp") else "parameters are read older than under bsp"
    return (
        f"hint: --rule {hint['rule']} would have saved about {hint['saved']:.0%} ({exact}). This replays the run's own "
        "step times as if messages cost nothing; docs/stragglers.md has more"
    )


def _together(events: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Hosts of one tier that came, or went, one after the other within a second are one line."""
    groups: list[list[dict[str, Any]]] = []
    for event in events:
        alike = groups and event["what"] == "host" and all(groups[-1][0].get(k) == event[k] for k in ("event", "tier"))
        if alike and event["at"] - groups[-1][-1]["at"] < 1:
            groups[-1].append(event)
        else:
            groups.append([event])
    return groups


def _line(together: list[dict[str, Any]]) -> str:
    event = together[0]
    reasons = {each.get("why") for each in together}
    reason = f": {event['why']}" if event.get("why") and len(reasons) == 1 else ""
    if len(together) > 1:
        named = ", ".join(member["host"] for member in together[:3]) + ("..." if len(together) > 3 else "")
        return f"{len(together)} {event['tier']} hosts {event['event']} ({named}){reason}"
    if event["what"] == "host":
        left = f", {event['seconds']:.0f} s left" if event["event"] == "warned" and "seconds" in event else ""
        return f"{event['host']} ({event['tier']}) {event['event']}{left}{reason}"
    if event["what"] == "controller":
        return f"controller {event['event']}{reason}"
    return f"rolled back to clock {event['clock']}, {event['redone']} to be done again"
