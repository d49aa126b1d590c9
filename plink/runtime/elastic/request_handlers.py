"""Requests of a controller to a host: handlers, and which of them take long."""

import base64
import itertools
import os
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from plink.elastic.app import App, unwritable
from plink.elastic.app_error import MISTAKES, app_error
from plink.elastic.params import Params
from plink.errors import InputError, PlinkError
from plink.model.checkpoint_names import partition_file
from plink.model.consistency import parse_rule
from plink.model.divergence import parse_divergence
from plink.model.elastic import reports
from plink.model.elastic import requests as r
from plink.model.elastic.fields import DivergenceReport, ShardMap, StageThresholds, TrafficCounters, UpdateCounts
from plink.model.elastic.reports import Log, NodeMessage, PartitionsChanged
from plink.model.elastic.requests import Begun, HostReport, Paused
from plink.runtime.elastic.helping.host_rebalancing import HostRebalancing
from plink.runtime.elastic.helping.sides import Rebalance
from plink.runtime.elastic.host.checkpoint_folder import JobCheckpoints, discard, keep, with_room
from plink.runtime.elastic.host.preemption import Notices, PreemptionNotice, parse_source
from plink.runtime.elastic.partition.partition import RejectedRequest
from plink.runtime.elastic.replica.snapshot import Role
from plink.runtime.elastic.server import SavedState, Server
from plink.runtime.elastic.transport.connection import StoreConfig
from plink.runtime.elastic.transport.keys import RunKeys
from plink.runtime.elastic.transport.records import TRAFFIC
from plink.runtime.elastic.worker.announcer import Announcer, LocalGroups
from plink.runtime.elastic.worker.client import Client
from plink.runtime.elastic.worker.clock_work import LoadedShards
from plink.runtime.elastic.worker.primaries import PrimaryAddress, Timeouts
from plink.runtime.elastic.worker.progress import job_layout
from plink.runtime.elastic.worker.worker_threads import WorkerThreads
from plink.transport.supervisor import LOW_PRIORITY, set_low_priority

_SERVER_WAIT_S = 5.0
_TIMEOUTS = Timeouts(primary_s=60.0, workers_s=3600.0)
_POLL_INTERVAL_S = 0.05
_MAX_LOGGED_REFUSALS = 20  # that a node tells of
_RETRY_S = 0.05
MAX_RETRIES = 40

Does = Callable[[Server, Any], r.Result | None]


def _restore(server: Server, request: r.Restore) -> None:
    saved = SavedState(Path(request.path), request.clock, request.of_another_job)
    server.restore(request.partition, saved, {}, generation=request.generation, term=request.term)


def _forget(server: Server, request: r.Forget) -> None:
    """Cancel moves of earlier terms."""
    for status in server.status():
        server.cancel(status.partition, request.term)


def _set_participants(server: Server, request: r.SetParticipants) -> r.Result:
    """Set the participants of partitions from a clock on; return the partitions that are not served here."""
    elsewhere = []
    for partition in request.partitions:
        try:
            server.workers_from(partition, request.workers, request.first)
        except PlinkError as error:
            elsewhere.append((partition, str(error)))
    return r.ParticipantsSet(tuple(elsewhere))


def _checkpoint(server: Server, request: r.WriteCheckpoint) -> r.Result:
    """Write partitions into files of a folder."""
    folder, began, size = Path(request.folder), time.monotonic(), 0
    for partition in request.partitions:
        path = folder / partition_file(partition)

        def write(partition: int = partition, path: Path = path) -> None:
            folder.mkdir(parents=True, exist_ok=True)
            server.checkpoint(partition, path, request.clock)

        with_room(folder, request.job, write)
        size += path.stat().st_size
    return r.CheckpointWritten(time.monotonic() - began, size)


