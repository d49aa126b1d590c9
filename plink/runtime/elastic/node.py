"""One host of an elastic job: ``python -m plink.runtime.elastic.node APP.py ARGUMENTS``.

It has a parameter server and workers, and executes the controller's requests from the agent's channel; it decides
nothing. What takes long runs in threads of its own and is answered when it is done; everything else is done in the
order in which it was received.

Every request that wants an answer has an ``id``, which the answer repeats; every one has the term of the controller
that sent it, and those of an older term than was received already are refused (fencing).
"""

import base64
import itertools
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec

from plink import __version__
from plink.elastic.app import App, unwritable
from plink.elastic.app_error import app_error
from plink.elastic.params import Params
from plink.errors import InputError, PlinkError, ProtocolError
from plink.model.consistency import parse_rule
from plink.model.divergence import parse_divergence
from plink.model.elastic import reports
from plink.model.elastic import requests as r
from plink.model.elastic.codec import VERSION, Envelope, decode_request, encode_message
from plink.model.elastic.fields import DivergenceReport, ShardMap, StageThresholds, TrafficCounters, UpdateCounts
from plink.model.elastic.reports import Alive, Answer, Failed, Hello, Log, NodeMessage, PartitionsChanged
from plink.model.elastic.requests import Begun, HostReport, Paused, Result, method_of
from plink.runtime.elastic import request_handlers
from plink.runtime.elastic.helping.host_rebalancing import HostRebalancing
from plink.runtime.elastic.helping.sides import Rebalance
from plink.runtime.elastic.host.checkpoint_folder import JobCheckpoints, discard, keep
from plink.runtime.elastic.host.control_channel import ControlChannel
from plink.runtime.elastic.host.memory_limits import memory
from plink.runtime.elastic.host.preemption import Notices, PreemptionNotice, parse_source
from plink.runtime.elastic.host.program import load_app
from plink.runtime.elastic.partition.divergence import float_tables
from plink.runtime.elastic.partition.partition import RejectedRequest
from plink.runtime.elastic.replica.snapshot import Role
from plink.runtime.elastic.server import Server
from plink.runtime.elastic.transport.connection import StoreConfig
from plink.runtime.elastic.transport.keys import RunKeys
from plink.runtime.elastic.transport.records import TRAFFIC
from plink.runtime.elastic.worker.announcer import Announcer, LocalGroups
from plink.runtime.elastic.worker.client import Client, PrimaryAddress, Timeouts
from plink.runtime.elastic.worker.clock_work import LoadedShards
from plink.runtime.elastic.worker.progress import job_layout
from plink.runtime.elastic.worker.worker_threads import WorkerThreads
from plink.transport.low_priority import VARIABLE as LOW_PRIORITY
from plink.transport.low_priority import set_low_priority

HEARTBEAT_INTERVAL_S = 0.3
_POLL_INTERVAL_S = 0.05
_MAX_CONCURRENT_MOVES = 4  # sent by one host at a time: more would each be later
_SERVER_WAIT_S = 5.0
_TIMEOUTS = Timeouts(primary_s=60.0, workers_s=3600.0)
_RETRY_S = 0.05
_MAX_RETRIES = 40
_MAX_LOGGED_REFUSALS = 20  # that a node tells of


