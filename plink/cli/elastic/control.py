"""``plink elastic add``, ``evict`` and ``checkpoint``: requests to an elastic job that runs."""

from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from plink.cli.elastic.live import RunId, ask_and_print, live_job
from plink.cli.screen import say, say_error
from plink.errors import UsageError


class HostTierChoice(StrEnum):
    """Of a host."""

    RELIABLE = "reliable"
    TRANSIENT = "transient"


def add(
    name: RunId,
    names: Annotated[list[str] | None, typer.Argument(metavar="HOST...", help="Names of hosts.")] = None,
    hosts_file: Annotated[
        Path | None, typer.Option("--hosts", help="Where they stand; default: the hosts that the job began with.")
    ] = None,
    tier: Annotated[
        HostTierChoice | None, typer.Option(help="Of all of them; default: as in the file.", show_default=False)
    ] = None,
    one_by_one: Annotated[
        bool, typer.Option("--one-by-one", help="Each works when it is ready, not all of them when the last one is.")
    ] = False,
) -> None:
    """Add hosts to an elastic job that runs: they load their data, then take over their share.

    Example: plink elastic add last --hosts more.txt
    """
    from plink.model.hosts import Host, read_hosts
    from runners.agile.control_socket import ask

    names = names or []
    run, job = live_job(name)
    if hosts_file is not None:
        hosts = read_hosts(hosts_file)
        if hosts.lab != job.get("lab"):
            raise UsageError(f"{hosts_file}: its hosts are not where the job's hosts are")
        members = [host for host in hosts if not names or host.name in names]
        if missing := set(names) - set(hosts.names):
            raise UsageError(f"{hosts_file}: no host {', '.join(sorted(missing))}")
    elif job.get("runner") == "local":
        members = [Host(name, "127.0.0.1", tier="transient") for name in names]
    else:
        members = [host for host in run.hosts() if host.name in names]
        if missing := set(names) - {host.name for host in members}:
            raise UsageError(f"{', '.join(sorted(missing))}: not among the job's first hosts; give their --hosts FILE")
    if not members:
        raise UsageError("no hosts to add: give --hosts FILE, or names of hosts that the job had")
    if tier is not None:
        members = [replace(host, tier=tier.value) for host in members]
    request = {"method": "add", "hosts": [vars(host) for host in members], "bulk": not one_by_one}
    answer = ask(job["socket"], request)
    say(f"added: {', '.join(answer['added'])}; they work when they have loaded their data")
    if note := answer.get("note"):
        say_error(note)


def evict(
    name: RunId,
    names: Annotated[list[str], typer.Argument(metavar="HOST...", help="Names of hosts.")],
    within: Annotated[str, typer.Option("--in", help="How long they have (30s, 2m); 0s: none.")] = "30s",
) -> None:
    """Warn hosts of an elastic job that they will be taken away: what they have moves on while there is time.

    Example: plink elastic evict last h3 h7 --in 2m
    """
    from plink.model.units import format_duration, parse_duration
    from runners.agile.control_socket import ask

    _, job = live_job(name)
    seconds = parse_duration(within) if within not in ("0", "0s") else 0.0
    answer = ask(job["socket"], {"method": "evict", "hosts": names, "seconds": seconds})
    say(f"warned: {', '.join(names)}, {format_duration(seconds) if seconds else 'no time'} left")
    if note := answer.get("note"):
        say_error(note)


def checkpoint(
    name: RunId,
    as_json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Have an elastic job that runs write a checkpoint now, and wait until it is on disk: its clock and its folder.

    Example: plink elastic checkpoint last
    """
    schema = "plink.elastic-checkpoint/1" if as_json else None
    ask_and_print(name, "checkpoint", schema, lambda document: [f"clock {document['clock']}: {document['folder']}"])
