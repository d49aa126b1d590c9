"""An elastic job: on reliable and transient hosts, of which the transient ones may come and go while it runs."""

import contextlib
import logging
import math
import os
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TextIO

import msgspec

from plink.errors import PlinkError, UsageError, printable
from plink.features.elastic.request import ElasticRequest
from plink.features.launch.run import Recording, RunDescription, recording
from plink.model.consistency import parse_rule
from plink.model.elastic.fields import UpdateCounts
from plink.model.elastic.status import ElasticStatus, JobControl
from plink.model.elastic.summary import ElasticResult
from plink.model.hosts import Hosts
from plink.model.network import Network
from plink.model.rules.ordered import Ordered
from plink.model.units import format_bytes, format_time
from plink.records.elastic_history import IterationValues
from plink.records.elastic_log import (
    KINDS,
    SOCKET,
    CheckpointLogEntry,
    ControllerEvent,
    ElasticLog,
    Entry,
    HostEvent,
    Iteration,
    ObjectiveLogEntry,
    RollBackLogEntry,
    StageChange,
)
from plink.records.elastic_log import NAME as LOG
from plink.records.runs import ELASTIC
from plink.transport.fleet import Connector
from runners.child import ExecConnector, LocalConnector
from runners.choice import connector_for
from runners.elastic.supervisor import JobSettingsOverride, Supervisor, SupervisorCallbacks
from runners.job.placement import RankLocation, new_id
from runners.job.runner import Job, RunObserver
from runners.launchers.slurm import StepConnector
from solvers.costs.fabric import fabric_of

_ITERATION_NOTES_S = 1.0  # between two lines about iterations, or about objectives that come later
log = logging.getLogger("plink.elastic")


class ElasticEvents:
    """The entries of one job's log. A line of the logger has its entry as ``entry``.

    :param on_entry: is given each entry.
    """

    def __init__(self, elastic_log: ElasticLog, on_entry: Callable[[Entry], None]) -> None:
        self._log, self._on_entry = elastic_log, on_entry
        self._seconds = IterationValues()
        self._noted_at: dict[type[Entry], float] = {}
        self.objective: float | None = None

    @property
    def iterations(self) -> int:
        """How many are done."""
        return len(self._seconds)

    @property
    def iteration_s(self) -> float | None:
        """The median; None before the first."""
        return statistics.median(self._seconds.values) if self._seconds else None

    def add(self, line: dict[str, Any]) -> None:
        """Take a line of the controller's log."""
        fields = {key: value for key, value in line.items() if key != "what"}
        if fields.get("updates") is not None:
            fields["updates"] = msgspec.convert(fields["updates"], UpdateCounts)
        entry: Entry = KINDS[line["what"]](**fields)
        self._log.add(entry)
        if isinstance(entry, Iteration):
            self._seconds.add(entry.iteration, entry.seconds)
        if isinstance(entry, Iteration | ObjectiveLogEntry) and entry.objective is not None:
            self.objective = entry.objective
        self._note(entry)
        self._on_entry(entry)

    def _note(self, entry: Entry) -> None:
        if isinstance(entry, Iteration | ObjectiveLogEntry):
            if time.monotonic() - self._noted_at.get(type(entry), -math.inf) < _ITERATION_NOTES_S:
                return
            self._noted_at[type(entry)] = time.monotonic()
        if (text := describe(entry)) is not None:
            log.info("%s", text, extra={"entry": entry})


