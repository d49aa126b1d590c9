"""A whole job in one process, for writing and testing programs: real servers and workers, on the loopback."""

import contextlib
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np

from plink.elastic.app import App, Items, unwritable
from plink.elastic.tables import Values
from plink.errors import PlinkError, UsageError
from plink.model.consistency import BSP, Rule
from plink.model.elastic.fields import UpdateCounts
from plink.runtime.elastic.helping.host_rebalancing import HostRebalancing
from plink.runtime.elastic.helping.sides import Rebalance
from plink.runtime.elastic.server import Server
from plink.runtime.elastic.transport.connection import StoreConfig
from plink.runtime.elastic.transport.keys import RunKeys
from plink.runtime.elastic.worker import progress
from plink.runtime.elastic.worker.client import Client
from plink.runtime.elastic.worker.clock_work import LoadedShards
from plink.runtime.elastic.worker.primaries import PrimaryAddress, Timeouts, Unanswered
from plink.runtime.elastic.worker.progress import job_layout
from plink.runtime.elastic.worker.worker import Finished, Worker

_PARTITIONS = 4
_TIMEOUTS = Timeouts(primary_s=60.0)  # nothing is lost on the loopback; the machine may be busy


@dataclass(frozen=True)
class TrainingResult:
    """Result of local training: the tables at the end, by name, each of shape (rows, width); the objectives of the
    latest iterations; the share of the work that helpers did; the updates of asynchronous workers."""

    tables: dict[str, Values]
    objectives: list[float]
    finished: Finished
    moved: float = 0.0
    updates: UpdateCounts = field(default_factory=UpdateCounts)


def train(
    app: App[Items],
    *,
    workers: int = 1,
    servers: int = 1,
    rule: Rule | None = None,
    say: Callable[[str], None] = lambda line: None,
    rebalance: Rebalance | None = None,
) -> TrainingResult:
    """Train until the stopping criterion is met; the first mistake of any worker ends the job.

    :param rebalance: workers that are ahead help those that are behind; None: they do not.
    :raises PlinkError: the program's result could not be kept.
    :raises UsageError: ``rebalance`` with a rule under which nobody waits for the clock of another one; workers or
        servers that are no whole number above 0.
    """
    for name, count in (("workers", workers), ("servers", servers)):
        if not isinstance(count, int) or count < 1:
            raise UsageError(f"{name}: {count!r}, which must be a whole number, 1 or above")
    if app.result_file and (reason := unwritable(app.result_file)):
        raise PlinkError(reason)
    config = StoreConfig(job_layout(app, _PARTITIONS), RunKeys.make(), rule or BSP())
    with contextlib.ExitStack() as closing:
        serving = [closing.enter_context(contextlib.closing(Server(config))) for _ in range(servers)]
        primaries = {
            partition: PrimaryAddress(serving[partition % servers].address) for partition in range(_PARTITIONS)
        }
        for partition in primaries:
            serving[partition % servers].open(partition, dict.fromkeys(range(workers), 0))

        def client(number: int, clock: int = 0) -> Client:
            made = Client(config, number, primaries, clock=clock, timeouts=_TIMEOUTS)
            return closing.enter_context(contextlib.closing(made))

        loaded, started = LoadedShards(app), time.time()
        clients = [client(number) for number in range(workers)]
        loops = [
            Worker(loaded, clients[number], range(number, app.shards, workers), started=started, say=say)
            for number in range(workers)
        ]
        helping = None if rebalance is None else HostRebalancing(loaded, serving[0], rebalance, say)
        if helping is not None:
            closing.callback(helping.close)
            for number, loop in enumerate(loops):
                loop.work_off = helping.start(number, primaries)
            everybody = {number: (number, range(number, app.shards, workers), 0) for number in range(workers)}
            helping.assign(everybody, dict.fromkeys(range(workers), serving[0].address))

        def run(number: int) -> Finished:
            threading.current_thread().name, worker = f"plink-worker-{number}", loops[number]
            try:
                return worker.run()
            except BaseException:
                for other in clients:  # or they would wait for this one
                    other.give_up()
                raise

        with ThreadPoolExecutor(workers) as threads:
            running = [threads.submit(run, number) for number in range(workers)]
            errors = [error for each in running if (error := each.exception()) is not None]
        if errors:
            raise min(errors, key=lambda error: isinstance(error, Unanswered))
        end = max((each.result() for each in running), key=lambda finished: finished.clock)
        reader = client(0, end.clock)
        tables = {table.name: reader.read(table.name, np.arange(table.rows)) for table in app.tables}
        objectives = progress.Progress(reader, app.batches).objectives()
        moved, total = (0, 0) if helping is None else helping.moved()
        updates = sum((server.updates() for server in serving), UpdateCounts())
        return TrainingResult(tables, list(objectives.values()), end, moved / max(1, total), updates)