class Node:
    """Node of one job on one host; :meth:`run` is for the main thread."""

    def __init__(self, app: App[Any], channel: ControlChannel) -> None:
        self._app, self._channel = app, channel
        self._server: Server | None = None
        self._groups = LocalGroups()
        self._workers: WorkerThreads | None = None
        self._helping: HostRebalancing | None = None
        self._loaded: LoadedShards[Any] = LoadedShards(app)
        self._primaries: dict[int, PrimaryAddress] = {}
        self._term = self._number = 0  # of the latest controller; the largest number that one gave
        self._map: ShardMap | None = None
        self._thresholds: StageThresholds | None = None
        self._ending = False
        self._notice_s = 30.0
        self._notices: Notices | None = None
        self._checkpoints = JobCheckpoints()
        self._movers = ThreadPoolExecutor(_MAX_CONCURRENT_MOVES, thread_name_prefix="plink-move")
        self._reported: dict[int, tuple[str, int, int, int, int]] = {}
        self._divergence: dict[int, DivergenceReport] = {}
        self._refusals = itertools.count()
        self._low_priority = (
            LOW_PRIORITY in os.environ
        )  # to those who work already, until there is something to do here

    def run(self) -> None:
        """Execute the controller's requests until it ends the node, or is gone."""
        app = self._app
        layout, room = job_layout(app, 1), memory()
        self._send(
            Hello(
                version=VERSION, plink=__version__, app=app.name, pid=os.getpid(), tables=layout.fingerprint,
                shards=app.shards, batches=app.batches, grains=app.grains,
                shapes=tuple((table.rows, table.row_bytes) for table in layout.tables),
                memory=None if room is None else room.available, pool=room.pool if room else "",
                optimisers=tuple(layout.optimisers), float_tables=len(float_tables(layout)),
            )
        )  # fmt: skip
        threading.Thread(target=self._stay_alive, name="plink-alive", daemon=True).start()
        try:
            for body in self._channel:
                self._receive(body)
                if self._ending:
                    break
        finally:
            self._close()

    def terminated(self, number: int, frame: FrameType | None) -> None:
        """Handle SIGTERM: the host will be taken away, or somebody ends the job."""
        if self._ending or self._server is None:
            os._exit(128 + number)
        self._ending_notice(PreemptionNotice(self._notice_s, "SIGTERM"))

    def _log(self, text: str) -> None:
        self._send(Log(text))

    def _ending_notice(self, notice: PreemptionNotice) -> None:
        self._send(reports.Notice(notice.seconds, notice.reason))

    def _send(self, message: NodeMessage) -> None:
        self._channel.send(encode_message(message))

    def _receive(self, body: dict[str, Any]) -> None:
        """Decode and execute a request; an invalid one is refused, because its sender may want something else."""
        try:
            envelope = decode_request(body)
        except ProtocolError as error:
            self._send(Log(f"a request was refused: {error}"))
            if type(number := body.get("id")) is int:
                self._send(Answer(number, str(error), "ProtocolError"))
        else:
            self._execute(envelope)

    def _execute(self, envelope: Envelope) -> None:
        if envelope.term < self._term:
            error = f"the controller of term {envelope.term} is stale: term {self._term} is current"
            self._answer(envelope, error, "StaleTerm")
            return
        self._term = envelope.term
        request = envelope.request
        numbers = [getattr(request, name) for name in ("term", "generation", "count") if hasattr(request, name)]
        self._number = max([self._number, *numbers])
        self._dispatch(envelope)

    def _dispatch(self, envelope: Envelope) -> None:
        """Run a request's handler: here, or in a thread where it takes long."""
        kind = type(envelope.request)
        if self._low_priority and kind not in _LOW_PRIORITY_REQUESTS:
            self._raise_priority()
        if kind in _LONG_HANDLERS:
            pool: Callable[..., object] = self._movers.submit if kind in request_handlers.MOVING else _in_thread
            pool(self._do, envelope, _LONG_HANDLERS[kind])
        else:
            self._do(envelope, _SHORT_HANDLERS[kind])

    def _raise_priority(self) -> None:
        self._low_priority = False
        _in_thread(set_low_priority, False)

    def _do(self, envelope: Envelope, does: "Callable[[Node, Any], Result | None]") -> None:
        try:
            self._answer(envelope, result=does(self, envelope.request))
        except Exception as error:
            text = str(error) if isinstance(error, PlinkError) else f"{type(error).__name__}: {error}"
            self._answer(envelope, text, type(error).__name__)

    def _answer(
        self, envelope: Envelope, error: str | None = None, kind: str = "", result: Result | None = None
    ) -> None:
        if envelope.id is not None:
            fields = {} if result is None else msgspec.to_builtins(result, str_keys=True)
            self._send(Answer(envelope.id, error, kind, fields))
        elif error is not None and isinstance(envelope.request, r.AssignShards | r.TakeOver):
            self._send(Failed(error, kind=kind))
        elif error is not None:
            self._send(Log(f"{method_of(envelope.request)}: {error}"))

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
                    parse_source(request.notices), on_notice=self._ending_notice,
                    on_trouble=self._log,
                )  # fmt: skip
            threading.Thread(target=self._watch_partitions, name="plink-watch", daemon=True).start()
        file = self._app.result_file
        return Begun(
            self.server.address,
            self._checkpoints.unwritable() if request.reliable else None,
            unwritable(file) if request.reliable and file else None,
            *self._checkpoints.on_disk(),
        )

    def roll_back(self, request: r.RollBack) -> None:
        """Roll back servers and replicas; workers wait for their assignments in the new generation."""
        _persist(lambda: self.server.roll_back(request.clock, request.generation))
        self.workers.rolled_back(request.clock, request.generation)

    def reset(self, request: r.Reset) -> None:
        """Reset all state, perhaps to go on from a checkpoint: partitions are opened one by one."""
        self.server.reset(request.generation)
        self.workers.rolled_back(request.clock, request.generation)

    def report_partitions(self, request: r.ReportPartitions) -> None:
        """Report all partitions anew, to a controller that does not know earlier reports."""
        self._reported.clear()

    def set_primaries(self, request: r.SetPrimaries) -> None:
        """Note which server is the primary of each partition."""
        primaries = {number: PrimaryAddress(address, term) for number, (address, term) in request.primaries.items()}
        for number, primary in primaries.items():
            if number not in self._primaries or primary.term >= self._primaries[number].term:
                self._primaries[number] = primary
        self.workers.set_primaries(primaries)
        if self._helping is not None:
            self._helping.set_primaries(primaries)

    def pause(self, request: r.Pause) -> Paused:
        """Let no worker begin a clock."""
        return Paused(self.workers.pause(request.clock))

    def resume(self, request: r.Resume) -> None:
        """Let workers begin what they like."""
        self.workers.resume()

    def assign(self, request: r.AssignShards) -> None:
        """Assign shards from a clock on: here, and everywhere (for a controller that is started again)."""
        self._map = ShardMap(request.clock, request.generation, request.everywhere, request.left)
        self.workers.assign(request.workers, request.clock, request.generation)
        if self._helping is not None:
            self._helping.assign(request.everywhere, request.addresses)

    def keep_thresholds(self, request: r.KeepThresholds) -> None:
        """Keep the thresholds that were measured (for a controller that is started again)."""
        self._thresholds = StageThresholds(**r.params_of(request))

    def take_over(self, request: r.TakeOver) -> None:
        """Do some clocks of a lost worker."""
        self.workers.take_over(
            request.worker, request.had, request.clock, request.until, request.generation
        )  # fmt: skip

    def load(self, request: r.LoadShards) -> None:
        """Load shards of the input data into memory."""
        self._loaded.ahead(request.shards)
        if self._low_priority:
            self._raise_priority()

    def keep(self, request: r.KeepCheckpoint) -> None:
        """Name a whole checkpoint as the latest."""
        keep(Path(request.folder), request.saved, request.job)

    def discard(self, request: r.DiscardCheckpoint) -> None:
        """Remove a checkpoint that failed."""
        discard(Path(request.folder), request.job)

    def mark_folder(self, request: r.MarkFolder) -> None:
        """Show other hosts that the folder of checkpoints is the one that this host sees."""
        self._checkpoints.mark()

    def check_folder(self, request: r.CheckFolder) -> None:
        """Fail where the mark of another host is not seen."""
        self._checkpoints.check_mark()

    def result(self, request: r.WriteResult) -> None:
        """Run the program's ``result()`` on the final parameters."""
        client = self._client(-1, request.clock, request.generation)
        params = Params(client, self._app.seed, 0, request.clock)
        try:
            self._app.result(params)
        except Exception as error:
            if params.failed is not None and not isinstance(params.failed, InputError):
                raise params.failed from error  # of the servers, whatever the program made of it
            raise app_error(f"app {self._app.name}: result()", error) from error
        finally:
            client.close()

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
            if item.role == Role.SERVING.value:
                serves[item.partition] = item.term
            if item.role in (Role.SERVING.value, Role.REPLICA.value):
                replicas[item.partition] = item.clocks
            if item.role == Role.IN_DOUBT.value:
                in_doubt[item.partition] = item.clocks
        saved, own = self._checkpoints.on_disk()
        return HostReport(
            serves=serves, replicas=replicas, in_doubt=in_doubt, generation=generation, number=number,
            loaded=tuple(self._loaded.here()), map=self._map, address=self.server.address, workers=self.workers.own(),
            takeovers=self.workers.takeovers(), begun=self.workers.begun, finished=self.workers.finished,
            paused=self.workers.paused, traffic=self._traffic(), thresholds=self._thresholds, saved=saved, own=own,
        )  # fmt: skip

    def bye(self, request: r.Bye) -> None:
        """End the node; nothing of this host is needed any more."""
        if request.over:
            self._checkpoints.unmark()
        self._ending = True

    def _refused(self, reason: str) -> None:
        """Log a refused connection; of somebody who tries for days not each time."""
        if next(self._refusals) < _MAX_LOGGED_REFUSALS:
            self._send(Log(f"a connection to its server was closed: {reason}"))

    # What runs beside.

    def _stay_alive(self) -> None:
        while not self._ending:
            self._channel.mention(encode_message(Alive(self._traffic())))
            time.sleep(HEARTBEAT_INTERVAL_S)

    def _traffic(self) -> TrafficCounters:
        total, server = TRAFFIC.total(), self._server
        if server is None:
            return total
        return msgspec.structs.replace(total, updates=server.updates() + UpdateCounts(unsent=self._groups.unsent))

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
            now = (item.role, item.generation, item.term, item.clocks[-1] if item.clocks else -1, item.replicated)
            if self._reported.get(item.partition) != now:
                self._reported[item.partition] = changed[item.partition] = now
        if changed or divergence != self._divergence:
            self._divergence = divergence
            self._send(PartitionsChanged(changed, divergence))

    def _close(self) -> None:
        self._ending = True
        if self._notices is not None:
            self._notices.close()
        self._channel.close()