def describe(entry: Entry) -> str | None:
    """A line for a person; None for what only a program asks for."""
    match entry:
        case Iteration():
            objective = "" if entry.objective is None else f", objective {entry.objective:.6g}"
            return (
                f"iteration {entry.iteration}: {format_time(entry.seconds)}{objective}, stage {entry.stage}, "
                f"{entry.workers} workers"
            )
        case ObjectiveLogEntry(objective=float(objective)):
            return f"iteration {entry.iteration}: objective {objective:.6g}"
        case HostEvent():
            seconds = "" if entry.seconds is None else f" ({entry.seconds:g} s)"
            return f"{entry.host} {entry.event}{seconds}: {entry.why}"
        case StageChange():
            return f"stage {entry.stage}: {entry.why}"
        case RollBackLogEntry():
            return f"rolled back to clock {entry.clock}: {entry.redone} clocks are done again"
        case ControllerEvent():
            reason = f": {entry.why}" if entry.why else ""
            return f"the controller {entry.event}{reason}" if entry.event != "started" or reason else None
        case CheckpointLogEntry():
            return f"checkpoint of clock {entry.clock}: {format_bytes(entry.bytes)}"
        case _:
            return None


_NODE = ("-m", "plink.runtime.elastic.node")


@dataclass(frozen=True)
class ElasticObserver(RunObserver):
    """Callbacks of an elastic job, whose ``rank`` is the number of a host.

    :param on_entry: gets each entry of the run's log (:mod:`plink.records.elastic_log`).
    :param on_status: gets every second how the job stands; None: nobody asks.
    :param on_start: gets the run's folder once the job takes requests, before its hosts are started.
    """

    on_entry: Callable[[Entry], None] = lambda entry: None
    on_status: Callable[[ElasticStatus], None] | None = None
    on_start: Callable[[Path], None] = lambda folder: None


def run_elastic(
    job: Job, hosts: Hosts, request: ElasticRequest | None = None, observer: ElasticObserver | None = None
) -> ElasticResult:
    """Train to the end of the job; how it ended is in what is returned, also where it failed.

    :param job: its program is a ``.py`` file that defines ``make(arguments)``, run by the first of ``pythons``.
    :param hosts: with a ``tier`` each; all of them are this machine where the runner is ``local``.
    :raises UsageError: for a program, hosts or a request that cannot be.
    :raises PlacementError: when a node runs on another host. :raises PlinkError: when the job could not be started.
    """
    options, observer = request or ElasticRequest(), observer or ElasticObserver()
    settings = options.settings()
    node, connector = prepare_elastic(job, hosts, options)
    note = {"backend": ELASTIC, "settings": settings}
    record = None if options.record is None else replace(options.record, note={**options.record.note, **note})
    run = RunDescription(new_id(), options.runner, job, hosts, {})
    rule = parse_rule(options.rule)
    if isinstance(rule, Ordered) and (caution := rule.caution(sum(host.slots for host in hosts))):
        log.warning("%s", caution)
    with recording(record, run) as current, _logs(current) as (elastic_log, notes):
        events = ElasticEvents(elastic_log, observer.on_entry)
        racks, link_rates = _measured(options.network, hosts)
        overrides = JobSettingsOverride({**settings, "link_rates": link_rates}, options.max_hosts, racks)
        identities: Mapping[str, dict[str, Any]] | None = None if options.runner == "local" else {}
        callbacks = _report(observer, events, current, notes, run.id, job.program)
        supervisor = Supervisor(connector, node, overrides, callbacks, identities, time.monotonic)
        control = JobControl(
            socket=supervisor.control_socket.name, pid=os.getpid(), lab=hosts.lab, runner=options.runner
        )
        control.write(current.folder / SOCKET)
        observer.on_start(current.folder)
        ended = supervisor.run(hosts)
        current.outcome = {"exit_code": ended.code, "seconds": ended.seconds, "why": ended.reason}
    return ElasticResult(
        id=run.id,
        exit_code=ended.code,
        seconds=ended.seconds,
        why=ended.reason,
        iterations=events.iterations,
        iteration_s=events.iteration_s,
        objective=events.objective,
    )


