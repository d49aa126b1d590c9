"""``plink elastic status``."""

from typing import Annotated, Any

import typer

from plink.cli.elastic.cost import cost_so_far
from plink.cli.elastic.live import RunId, ask_and_print


def status(
    name: RunId,
    as_json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Show how an elastic job that runs stands: stage, hosts by what they do, iterations, bytes.

    Example: plink elastic status last
    """
    ask_and_print(name, "status", "plink.elastic-status/1" if as_json else None, status_lines)


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