def _in_thread(does: Callable[..., None], *arguments: Any) -> None:
    threading.Thread(target=does, args=arguments, name="plink-command", daemon=True).start()


def _persist(does: Callable[[], None]) -> None:
    """Retry for a moment what is refused for a passing reason."""
    for _ in range(_MAX_RETRIES):
        try:
            does()
        except RejectedRequest as error:
            refused = error
            time.sleep(_RETRY_S)
        else:
            return
    raise refused


_Handler = Callable[[Node, Any], Result | None]


def _by_server(does: request_handlers.Does) -> _Handler:
    return lambda node, request: does(node.server, request)


_SHORT_HANDLERS: dict[type[r.Request], _Handler] = {
    **{kind: _by_server(does) for kind, does in request_handlers.AT_ONCE.items()},
    r.Begin: Node.begin, r.RollBack: Node.roll_back, r.SetPrimaries: Node.set_primaries, r.Pause: Node.pause,
    r.Resume: Node.resume, r.AssignShards: Node.assign, r.TakeOver: Node.take_over, r.Report: Node.report,
    r.Bye: Node.bye, r.Reset: Node.reset, r.ReportPartitions: Node.report_partitions,
    r.KeepThresholds: Node.keep_thresholds,
}  # fmt: skip
_LONG_HANDLERS: dict[type[r.Request], _Handler] = {
    **{kind: _by_server(does) for kind, does in request_handlers.LONG.items()},
    r.LoadShards: Node.load, r.KeepCheckpoint: Node.keep, r.DiscardCheckpoint: Node.discard,
    r.WriteResult: Node.result, r.MarkFolder: Node.mark_folder, r.CheckFolder: Node.check_folder,
}  # fmt: skip
# Sent to those that have not joined yet, too, or to all: it does not mean that they are waited for.
_LOW_PRIORITY_REQUESTS = (
    r.Begin, r.LoadShards, r.SetPrimaries, r.ReplicateUpTo, r.ReportPartitions, r.KeepThresholds, r.Truncate, r.Forget,
    r.Report, r.RollBack,
)  # fmt: skip


def main(arguments: list[str]) -> int:
    """Run a node and return the exit code."""
    try:
        node = Node(load_app(arguments[0], arguments[1:]), ControlChannel())
    except PlinkError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    signal.signal(signal.SIGTERM, node.terminated)
    node.run()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # threads that wait for a network are not waited for


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
