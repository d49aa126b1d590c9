"""Requests to an elastic job that runs."""

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any

import msgspec

from plink.errors import PlinkError, UsageError
from plink.model.elastic.status import ElasticCheckpoint, ElasticStatus
from plink.model.hostlist import check_name
from plink.model.hosts import Host, read_hosts
from plink.model.units import format_duration
from plink.records import workspace
from plink.records.elastic_log import NAME
from plink.terminal.elastic_runs import live_job
from plink.terminal.screen import say, say_error
from plink.transport.stdio_channel import LineBuffer
from runners.elastic.control_socket import ask

_JOIN_TIMEOUT_S = 60.0
_LOAD_TIMEOUT_S = 10.0  # after all have joined: for them to load their data
_POLL_S = 0.2


def status_of(name: str) -> ElasticStatus:
    """Return how a job stands.

    :raises PlinkError: when it does not run.
    """
    run, job = live_job(name)
    return msgspec.convert({"run": run.id, **ask(job.socket, {"method": "status"})}, ElasticStatus)


def write_checkpoint(name: str) -> ElasticCheckpoint:
    """Have a job write a checkpoint, and wait until it is on disk.

    :raises PlinkError: when it does not run, or has no folder for checkpoints.
    """
    run, job = live_job(name)
    return msgspec.convert({"run": run.id, **ask(job.socket, {"method": "checkpoint"})}, ElasticCheckpoint)


def evict_hosts(name: str, names: Sequence[str], seconds: float) -> None:
    """Warn hosts of a job that they will be taken away after so long.

    :raises PlinkError: when the job does not run, or has none of these names.
    """
    _, job = live_job(name)
    answer = ask(job.socket, {"method": "evict", "hosts": names, "seconds": seconds})
    say(f"warned: {', '.join(names)}, {format_duration(seconds) if seconds else 'no time'} left")
    if note := answer.get("note"):
        say_error(note)


def add_hosts(name: str, names: Sequence[str], hosts_file: Path | None, tier: str | None, one_by_one: bool) -> int:
    """Add hosts to a job and wait until they work or are refused; return the exit code.

    :param names: of the hosts; none: all of ``hosts_file``. :param hosts_file: None: the hosts that the job began with.
    :param tier: of all of them; None: as in the file. :param one_by_one: each works when it is ready.
    :raises PlinkError: when the job does not run, or there are no such hosts.
    """
    run, job = live_job(name)
    if hosts_file is not None:
        hosts = read_hosts(hosts_file).ranked()
        if hosts.lab != job.lab:
            raise UsageError(f"{hosts_file}: its hosts are not where the job's hosts are")
        members = [host for host in hosts if not names or host.name in names]
        if missing := set(names) - set(hosts.names):
            raise UsageError(f"{hosts_file}: no host {', '.join(sorted(missing))}")
    elif job.runner == "local":
        members = [Host(check_name(name, "plink elastic add"), "127.0.0.1", tier="transient") for name in names]
    else:
        members = [host for host in run.hosts() if host.name in names]
        if missing := set(names) - {host.name for host in members}:
            raise UsageError(f"{', '.join(sorted(missing))}: not among the job's first hosts; give their --hosts FILE")
    if not members:
        raise UsageError("no hosts to add: give --hosts FILE, or names of hosts that the job had")
    if tier is not None:
        members = [replace(host, tier=tier) for host in members]
    request = {"method": "add", "hosts": [vars(host) for host in members], "bulk": not one_by_one}
    log = workspace.RUNS / run.id / NAME
    begin = log.stat().st_size
    say(f"asked for: {', '.join(host.name for host in members)}")
    answer = ask(job.socket, request)
    if note := answer.get("note"):
        say_error(note)
    outcome = _Outcome(answer["added"])
    with log.open("rb") as file:
        file.seek(begin)
        outcome.wait(file, lambda: ask(job.socket, {"method": "status"}))
    outcome.show()
    return 0 if not outcome.errors else 3 if len(outcome.errors) < len(outcome.hosts) else 1


@dataclass
class _Outcome:
    """What has come of hosts that were added."""

    hosts: Sequence[str]
    joined: set[str] = field(default_factory=set)
    working: set[str] = field(default_factory=set)
    errors: dict[str, str] = field(default_factory=dict)

    def wait(self, log: IO[bytes], status: Callable[[], Mapping[str, Any]]) -> None:
        """Wait for a bounded time until all work or are gone, by the log of their run and its status."""
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