AT_ONCE: Mapping[type[r.Request], Does] = {
    r.Open: lambda server, q: server.open(q.partition, {}, generation=q.generation, term=q.term, history=True),
    r.Cancel: lambda server, q: r.Cancelled(off=server.cancel(q.partition, q.term)),
    r.SetReplica: lambda server, q: server.set_replica(q.partition, q.address),
    r.StopReplicating: lambda server, q: server.stop_replicating(q.partition, q.address),
    r.Drop: lambda server, q: server.drop(q.partition, q.term),
    r.Promote: lambda server, q: server.promote(q.partition, {}, q.first, q.term),
    r.Forget: _forget,
    r.Truncate: lambda server, q: server.truncate(q.clock),
    r.ReplicateUpTo: lambda server, q: server.replicate_up_to(q.clock),
    r.SetParticipants: _set_participants,
}
MOVING: Mapping[type[r.Request], Does] = {
    r.Prepare: lambda server, q: server.prepare(q.partition, q.address, q.term, replica=q.replica),
    r.AddReplica: lambda server, q: server.add_replica(q.partition, q.address),
    r.RestoreTo: lambda server, q: server.restore_to(q.partition, q.address, q.term, {}, q.first),
}
LONG: Mapping[type[r.Request], Does] = {
    **MOVING,
    r.Commit: lambda server, q: server.commit(q.partition, q.term),
    r.Restore: _restore,
    r.WriteCheckpoint: _checkpoint,
}


_Handler = Callable[[Any, Any], r.Result | None]
_Method = TypeVar("_Method", bound=_Handler)


def _by_server(does: Does) -> _Handler:
    return lambda host, request: does(host.server, request)


# By the node; the methods below that handle a request are among them.
SHORT_HANDLERS: dict[type[r.Request], _Handler] = {
    **{kind: _by_server(does) for kind, does in AT_ONCE.items()},
    r.Pause: lambda host, q: Paused(host.workers.pause(q.clock)),
    r.Resume: lambda host, q: host.workers.resume(),
    r.TakeOver: lambda host, q: host.workers.take_over(q.worker, q.had, q.clock, q.until, q.generation),
}
LONG_HANDLERS: dict[type[r.Request], _Handler] = {
    **{kind: _by_server(does) for kind, does in LONG.items()},
    r.KeepCheckpoint: lambda host, q: keep(Path(q.folder), q.saved, q.job),
    r.DiscardCheckpoint: lambda host, q: r.CheckpointDiscarded(discard(Path(q.folder), q.job)),
}
# Sent to those that have not joined yet, too, or to all: it does not mean that they are waited for.
LOW_PRIORITY_REQUESTS = (
    *(r.Begin, r.LoadShards, r.SetPrimaries, r.ReplicateUpTo, r.ReportPartitions),
    *(r.KeepThresholds, r.Truncate, r.Forget, r.Report, r.RollBack, r.AssignShards),
)


def _handles(kind: type[r.Request], *, takes_long: bool = False) -> Callable[[_Method], _Method]:
    def register(method: _Method) -> _Method:
        (LONG_HANDLERS if takes_long else SHORT_HANDLERS)[kind] = method
        return method

    return register


def in_thread(does: Callable[..., None], *arguments: Any) -> None:
    """Run something in a thread of its own."""
    threading.Thread(target=does, args=arguments, name="plink-command", daemon=True).start()


