"""One host of an elastic job: ``python -m plink.runtime.agileml.node APP.py ARGUMENTS``.

It has a parameter server and workers, and does what the controller says over the agent's line; it decides nothing.
What takes long runs in threads of its own and is answered when it is done; everything else is done in the order in
which it was said.

Every request that wants an answer has an ``id``, which the answer repeats; every one has the term of the controller
that sent it, and those of an older term than was received already are refused: two controllers never both rule.
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
from plink.elastic.app import App
from plink.elastic.app_error import app_error
from plink.elastic.params import Params
from plink.elastic.result_file import unwritable as unwritable_file
from plink.errors import InputError, PlinkError, ProtocolError
from plink.model.consistency import parse_rule
from plink.model.elastic import reports
from plink.model.elastic import requests as r
from plink.model.elastic.codec import VERSION, Envelope, decode_request, encode_message
from plink.model.elastic.fields import SavedCheckpoint, ShardMap, StageThresholds, TrafficCounters
from plink.model.elastic.reports import Alive, Answer, Failed, Hello, Log, Message, PartitionsChanged
from plink.model.elastic.requests import method_of
from plink.model.elastic.results import Begun, HostReport, Paused, Result
from plink.remote.low_priority import VARIABLE as LOW_PRIORITY
from plink.remote.low_priority import set_low_priority
from plink.runtime.agileml.host.checkpoint_folder import check_mark, discard, keep, latest, mark, unmark
from plink.runtime.agileml.host.checkpoint_folder import unwritable as unwritable_folder
from plink.runtime.agileml.host.control_channel import ControlLine
from plink.runtime.agileml.host.memory_limits import memory
from plink.runtime.agileml.host.preemption import Notice, Notices, parse_source
from plink.runtime.agileml.host.program import load_app
from plink.runtime.agileml.partition.partition import Refused
from plink.runtime.agileml.replica.partition_replica import Role
from plink.runtime.agileml.server import request_handlers
from plink.runtime.agileml.server.server import Server
from plink.runtime.agileml.transport.keys import RunKeys
from plink.runtime.agileml.transport.store_config import StoreConfig
from plink.runtime.agileml.transport.traffic import ACCOUNT
from plink.runtime.agileml.worker.client import Client, Ownership, Timeouts
from plink.runtime.agileml.worker.loaded_shards import Loaded
from plink.runtime.agileml.worker.progress import job_layout
from plink.runtime.agileml.worker.worker_threads import WorkerThreads

ALIVE_S = 0.3
_LOOK_S = 0.05
_MOVES = 4  # sent by one host at a time: more would each be later
_SERVER_WAIT_S = 5.0
_TIMEOUTS = Timeouts(owner_s=60.0, workers_s=3600.0)
_AGAIN_S = 0.05
_TIMES = 40
_REFUSALS = 20  # that a node tells of


class Node:
    """Of one job; :meth:`run` is for the main thread."""

    def __init__(self, app: App[Any], line: ControlLine) -> None:
        self._app, self._line = app, line
        self._server: Server | None = None
        self._workers: WorkerThreads | None = None
        self._loaded: Loaded[Any] = Loaded(app)
        self._owners: dict[int, Ownership] = {}
        self._term = self._number = 0  # of the latest controller; the largest number that one gave
        self._map: ShardMap | None = None
        self._thresholds: StageThresholds | None = None
        self._ending = False
        self._notice_s = 30.0
        self._notices: Notices | None = None
        self._restore = self._checkpoints = self._job = ""
        self._movers = ThreadPoolExecutor(_MOVES, thread_name_prefix="plink-move")
        self._told: dict[int, tuple[str, int, int, int, int]] = {}
        self._refusals = itertools.count()
        self._stands_back = LOW_PRIORITY in os.environ  # to those who work already, until there is something to do here

    def run(self) -> None:
        """Until the controller says so, or is gone."""
        app = self._app
        layout, room = job_layout(app, 1), memory()
        self._send(
            Hello(
                version=VERSION, plink=__version__, app=app.name, pid=os.getpid(), tables=layout.fingerprint,
                pieces=app.pieces, batches=app.batches, grains=app.grains,
                shapes=tuple((table.rows, table.row_bytes) for table in layout.tables),
                memory=None if room is None else room.available, pool=room.pool if room else "",
            )
        )  # fmt: skip
        threading.Thread(target=self._stay_alive, name="plink-alive", daemon=True).start()
        try:
            for body in self._line:
                self._receive(body)
                if self._ending:
                    break
        finally:
            self._close()

    def terminated(self, number: int, frame: FrameType | None) -> None:
        """SIGTERM: the host will be taken away, or somebody ends the job."""
        if self._ending or self._server is None:
            os._exit(128 + number)
        self._ending_notice(Notice(self._notice_s, "SIGTERM"))

    def _ending_notice(self, notice: Notice) -> None:
        self._send(reports.Notice(notice.seconds, notice.why))

    def _send(self, message: Message) -> None:
        self._line.send(encode_message(message))

    def _receive(self, body: dict[str, Any]) -> None:
        """What is no request is refused: nobody knows what else its sender wants."""
        try:
            envelope = decode_request(body)
        except ProtocolError as error:
            self._send(Log(f"a request was refused: {error}"))
            if type(number := body.get("id")) is int:
                self._send(Answer(number, str(error), "ProtocolError"))
        else:
            self._obey(envelope)

    def _obey(self, envelope: Envelope) -> None:
        if envelope.term < self._term:
            error = f"the controller of term {self._term} rules, not that of term {envelope.term}"
            self._answer(envelope, error, "StaleTerm")
            return
        self._term = envelope.term
        request = envelope.request
        numbers = [getattr(request, name) for name in ("epoch", "era", "count") if hasattr(request, name)]
        self._number = max([self._number, *numbers])
        kind = type(request)
        if self._stands_back and kind not in _UNHURRIED:
            self._joins()
        if kind in _LONG:
            pool: Callable[..., object] = self._movers.submit if kind in request_handlers.MOVING else _in_thread
            pool(self._do, envelope, _LONG[kind])
        else:
            self._do(envelope, _SHORT[kind])

    def _joins(self) -> None:
        self._stands_back = False
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
        elif error is not None and isinstance(envelope.request, r.AssignShards | r.StandIn):
            self._send(Failed(error, kind=kind))
        elif error is not None:
            self._send(Log(f"{method_of(envelope.request)}: {error}"))

    @property
    def server(self) -> Server:
        """:raises Refused: before it was begun."""
        if self._server is None:
            raise Refused("nothing has begun here")
        return self._server

    @property
    def workers(self) -> WorkerThreads:
        """:raises Refused: before they were begun."""
        if self._workers is None:
            raise Refused("nothing has begun here")
        return self._workers

    # What the controller says, in its words.

    def begin(self, request: r.Begin) -> Begun:
        """A server that listens, and workers that have nothing to do; once."""
        if self._server is None:
            rule = parse_rule(request.rule)
            keys = RunKeys(base64.b64decode(request.keys))
            config = StoreConfig(job_layout(self._app, request.partitions), keys, rule)
            self._server = Server(config, host=request.address, timeout_s=_SERVER_WAIT_S, refused=self._refused)
            self._server.push_up_to(-1)  # in rounds, as the controller says

            def client(number: int, clock: int, era: int) -> Client:
                return Client(config, number, self._owners, clock=clock, era=era, timeouts=_TIMEOUTS)

            self._client = client
            self._workers = WorkerThreads(self._loaded, client, self._send, request.started)
            self._notice_s, self._job = request.notice_s, request.job
            self._restore, self._checkpoints = request.restore, request.checkpoints
            if request.notices:
                self._notices = Notices(
                    parse_source(request.notices), on_notice=self._ending_notice,
                    on_trouble=lambda text: self._send(Log(text)),
                )  # fmt: skip
            threading.Thread(target=self._watch_partitions, name="plink-watch", daemon=True).start()
        saved, own = self._on_disk()
        unwritable, unsaved = self._cannot_write(request.reliable)
        return Begun(self.server.address, unwritable, unsaved, saved, own)

    def _cannot_write(self, reliable: bool) -> tuple[str | None, str | None]:
        """Why what a reliable host may have to write cannot be: checkpoints, and what was learnt."""
        folder, file = self._checkpoints, self._app.result_file
        return (
            unwritable_folder(Path(folder)) if reliable and folder else None,
            unwritable_file(file) if reliable and file else None,
        )

    def _on_disk(self) -> tuple[SavedCheckpoint | None, SavedCheckpoint | None]:
        """Checkpoints that can be read here: the one that the job was told to go on from, and its own latest."""
        result = (
            latest(Path(self._restore)) if self._restore else None,
            latest(Path(self._checkpoints), self._job) if self._checkpoints else None,
        )
        saved, own = (None if item is None else SavedCheckpoint(**item) for item in result)
        return saved, own

    def roll_back(self, request: r.RollBack) -> None:
        """Servers and backups go back; workers wait for what is to be done in the new era."""
        _persist(lambda: self.server.roll_back(request.clock, request.era))
        self.workers.rolled_back(request.clock, request.era)

    def begin_again(self, request: r.Reset) -> None:
        """All begin anew, perhaps from a checkpoint: partitions come by themselves."""
        self.server.begin_anew(request.era)
        self.workers.rolled_back(request.clock, request.era)

    def tell(self, request: r.ReportPartitions) -> None:
        """Tell anew of all partitions: who is told does not know what was said before."""
        self._told.clear()

    def point(self, request: r.SetOwners) -> None:
        """Who serves what."""
        owners = {number: Ownership(address, epoch) for number, (address, epoch) in request.owners.items()}
        for number, owner in owners.items():
            if number not in self._owners or owner.epoch >= self._owners[number].epoch:
                self._owners[number] = owner
        self.workers.point(owners)

    def hold(self, request: r.Pause) -> Paused:
        """Let no worker begin a clock."""
        return Paused(self.workers.hold(request.clock))

    def let_go(self, request: r.Resume) -> None:
        """Let workers begin what they like."""
        self.workers.let_go()

    def assign(self, request: r.AssignShards) -> None:
        """Who works on what from a clock on: here, and everywhere (for a controller that was started again)."""
        self._map = ShardMap(request.clock, request.era, request.everywhere, request.left)
        self.workers.assign(request.workers, request.clock, request.era)

    def keep_thresholds(self, request: r.KeepThresholds) -> None:
        """What follows from the traffic that was measured (for a controller that was started again)."""
        self._thresholds = StageThresholds(**r.params_of(request))

    def stand_in(self, request: r.StandIn) -> None:
        """Some clocks of a worker that is lost."""
        self.workers.stand_in(
            request.worker, request.had, request.clock, request.until, request.era
        )  # fmt: skip

    def load(self, request: r.LoadShards) -> None:
        """Pieces of the input data into memory."""
        self._loaded.ahead(request.pieces)
        if self._stands_back:
            self._joins()

    def keep(self, request: r.KeepCheckpoint) -> None:
        """A checkpoint is whole: it is the latest from now on."""
        keep(Path(request.folder), msgspec.structs.asdict(request.saved), request.job)

    def discard(self, request: r.DiscardCheckpoint) -> None:
        """Remove a checkpoint that failed."""
        discard(Path(request.folder), request.job)

    def mark_folder(self, request: r.MarkFolder) -> None:
        """Show other hosts that the folder of checkpoints is the one that this host sees."""
        mark(Path(self._checkpoints), self._job)

    def check_folder(self, request: r.CheckFolder) -> None:
        """Fail where the mark of another host is not seen."""
        check_mark(Path(self._checkpoints), self._job)

    def result(self, request: r.WriteResult) -> None:
        """The program's last word: it reads what was learnt."""
        client = self._client(-1, request.clock, request.era)
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
        """All that a controller that was started again has to know of this host."""
        serves: dict[int, int] = {}
        backs: dict[int, tuple[int, ...]] = {}
        gave: dict[int, tuple[int, ...]] = {}
        era, number = self.workers.era, max([self._number, *(owner.epoch for owner in self._owners.values())])
        for item in self.server.status():
            era, number = max(era, item.era), max(number, item.epoch, item.era)
            if item.role == Role.SERVING.value:
                serves[item.partition] = item.epoch
            if item.role in (Role.SERVING.value, Role.BACKUP.value):
                backs[item.partition] = item.clocks
            if item.role == Role.UNSURE.value:
                gave[item.partition] = item.clocks
        saved, own = self._on_disk()
        return HostReport(
            serves=serves, backs=backs, gave=gave, era=era, number=number, loaded=tuple(self._loaded.here()),
            map=self._map, address=self.server.address, workers=self.workers.own(),
            stands_in=self.workers.stands_in_for(), begun=self.workers.begun, finished=self.workers.finished,
            held=self.workers.held, carried=self._carried(), thresholds=self._thresholds, saved=saved, own=own,
        )  # fmt: skip

    def bye(self, request: r.Bye) -> None:
        """Nothing of this host is needed any more."""
        if request.over and self._checkpoints:
            unmark(Path(self._checkpoints), self._job)
        self._ending = True

    def _refused(self, reason: str) -> None:
        """Whoever knocks for days is not told of each time."""
        if next(self._refusals) < _REFUSALS:
            self._send(Log(f"a connection to its server was closed: {reason}"))

    # What runs beside.

    def _stay_alive(self) -> None:
        while not self._ending:
            self._line.mention(encode_message(Alive(self._carried())))
            time.sleep(ALIVE_S)

    def _carried(self) -> TrafficCounters:
        return ACCOUNT.total()

    def _watch_partitions(self) -> None:
        """Tell what has changed of partitions."""
        while not self._ending:
            changed = {}
            for item in self.server.status():
                now = (item.role, item.era, item.epoch, item.clocks[-1] if item.clocks else -1, item.pushed)
                if self._told.get(item.partition) != now:
                    self._told[item.partition] = changed[item.partition] = now
            if changed:
                self._send(PartitionsChanged(changed))
            time.sleep(_LOOK_S)

    def _close(self) -> None:
        self._ending = True
        if self._notices is not None:
            self._notices.close()
        self._line.close()


