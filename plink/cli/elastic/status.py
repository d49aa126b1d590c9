"""``plink elastic status``."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from plink.cli.elastic.cost import cost_so_far
from plink.cli.elastic.live import RunId, live_job
from plink.terminal.screen import print_json, print_lines

if TYPE_CHECKING:
    from pathlib import Path


def status(
    name: RunId,
    as_json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Show how an elastic job that runs stands: stage, hosts by what they do, iterations, bytes.

    Of a job with rented instances: what is held and why, and what it costs, as `plink spot status` shows it.

    Example: plink elastic status last
    """
    from plink.cli.rented import show_rented
    from plink.records import workspace
    from runners.elastic.control_socket import ask

    run, job = live_job(name)
    answer = ask(job["socket"], {"method": "status"})
    spot = spot_of(workspace.RUNS / run.id)
    if as_json:
        print_json({"schema": "plink.elastic-status/1", "run": run.id, **answer, **spot})
        return
    rented = spot.get("spot")
    print_lines(*status_lines(answer if rented is None else {**answer, "cost": None}))
    if rented is not None:
        show_rented(rented)


def spot_of(folder: "Path") -> dict[str, Any]:
    """Return what is rented for a run, under ``spot``; nothing where nothing ever was, or its journal is damaged, which
    is said."""
    from plink.cli.rented import rented_document
    from plink.errors import PlinkError
    from plink.terminal.screen import say_error

    try:
        document = rented_document(folder)
    except PlinkError as error:
        say_error(f"what is rented is not known: {error}")
        return {}
    return {} if document is None else {"spot": document}


def replication_lines(replication: dict[str, Any] | None) -> list[str]:
    """What a person is told of pushes to replicas, if there were any."""
    from plink.model.units import format_bytes

    if not replication or not replication["rounds"]:
        return []
    line = f"replicas: {format_bytes(replication['bytes'])} in {replication['rounds']:,} rounds"
    if replication["bound"]:
        now = f"distance {replication['distance']:.4g}, " if "distance" in replication else ""
        line += f"; {now}largest {replication['largest_distance']:.4g} (--divergence {replication['bound']})"
    return [line]


def status_lines(status: dict[str, Any]) -> list[str]:
    """What a person is told of it."""
    from plink.model.units import format_bytes, format_time
    from plink.records.work_shares import help_sentence, work_sentence, work_shares

    if status["stage"] is None:
        return ["hosts get ready"]
    seconds = "" if status["iteration_s"] is None else f", {format_time(status['iteration_s'])} each"
    objective = "" if status["objective"] is None else f", objective {status['objective']:.6g}"
    lines = [
        f"stage {status['stage']}, {max(0, status['iteration'])} iterations{seconds}{objective}",
        f"clock {status['begun']}; safe up to clock {status['consistent']}"
        + ("" if status["checkpoint"] is None else f", on disk up to clock {status['checkpoint']}"),
    ]
    if cost := cost_so_far(status):
        lines.append(f"cost so far: {cost}")
    shares = work_shares(status.get("work", {}))
    if sentence := work_sentence(status.get("work", {}), status["iteration"]):
        lines.append(sentence)
    if sentence := help_sentence(status.get("moved", 0.0), status.get("help", {})):
        lines.append(f"iteration {status['iteration']}: {sentence}")
    if updates := status.get("updates"):
        lines.append(updates_sentence(updates))
    lines += replication_lines(status.get("replication"))
    if waits := status["waits"]:
        lines.append(f"clock {waits['clock']} waits for {', '.join(waits['hosts'])} since {waits['seconds']:.0f} s")
    width = max(len(host["name"]) for host in status["hosts"])
    for host in status["hosts"]:
        doing = [
            f"{len(host[key])} {what}"
            for key, what in (("serves", "partitions"), ("replicas", "replicas"))
            if host[key]
        ]
        doing += [f"{host['shards']} shards"] if host["shards"] else []
        doing += [f"waited {shares.by_host[host['name']]:.0%}"] if shares and host["name"] in shares.by_host else []
        state = "" if host["state"] == "there" else f", {host['state']}"
        traffic = f"{format_bytes(host['sent'])} sent, {format_bytes(host['received'])} received"
        lines.append(f"{host['name']:{width}}  {host['tier']:9}  {', '.join(doing) or 'nothing'}{state}  ({traffic})")
    return lines


def updates_sentence(updates: dict[str, Any]) -> str:
    """What a person is told of the updates of asynchronous workers."""
    applied, dropped, unsent, planned = (updates[key] for key in ("applied", "dropped", "unsent", "planned"))
    total = applied + dropped + unsent
    text = f"updates (one a step and partition): {applied:,} applied, {dropped:,} dropped ({dropped / total:.1%})"
    text += f", {unsent:,} before they were sent ({unsent / total:.1%})" if unsent else ""
    if planned:
        text += f"; {planned:,} transfers took {updates['lateness']:.2f} times their plan"
        text += f", {updates['grouped']:,} of them for several workers" if updates["grouped"] else ""
    if not applied:
        return text
    shares = ", ".join(
        "-".join(map(str, sorted({row["least"], row["most"]}))) + f": {row['updates'] / applied:.0%}"
        for row in updates["delays"]
        if row["updates"]
    )
    return f"{text}; delay {updates['mean_delay']:.1f}, at most {updates['largest_delay']} ({shares})"
