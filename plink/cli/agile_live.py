"""``plink agile add``, ``evict``, ``checkpoint`` and ``status``: wishes to an elastic job that runs."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from plink.cli.screen import print_json, say
from plink.errors import UsageError
from plink.records import workspace

if TYPE_CHECKING:
    from plink.records.runs import Run

SOCKET = "agile.json"  # in the run's folder
_Run = Annotated[str, typer.Argument(metavar="RUN", help="The run, the beginning of its id, or `last`.")]


def add(
    name: _Run,
    names: Annotated[list[str] | None, typer.Argument(metavar="HOST...", help="Names of hosts.")] = None,
    hosts_file: Annotated[
        Path | None, typer.Option("--hosts", help="Where they stand; default: the hosts that the job began with.")
    ] = None,
    tier: Annotated[
        str | None, typer.Option(help="reliable or transient; default: as in the file.", show_default=False)
    ] = None,
    one_by_one: Annotated[
        bool, typer.Option("--one-by-one", help="Each works when it is ready, not all of them when the last one is.")
    ] = False,
) -> None:
    """Add hosts to an elastic job that runs: they load their data, then take over their share.

    Example: plink agile add last --hosts more.txt
    """
    from plink.model.hosts import Host, read_hosts
    from runners.agile.asking import ask

    names = names or []
    run, job = _job(name)
    if hosts_file is not None:
        hosts = read_hosts(hosts_file)
        if hosts.lab != job.get("lab"):
            raise UsageError(f"{hosts_file}: its hosts are not where the job's hosts are")
        members = [host for host in hosts if not names or host.name in names]
        if missing := set(names) - set(hosts.names):
            raise UsageError(f"{hosts_file}: no host {', '.join(sorted(missing))}")
    elif job.get("runner") == "local":
        members = [Host(one, "127.0.0.1", tier="transient") for one in names]
    else:
        members = [host for host in run.hosts() if host.name in names]
        if missing := set(names) - {host.name for host in members}:
            raise UsageError(f"{', '.join(sorted(missing))}: not among the job's first hosts; give their --hosts FILE")
    if not members:
        raise UsageError("no hosts to add: give --hosts FILE, or names of hosts that the job had")
    if tier is not None:
        if tier not in ("reliable", "transient"):
            raise UsageError(f"--tier {tier}: reliable or transient")
        members = [replace(host, tier=tier) for host in members]
    wish = {"do": "add", "hosts": [vars(host) for host in members], "bulk": not one_by_one}
    answer = ask(job["socket"], wish)
    say(f"added: {', '.join(answer['added'])}; they work when they have loaded their data")
    if note := answer.get("note"):
        say(note)


def evict(
    name: _Run,
    names: Annotated[list[str], typer.Argument(metavar="HOST...", help="Names of hosts.")],
    within: Annotated[str, typer.Option("--in", help="How long they have (30s, 2m); 0s: none.")] = "30s",
) -> None:
    """Warn hosts of an elastic job that they will be taken away: what they have moves on while there is time.

    Example: plink agile evict last h3 h7 --in 2m
    """
    from plink.model.units import format_duration, parse_duration
    from runners.agile.asking import ask

    _, job = _job(name)
    seconds = parse_duration(within) if within not in ("0", "0s") else 0.0
    answer = ask(job["socket"], {"do": "evict", "hosts": names, "seconds": seconds})
    say(f"warned: {', '.join(names)}, {format_duration(seconds) if seconds else 'no time'} left")
    if note := answer.get("note"):
        say(note)


def checkpoint(
    name: _Run,
    as_json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Have an elastic job that runs write a checkpoint now, and wait until it is on disk: its clock and its folder.

    Example: plink agile checkpoint last
    """
    schema = "plink.elastic-checkpoint/1" if as_json else None
    _ask_and_print(name, "checkpoint", schema, lambda found: [f"clock {found['clock']}: {found['folder']}"])


def status(
    name: _Run,
    as_json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Show how an elastic job that runs stands: stage, hosts by what they do, iterations, bytes.

    Example: plink agile status last
    """
    _ask_and_print(name, "status", "plink.elastic-status/1" if as_json else None, _lines)


def _ask_and_print(name: str, what: str, schema: str | None, lines: Callable[[dict[str, Any]], list[str]]) -> None:
    """A wish that has a name only: its answer as JSON of a schema, or in lines."""
    from runners.agile.asking import ask

    run, job = _job(name)
    found = ask(job["socket"], {"do": what})
    if schema:
        print_json({"schema": schema, "run": run.id, **found})
    else:
        print("\n".join(lines(found)))


def _job(name: str) -> "tuple[Run, dict[str, Any]]":
    """The run, and where its hub listens. :raises UsageError: no such run, or it is of another kind."""
    from plink.model.storage import read_document
    from plink.records.runs import run_named

    run = run_named(workspace.RUNS, name)
    path = workspace.RUNS / run.id / SOCKET
    if not path.is_file():
        raise UsageError(f"{run.id} is no elastic job (`plink launch --backend agileml`)")
    return run, read_document(path)


def _lines(status: dict[str, Any]) -> list[str]:
    from plink.cli.agile_cost import cost_so_far
    from plink.model.units import format_bytes, format_time

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
    if waits := status.get("waits"):  # a job of an earlier plink has none
        lines.append(f"clock {waits['clock']} waits for {', '.join(waits['hosts'])} since {waits['seconds']:.0f} s")
    width = max(len(host["name"]) for host in status["hosts"])
    for host in status["hosts"]:
        doing = [
            f"{len(host[key])} {what}" for key, what in (("serves", "partitions"), ("backs", "backups")) if host[key]
        ]
        doing += [f"{host['pieces']} pieces"] if host["pieces"] else []
        state = "" if host["state"] == "there" else f", {host['state']}"
        carried = f"{format_bytes(host['sent'])} sent, {format_bytes(host['received'])} received"
        lines.append(f"{host['name']:{width}}  {host['tier']:9}  {', '.join(doing) or 'nothing'}{state}  ({carried})")
    return lines