def _in_thread(does: Callable[..., None], *arguments: Any) -> None:
    threading.Thread(target=does, args=arguments, name="plink-command", daemon=True).start()


def _persist(does: Callable[[], None]) -> None:
    """What is refused because of something that passes is tried again for a moment."""
    for _ in range(_TIMES):
        try:
            does()
        except Refused as error:
            refused = error
            time.sleep(_AGAIN_S)
        else:
            return
    raise refused


_Does = Callable[[Node, Any], Result | None]


def _by_server(does: request_handlers.Does) -> _Does:
    return lambda node, request: does(node.server, request)


_SHORT: dict[type[r.Request], _Does] = {
    **{kind: _by_server(does) for kind, does in request_handlers.AT_ONCE.items()},
    r.Begin: Node.begin, r.RollBack: Node.roll_back, r.SetOwners: Node.point, r.Pause: Node.hold,
    r.Resume: Node.let_go, r.AssignShards: Node.assign, r.StandIn: Node.stand_in, r.Report: Node.report,
    r.Bye: Node.bye, r.Reset: Node.begin_again, r.ReportPartitions: Node.tell, r.KeepThresholds: Node.keep_thresholds,
}  # fmt: skip
_LONG: dict[type[r.Request], _Does] = {
    **{kind: _by_server(does) for kind, does in request_handlers.LONG.items()},
    r.LoadShards: Node.load, r.KeepCheckpoint: Node.keep, r.DiscardCheckpoint: Node.discard,
    r.WriteResult: Node.result, r.MarkFolder: Node.mark_folder, r.CheckFolder: Node.check_folder,
}  # fmt: skip
# Sent to those that have not joined yet, too, or to all: it does not mean that they are waited for.
_UNHURRIED = (
    r.Begin, r.LoadShards, r.SetOwners, r.ReplicateUpTo, r.ReportPartitions, r.KeepThresholds, r.Truncate, r.Forget,
    r.Report, r.RollBack,
)  # fmt: skip


def main(arguments: list[str]) -> int:
    """Returns the exit code."""
    try:
        node = Node(load_app(arguments[0], arguments[1:]), ControlLine())
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
