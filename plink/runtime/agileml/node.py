"""One host of an elastic job: ``python -m plink.runtime.agileml.node APP.py ARGUMENTS``.

It has a parameter server and workers, and does what the controller says over the agent's line; it decides nothing.
What takes long runs in threads of its own and is answered when it is done; everything else is done in the order in
which it was said.

Every message that wants an answer has an ``id``, which the answer repeats; every one has the number of the controller
that sent it (``by``), and what an older one says than was heard already is refused: two controllers never both rule.
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

from msgspec import structs

from plink import __version__
from plink.errors import InputError, PlinkError
from plink.model.consistency import parse_rule
from plink.remote.gentle import VARIABLE as GENTLE
from plink.remote.gentle import gentle
from plink.runtime.agileml import server_words
from plink.runtime.agileml.app import App, layout_of
from plink.runtime.agileml.blame import raised
from plink.runtime.agileml.carried import ACCOUNT
from plink.runtime.agileml.checkpoints import check_mark, discard, keep, latest, mark, unmark, unwritable
from plink.runtime.agileml.client import Client, Ownership, Timeouts
from plink.runtime.agileml.control_line import VERSION, ControlLine, Message
from plink.runtime.agileml.host_state import memory
from plink.runtime.agileml.keys import RunKeys
from plink.runtime.agileml.loaded import Loaded
from plink.runtime.agileml.notices import Notice, Notices, parse_source
from plink.runtime.agileml.owner import Role
from plink.runtime.agileml.params import Params
from plink.runtime.agileml.partition import Refused
from plink.runtime.agileml.program import load_app
from plink.runtime.agileml.progress import TABLES
from plink.runtime.agileml.result_file import unwritable as unsaved
from plink.runtime.agileml.server import Server
from plink.runtime.agileml.store_config import StoreConfig
from plink.runtime.agileml.worker_threads import WorkerThreads

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
        self._by = self._number = 0  # of the latest controller; the largest that one gave
        self._map: Message = {}
        self._thresholds: Message = {}
        self._ending = False
        self._notice_s = 30.0
        self._notices: Notices | None = None
        self._restore = self._checkpoints = self._job = ""
        self._movers = ThreadPoolExecutor(_MOVES, thread_name_prefix="plink-move")
        self._told: dict[int, list[Any]] = {}
        self._refusals = itertools.count()
        self._stands_back = GENTLE in os.environ  # to those who work already, until there is something to do here

    def run(self) -> None:
        """Until the controller says so, or is gone."""
        app = self._app
        layout, room = layout_of(app, 1, TABLES), memory()
        self._line.send(
            {"is": "hello", "version": VERSION, "plink": __version__, "app": app.name, "pid": os.getpid(),
             "pieces": app.pieces, "batches": app.batches, "tables": layout.fingerprint,
             "shapes": [(table.rows, table.row_bytes) for table in layout.tables],
             "memory": room and room.available, "pool": room.pool if room else ""}
        )  # fmt: skip
        threading.Thread(target=self._stay_alive, name="plink-alive", daemon=True).start()
        try:
            for message in self._line:
                self._obey(message)
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
        self._line.send({"is": "notice", "seconds": notice.seconds, "why": notice.why})

    def _obey(self, message: Message) -> None:
        if message["by"] < self._by:
            self._answer(message, why=f"controller {self._by} rules, not {message['by']}", kind="Deposed")
            return
        self._by = message["by"]
        self._number = max([self._number, *(message[key] for key in ("epoch", "era", "count") if key in message)])
        name = message["do"]
        if self._stands_back and name not in _UNHURRIED:
            self._joins()
        if name in _LONG:
            pool: Callable[..., object] = self._movers.submit if name in server_words.MOVING else _in_thread
            pool(self._do, message, _LONG[name])
        else:
            self._do(message, _SHORT[name])

    def _joins(self) -> None:
        self._stands_back = False
        _in_thread(gentle, False)

    def _do(self, message: Message, does: "Callable[[Node, Message], Message | None]") -> None:
        try:
            self._answer(message, **(does(self, message) or {}))
        except Exception as error:
            why = str(error) if isinstance(error, PlinkError) else f"{type(error).__name__}: {error}"
            self._answer(message, why=why, kind=type(error).__name__)

    def _answer(self, message: Message, why: str | None = None, **more: Any) -> None:
        if "id" in message:
            self._line.send({"is": "answer", "id": message["id"], "why": why, **more})
        elif why is not None and message["do"] in ("assign", "stand_in"):
            self._line.send({"is": "failed", "worker": -1, "kind": more.get("kind", ""), "why": why})
        elif why is not None:
            self._line.send({"is": "said", "text": f"{message['do']}: {why}"})

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

    def begin(self, message: Message) -> Message:
        """A server that listens, and workers that have nothing to do; once."""
        if self._server is None:
            rule = parse_rule(message["rule"])
            keys = RunKeys(base64.b64decode(message["keys"]))
            config = StoreConfig(layout_of(self._app, message["partitions"], TABLES), keys, rule)
            self._server = Server(config, host=message["address"], timeout_s=_SERVER_WAIT_S, refused=self._refused)
            self._server.push_up_to(-1)  # in rounds, as the controller says

            def client(number: int, clock: int, era: int) -> Client:
                return Client(config, number, self._owners, clock=clock, era=era, timeouts=_TIMEOUTS)

            self._client = client
            self._workers = WorkerThreads(self._loaded, client, self._line.send, message["started"])
            self._notice_s, self._job = message["notice_s"], message["job"]
            self._restore, self._checkpoints = message["restore"], message["checkpoints"]
            if message["notices"]:
                self._notices = Notices(
                    parse_source(message["notices"]), on_notice=self._ending_notice,
                    on_trouble=lambda text: self._line.send({"is": "said", "text": text}),
                )  # fmt: skip
            threading.Thread(target=self._watch_partitions, name="plink-watch", daemon=True).start()
        return {"address": self.server.address, **self._cannot_write(message["reliable"]), **self._on_disk()}

    def _cannot_write(self, reliable: bool) -> Message:
        """Why what a reliable host may have to write cannot be: checkpoints, and what was learnt."""
        folder, file = self._checkpoints, self._app.result_file
        return {
            "unwritable": unwritable(Path(folder)) if reliable and folder else None,
            "unsaved": unsaved(file) if reliable and file else None,
        }

    def _on_disk(self) -> Message:
        """Checkpoints that can be read here: the one that the job was told to go on from, and its own latest."""
        return {
            "saved": latest(Path(self._restore)) if self._restore else None,
            "own": latest(Path(self._checkpoints), self._job) if self._checkpoints else None,
        }

    def roll_back(self, message: Message) -> None:
        """Servers and backups go back; workers wait for what is to be done in the new era."""
        _persist(lambda: self.server.roll_back(message["clock"], message["era"]))
        self.workers.rolled_back(message["clock"], message["era"])

    def begin_again(self, message: Message) -> None:
        """All begin anew, perhaps from a checkpoint: partitions come by themselves."""
        self.server.begin_anew(message["era"])
        self.workers.rolled_back(message["clock"], message["era"])

    def tell(self, message: Message) -> None:
        """Tell anew of all partitions: who is told does not know what was said before."""
        self._told.clear()

    def point(self, message: Message) -> None:
        """Who serves what."""
        owners = {int(number): Ownership(address, epoch) for number, (address, epoch) in message["owners"].items()}
        for number, owner in owners.items():
            if number not in self._owners or owner.epoch >= self._owners[number].epoch:
                self._owners[number] = owner
        self.workers.point(owners)

    def hold(self, message: Message) -> Message:
        """Let no worker begin a clock."""
        return {"begun": self.workers.hold(message["clock"])}

    def let_go(self, message: Message) -> None:
        """Let workers begin what they like."""
        self.workers.let_go()

    def assign(self, message: Message) -> None:
        """Who works on what from a clock on: here, and everywhere (for a controller that was started again)."""
        self._map = {key: message[key] for key in ("clock", "era", "everywhere", "left")}
        own = {int(number): pieces for number, pieces in message["workers"].items()}
        self.workers.assign(own, message["clock"], message["era"])

    def keep_thresholds(self, message: Message) -> None:
        """What follows from the traffic that was measured (for a controller that was started again)."""
        self._thresholds = {key: message[key] for key in ("measure", "worker", "active", "backup_only")}

    def stand_in(self, message: Message) -> None:
        """Some clocks of a worker that is lost."""
        self.workers.stand_in(
            message["worker"], message["had"], message["clock"], message["until"], message["era"]
        )  # fmt: skip

    def load(self, message: Message) -> None:
        """Pieces of the input data into memory."""
        self._loaded.ahead(message["pieces"])
        if self._stands_back:
            self._joins()

    def keep(self, message: Message) -> None:
        """A checkpoint is whole: it is the latest from now on."""
        keep(Path(message["folder"]), message["saved"], message["job"])

    def discard(self, message: Message) -> None:
        """Remove a checkpoint that failed."""
        discard(Path(message["folder"]), message["job"])

    def mark_folder(self, message: Message) -> None:
        """Show other hosts that the folder of checkpoints is the one that this host sees."""
        mark(Path(self._checkpoints), self._job)

    def check_folder(self, message: Message) -> None:
        """Fail where the mark of another host is not seen."""
        check_mark(Path(self._checkpoints), self._job)

    def result(self, message: Message) -> None:
        """The program's last word: it reads what was learnt."""
        client = self._client(-1, message["clock"], message["era"])
        params = Params(client, self._app.seed, 0, message["clock"])
        try:
            self._app.result(params)
        except Exception as error:
            if params.failed is not None and not isinstance(params.failed, InputError):
                raise params.failed from error  # of the servers, whatever the program made of it
            raise raised(f"app {self._app.name}: result()", error) from error
        finally:
            client.close()

    def report(self, message: Message) -> Message:
        """All that a controller that was started again has to know of this host."""
        roles: dict[str, dict[int, int]] = {"serves": {}, "backs": {}, "gave": {}}
        era, number = self.workers.era, max([self._number, *(owner.epoch for owner in self._owners.values())])
        for one in self.server.status():
            era, number = max(era, one.era), max(number, one.epoch, one.era)
            if one.role == Role.SERVING.value:
                roles["serves"][one.partition] = one.epoch
            if one.role in (Role.SERVING.value, Role.BACKUP.value):
                roles["backs"][one.partition] = one.clocks[-1]
            if one.role == Role.UNSURE.value:
                roles["gave"][one.partition] = one.clocks[-1]
        return {
            **roles, "era": era, "number": number, "loaded": self._loaded.here(), "map": self._map,
            "address": self.server.address, "workers": self.workers.own(), "stands_in": self.workers.stands_in_for(),
            "begun": self.workers.begun, "finished": self.workers.finished, "held": self.workers.held,
            "carried": self._carried(), "thresholds": self._thresholds, **self._on_disk(),
        }  # fmt: skip

    def bye(self, message: Message) -> None:
        """Nothing of this host is needed any more."""
        if message.get("over") and self._checkpoints:
            unmark(Path(self._checkpoints), self._job)
        self._ending = True

    def _refused(self, why: str) -> None:
        """Whoever knocks for days is not told of each time."""
        if next(self._refusals) < _REFUSALS:
            self._line.send({"is": "said", "text": f"a connection to its server was closed: {why}"})

    # What runs beside.

    def _stay_alive(self) -> None:
        while not self._ending:
            self._line.mention({"is": "alive", "carried": self._carried()})
            time.sleep(ALIVE_S)

    def _carried(self) -> Message:
        return structs.asdict(ACCOUNT.total())

    def _watch_partitions(self) -> None:
        """Tell what has changed of partitions."""
        while not self._ending:
            changed = {}
            for one in self.server.status():
                now = [one.role, one.era, one.epoch, one.clocks[-1] if one.clocks else -1, one.pushed]
                if self._told.get(one.partition) != now:
                    self._told[one.partition] = changed[one.partition] = now
            if changed:
                self._line.send({"is": "partitions", "partitions": changed})
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


_Does = Callable[[Node, Message], Message | None]


def _by_server(does: server_words.Does) -> _Does:
    return lambda node, message: does(node.server, message)


_SHORT: dict[str, _Does] = {
    **{do: _by_server(does) for do, does in server_words.AT_ONCE.items()},
    "begin": Node.begin, "roll_back": Node.roll_back, "point": Node.point, "hold": Node.hold, "let_go": Node.let_go,
    "assign": Node.assign, "stand_in": Node.stand_in, "report": Node.report, "bye": Node.bye,
    "begin_again": Node.begin_again, "tell": Node.tell, "keep_thresholds": Node.keep_thresholds,
}  # fmt: skip
_LONG: dict[str, _Does] = {
    **{do: _by_server(does) for do, does in server_words.LONG.items()},
    "load": Node.load, "keep": Node.keep, "discard": Node.discard, "result": Node.result,
    "mark_folder": Node.mark_folder, "check_folder": Node.check_folder,
}  # fmt: skip
# Said to those that have not joined yet, too, or to all: it does not mean that they are waited for.
_UNHURRIED = (
    "begin", "load", "point", "push_up_to", "tell", "keep_thresholds", "release", "forget", "report", "roll_back",
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
