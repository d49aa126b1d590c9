"""``plink elastic add``, ``evict`` and ``checkpoint``: requests to an elastic job that runs."""

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import IO, Annotated, Any

import typer

from plink.cli.elastic.live import RunId, ask_and_print, live_job
from plink.errors import PlinkError, UsageError
from plink.records import workspace
from plink.terminal.screen import say, say_error

_JOIN_TIMEOUT_S = 60.0
_LOAD_TIMEOUT_S = 10.0  # after all have joined: for them to load their data
_POLL_S = 0.2


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

    It waits until they work or are refused, for a minute at most once their
    programs have started.

    Example: plink elastic add last --hosts more.txt
    """
    from plink.model.hosts import Host, read_hosts
    from plink.records.elastic_log import NAME
    from runners.elastic.control_socket import ask

    names = names or []
    run, job = live_job(name)
    if hosts_file is not None:
        hosts = read_hosts(hosts_file).ranked()
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
    log = workspace.RUNS / run.id / NAME
    begin = log.stat().st_size
    say(f"asked for: {', '.join(host.name for host in members)}")
    answer = ask(job["socket"], request)
    if note := answer.get("note"):
        say_error(note)
    outcome = _Outcome(answer["added"])
    with log.open("rb") as file:
        file.seek(begin)
        outcome.wait(file, lambda: ask(job["socket"], {"method": "status"}))
    outcome.show()
    if outcome.errors:
        raise typer.Exit(3 if len(outcome.errors) < len(outcome.hosts) else 1)


@dataclass
class _Outcome:
    """What has come of hosts that were added."""

    hosts: Sequence[str]
    joined: set[str] = field(default_factory=set)
    working: set[str] = field(default_factory=set)
    errors: dict[str, str] = field(default_factory=dict)

    def wait(self, log: IO[bytes], status: Callable[[], Mapping[str, Any]]) -> None:
        """Wait for a bounded time until all work or are gone, by the log of their run and its status."""
        from plink.transport.json_lines import LineBuffer

        buffer, deadline = LineBuffer(), time.monotonic() + _JOIN_TIMEOUT_S
        while time.monotonic() < deadline:
            for entry in buffer.messages(log.read()):
                self._take(entry)
            with contextlib.suppress(PlinkError):  # the job has ended, which the log says
                self.working |= {host["name"] for host in status().get("hosts", ()) if host["shards"]} & self.joined
            if self.working | self.errors.keys() >= set(self.hosts):
                return
            if self.joined | self.errors.keys() >= set(self.hosts):
                deadline = min(deadline, time.monotonic() + _LOAD_TIMEOUT_S)
            time.sleep(_POLL_S)

    def _take(self, entry: Mapping[str, Any]) -> None:
        host = str(entry.get("host"))
        if entry["what"] == "end":
            self.errors |= {host: "the job has ended" for host in self.hosts if host not in self.joined}
        elif entry["what"] == "host" and host in self.hosts:
            if entry["event"] == "joined":
                self.joined.add(host)
            elif entry["event"] != "warned":
                self.errors[host] = entry["why"]

    def show(self) -> None:
        """Say it, hosts of one outcome in a line."""
        for message, those in (
            ("joined and at work", self.working),
            ("joined; they work when they have loaded their data", self.joined - self.working),
            ("not in the job yet (`plink elastic status` shows them when they are)", set(self.hosts) - self.joined),
        ):
            if names := [host for host in self.hosts if host in those and host not in self.errors]:
                say(f"{message}: {', '.join(names)}")
        for host, error in self.errors.items():
            say_error(f"error: {host} {'has left again' if host in self.joined else 'did not join'}: {error}")


def evict(
    name: RunId,
    names: Annotated[list[str], typer.Argument(metavar="HOST...", help="Names of hosts.")],
    within: Annotated[str, typer.Option("--in", help="How long they have (30s, 2m); 0s: none.")] = "30s",
) -> None:
    """Warn hosts of an elastic job that they will be taken away: what they have moves on while there is time.

    Example: plink elastic evict last h3 h7 --in 2m
    """
    from plink.model.units import format_duration, parse_duration
    from runners.elastic.control_socket import ask

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