def prepare_elastic(job: Job, hosts: Hosts, request: ElasticRequest) -> tuple[Job, Connector]:
    """The node of each host as a job, and how hosts are reached.

    :raises UsageError: for what cannot be an elastic job.
    """
    check_program(job.program)
    if not any(host.tier == "reliable" for host in hosts):
        raise UsageError(
            "no reliable host: parameters would be lost with the hosts that may be taken away; mark one with "
            "tier=reliable"
        )
    if request.max_hosts is not None and request.max_hosts < len(hosts):
        raise UsageError(f"--max-hosts {request.max_hosts}: the job begins with {len(hosts)} hosts; give that or more")
    # Or the nodes of one machine would fight over its cores.
    env = ({"OMP_NUM_THREADS": "1"} if request.runner == "local" else {}) | job.env
    return replace(job, program=job.pythons[0], args=(*_NODE, job.program, *job.args), env=env), _connector(
        hosts, request
    )


def check_program(program: str) -> None:
    """:raises UsageError: for what cannot be the program of an elastic job."""
    if not program.endswith(".py"):
        raise UsageError(f"an elastic job: {program} must be a .py file that defines make(arguments)")


def _connector(hosts: Hosts, request: ElasticRequest) -> Connector:
    """:raises UsageError: what is needed for that is not here."""
    if request.runner == "local":
        return LocalConnector()
    over_ssh = connector_for(hosts, request.accept_new_host_keys)  # from inside the lab, where the hosts are a lab's
    if request.runner == "slurm":
        return StepConnector()
    if request.runner == "kubernetes":
        return ExecConnector()
    return over_ssh


@contextlib.contextmanager
def _logs(current: Recording) -> Iterator[tuple[ElasticLog, TextIO]]:
    """The run's log, and lines for whoever looks for the cause of something."""
    elastic_log, notes = ElasticLog(current.folder / LOG), (current.folder / "notes.log").open("a")
    try:
        yield elastic_log, notes
    finally:
        elastic_log.close()
        with contextlib.suppress(OSError):
            notes.close()
        if elastic_log.write_error is not None and (current.record is None or current.record.write_error is None):
            log.warning("%s", elastic_log.write_error)


def _report(
    observer: ElasticObserver, events: ElasticEvents, current: Recording, notes: TextIO, run: str, program: str
) -> SupervisorCallbacks:
    began = time.monotonic()

    def on_note(text: str) -> None:
        with contextlib.suppress(OSError):  # the disk is full, which the end of the log beside it tells
            notes.write(f"{time.monotonic() - began:9.3f} {printable(text)}\n")
            notes.flush()

    def on_line(number: int | None, stream: str, line: str) -> None:
        current.line(number, stream, line)
        observer.on_line(number, stream, line)

    def on_placement(locations: list[RankLocation]) -> None:
        observer.on_placement(locations)
        current.began = time.monotonic()
        log.info("%d/%d hosts verified; starting %s", len(locations), len(locations), program)

    show = observer.on_status
    return SupervisorCallbacks(
        on_line,
        events.add,
        on_note,
        lambda text: log.warning("%s", text),
        on_placement,
        observer.progress,
        None if show is None else lambda status: show(msgspec.convert({"run": run, **status}, ElasticStatus)),
        current.folder,
    )


def _measured(network: Network | None, hosts: Hosts) -> tuple[dict[str, str], dict[str, float]]:
    """Return groups of near hosts, named after their first host, and the bytes a second that hosts carry in their
    slower direction; empty where the network does not know these."""
    if network is None:
        return {}, {}
    try:
        fabric = fabric_of(network)
    except PlinkError as error:
        log.warning("the racks of hosts are not known: %s", error)
        return {}, {}
    hosts_by_name = network.hosts.by_name()
    if not any(host.name in hosts_by_name and hosts_by_name[host.name].address == host.address for host in hosts):
        return {}, {}
    names, groups = network.hosts.names, fabric.group_of
    first = {int(group): names[index] for index, group in reversed(list(enumerate(groups)))}
    racks = {name: first[int(group)] for name, group in zip(names, groups, strict=True)} if groups.max() else {}
    rates = zip(names, fabric.host_out_gbps, fabric.host_in_gbps, strict=True) if fabric.rate_gbps is not None else ()
    return racks, {name: float(min(out, into)) * 1e9 / 8 for name, out, into in rates}