class RequestHandlers(ABC):
    """State of one job on one host, and what its controller's requests do with it."""

    def __init__(self, app: App[Any]) -> None:
        self._app = app
        self._server: Server | None = None
        self._groups = LocalGroups()
        self._workers: WorkerThreads | None = None
        self._helping: HostRebalancing | None = None
        self._loaded: LoadedShards[Any] = LoadedShards(app)
        self._primaries: dict[int, PrimaryAddress] = {}
        self._number = 0  # the largest that a controller gave
        self._map: ShardMap | None = None
        self._thresholds: StageThresholds | None = None
        self._ending = False
        self._notice_s = 30.0
        self._notices: Notices | None = None
        self._checkpoints = JobCheckpoints()
        self._reported: dict[int, tuple[str, int, int, int, int]] = {}
        self._divergence: dict[int, DivergenceReport] = {}
        self._refusals = itertools.count()
        self._low_priority = LOW_PRIORITY in os.environ  # until there is something to do here

    @abstractmethod
    def _send(self, message: NodeMessage) -> None:
        """Send a message to the controller."""

    def _log(self, text: str) -> None:
        self._send(Log(text))

    def _ending_notice(self, notice: PreemptionNotice) -> None:
        self._send(reports.Notice(notice.seconds, notice.reason))

    @property
    def server(self) -> Server:
        """Return the server.

        :raises RejectedRequest: before it was begun.
        """
        if self._server is None:
            raise RejectedRequest("nothing has begun here")
        return self._server

    @property
    def workers(self) -> WorkerThreads:
        """Return the workers.

        :raises RejectedRequest: before they were begun.
        """
        if self._workers is None:
            raise RejectedRequest("nothing has begun here")
        return self._workers

    # Requests of the controller.

    @_handles(r.Begin)
    def begin(self, request: r.Begin) -> Begun:
        """Start a server that listens, and workers that have nothing to do; once."""
        if self._server is None:
            rule = parse_rule(request.rule)
            keys = RunKeys(base64.b64decode(request.keys))
            bound = parse_divergence(request.divergence)
            config = StoreConfig(job_layout(self._app, request.partitions), keys, rule, bound)
            self._server = Server(config, host=request.address, timeout_s=_SERVER_WAIT_S, refused=self._refused)
            self._server.note, self._server.link_bytes_s = self._log, request.link_bytes_s
            home, rate, groups = self._server.address, request.link_bytes_s, self._groups

            def client(number: int, clock: int, generation: int) -> Client:
                made = Client(config, number, self._primaries, clock=clock, generation=generation, timeouts=_TIMEOUTS)
                made.announcer = Announcer(config.layout, home, rate, groups) if config.arbitrated else None
                return made

            self._client = client
            if request.rebalance:
                self._helping = HostRebalancing(self._loaded, self._server, Rebalance(), self._log)
            self._workers = WorkerThreads(self._loaded, client, self._send, request.started, self._helping)
            self._notice_s = request.notice_s
            self._checkpoints = JobCheckpoints(request.checkpoints, request.restore, request.job)
            if request.notices:
                self._notices = Notices(
                    parse_source(request.notices),
                    on_notice=self._ending_notice,
                    on_trouble=self._log,
                )
            threading.Thread(target=self._watch_partitions, name="plink-watch", daemon=True).start()
        file = self._app.result_file
        return Begun(
            self.server.address,
            self._checkpoints.unwritable() if request.reliable else None,
            unwritable(file) if request.reliable and file else None,
            *self._checkpoints.on_disk(),
        )

    @_handles(r.RollBack)
    def roll_back(self, request: r.RollBack) -> None:
        """Roll back servers and replicas; workers wait for their assignments in the new generation."""
        _persist(lambda: self.server.roll_back(request.clock, request.generation))
        self.workers.rolled_back(request.clock, request.generation)

    @_handles(r.Reset)
    def reset(self, request: r.Reset) -> None:
        """Reset all state, perhaps to go on from a checkpoint: partitions are opened one by one."""
        self.server.reset(request.generation)
        self.workers.rolled_back(request.clock, request.generation)

    @_handles(r.ReportPartitions)
    def report_partitions(self, request: r.ReportPartitions) -> None:
        """Report all partitions anew, to a controller that does not know earlier reports."""
        self._reported.clear()

    @_handles(r.SetPrimaries)
    def set_primaries(self, request: r.SetPrimaries) -> None:
        """Note which server is the primary of each partition."""
        primaries = {number: PrimaryAddress(address, term) for number, (address, term) in request.primaries.items()}
        for number, primary in primaries.items():
            if number not in self._primaries or primary.term >= self._primaries[number].term:
                self._primaries[number] = primary
        self.workers.set_primaries(primaries)
        if self._helping is not None:
            self._helping.set_primaries(primaries)

    @_handles(r.AssignShards)
    def assign(self, request: r.AssignShards) -> None:
        """Assign shards from a clock on: here, and everywhere (for a controller that is started again)."""
        self._map = ShardMap(request.clock, request.generation, request.everywhere, request.left)
        self.workers.assign(request.workers, request.clock, request.generation)
        if self._helping is not None:
            self._helping.assign(request.everywhere, request.addresses)

    @_handles(r.KeepThresholds)
    def keep_thresholds(self, request: r.KeepThresholds) -> None:
        """Keep the thresholds that were measured (for a controller that is started again)."""
        self._thresholds = StageThresholds(**r.params_of(request))

    @_handles(r.LoadShards, takes_long=True)
    def load(self, request: r.LoadShards) -> None:
        """Load shards of the input data into memory."""
        self._loaded.ahead(request.shards)
        if self._low_priority:
            self._raise_priority()

    @_handles(r.MarkFolder, takes_long=True)
    def mark_folder(self, request: r.MarkFolder) -> None:
        """Show other hosts that the folder of checkpoints is the one that this host sees."""
        self._checkpoints.mark()

    @_handles(r.CheckFolder, takes_long=True)
    def check_folder(self, request: r.CheckFolder) -> None:
        """Fail where the mark of another host is not seen."""
        self._checkpoints.check_mark()

    @_handles(r.WriteResult, takes_long=True)
    def result(self, request: r.WriteResult) -> None:
        """Run the program's ``result()`` on the final parameters."""
        client = self._client(-1, request.clock, request.generation)
        params = Params(client, self._app.seed, 0, request.clock)
        try:
            self._app.result(params)
        except MISTAKES as error:
            if params.failed is not None and not isinstance(params.failed, InputError):
                raise params.failed from error  # of the servers, whatever the program made of it
            raise app_error(f"app {self._app.name}: result()", error) from error
        finally:
            client.close()

    @_handles(r.Report)
    def report(self, request: r.Report) -> HostReport:
        """Report all that a restarted controller has to know of this host."""
        serves: dict[int, int] = {}
        replicas: dict[int, tuple[int, ...]] = {}
        in_doubt: dict[int, tuple[int, ...]] = {}
        generation, number = (
            self.workers.generation,
            max([self._number, *(primary.term for primary in self._primaries.values())]),
        )
        for item in self.server.status():
            generation, number = max(generation, item.generation), max(number, item.term, item.generation)
            if item.role == Role.SERVING:
                serves[item.partition] = item.term
            if item.role in (Role.SERVING, Role.REPLICA):
                replicas[item.partition] = item.clocks
            if item.role == Role.IN_DOUBT:
                in_doubt[item.partition] = item.clocks
        saved, own = self._checkpoints.on_disk()
        return HostReport(
            serves=serves,
            replicas=replicas,
            in_doubt=in_doubt,
            generation=generation,
            number=number,
            loaded=tuple(self._loaded.here()),
            map=self._map,
            address=self.server.address,
            workers=self.workers.own(),
            takeovers=self.workers.takeovers(),
            begun=self.workers.begun,
            finished=self.workers.finished,
            paused=self.workers.paused,
            traffic=self._traffic(),
            thresholds=self._thresholds,
            saved=saved,
            own=own,
        )

    @_handles(r.Bye)
    def bye(self, request: r.Bye) -> None:
        """End the node; nothing of this host is needed any more."""
        if request.over:
            self._checkpoints.unmark()
        self._ending = True

    def _raise_priority(self) -> None:
        self._low_priority = False
        in_thread(set_low_priority, False)

    def _refused(self, reason: str) -> None:
        """Log a refused connection; of somebody who tries for days not each time."""
        if next(self._refusals) < _MAX_LOGGED_REFUSALS:
            self._send(Log(f"a connection to its server was closed: {reason}"))

    def _watch_partitions(self) -> None:
        while not self._ending:
            self._report_changes()
            time.sleep(_POLL_INTERVAL_S)

    def _report_changes(self) -> None:
        """Report what has changed of partitions."""
        changed, divergence = {}, {}
        for item in self.server.status():
            if item.divergence is not None:
                divergence[item.partition] = item.divergence
            now = (item.role.value, item.generation, item.term, item.clocks[-1] if item.clocks else -1, item.replicated)
            if self._reported.get(item.partition) != now:
                self._reported[item.partition] = changed[item.partition] = now
        if changed or divergence != self._divergence:
            self._divergence = divergence
            self._send(PartitionsChanged(changed, divergence))

    def _traffic(self) -> TrafficCounters:
        total, server = TRAFFIC.total(), self._server
        if server is None:
            return total
        return msgspec.structs.replace(total, updates=server.updates() + UpdateCounts(unsent=self._groups.unsent))


def _persist(does: Callable[[], None]) -> None:
    """Retry for a moment what is refused for a passing reason."""
    for _ in range(MAX_RETRIES):
        try:
            does()
        except RejectedRequest as error:
            refused = error
            time.sleep(_RETRY_S)
        else:
            return
    raise refused
