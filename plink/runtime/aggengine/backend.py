"""The backend ``plink`` of torch.distributed: a process group whose all-reduces run over a schedule.

A group of some of the ranks goes by what is left of the schedule of all (:mod:`restriction`). What the backend does not
do itself goes to a Gloo group of the same ranks: other collectives, tensors of other types, and what a measurement at
the beginning found Gloo to do sooner; what is on a GPU goes to NCCL, where torch has it (:mod:`accelerators`).
"""

import atexit
import sys
import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import PrefixStore, Store  # type: ignore[attr-defined]
from torch.futures import Future

from plink.runtime.aggengine.accelerators import Accelerators, staging_asked_for
from plink.runtime.aggengine.aggregation import Aggregation, given, share
from plink.runtime.aggengine.aside import Aside, all_reduce
from plink.runtime.aggengine.connections import Connections, descriptors, own_address, sockets
from plink.runtime.aggengine.crossover import NEVER, REPEATS, Crossover, Rivals, Sizes, faster_from, measured_sizes
from plink.runtime.aggengine.eager import connected
from plink.runtime.aggengine.engine import Engine
from plink.runtime.aggengine.failures import AggregationError, Watch
from plink.runtime.aggengine.launcher_line import LauncherLine
from plink.runtime.aggengine.meeting import FullMesh
from plink.runtime.aggengine.reductions import GLOO_SUMS, only_ours, reduction_for
from plink.runtime.aggengine.said import by_schedules, summary
from plink.runtime.aggengine.staging import fetch
from plink.runtime.aggengine.transport import GlooTransport, allow
from plink.runtime.aggengine.tuning import Tuning

NAME = "plink"

# What goes to Gloo.
_DELEGATED = (
    *("_allgather_base", "_reduce_scatter_base", "all_gather_single", "all_gather_single_coalesced"),
    *("all_to_all_single",),
    *("allgather", "allgather_coalesced", "allgather_into_tensor_coalesced", "allreduce_coalesced", "alltoall"),
    *("alltoall_base", "barrier", "broadcast", "gather", "monitored_barrier", "recv", "recv_anysource", "reduce"),
    *("reduce_scatter", "reduce_scatter_single", "reduce_scatter_single_coalesced", "reduce_scatter_tensor_coalesced"),
    *("scatter", "send"),
)
_ENGINES: "weakref.WeakSet[Engine]" = weakref.WeakSet()
_PATIENCE_S = 2.0
_LEAST: Any = dist.ReduceOp.MIN
_HOST = torch.device("cpu")
_FEW = 2  # repetitions of what is measured for a group of some ranks, of which there may be many
# What was measured before for such a group, which scripts make again and again: its ranks, schedules and device.
_MEASURED: dict[tuple[tuple[int, ...], str, str], Sizes] = {}
_SAID: set[str] = set()  # of groups of some ranks


class AllReduceWork(dist.Work):
    """One all-reduce under way. (Of the works that torch makes of a future, ``wait`` raises nothing.)"""

    def __init__(self, future: Future[list[torch.Tensor]]) -> None:
        super().__init__()
        self._future = future

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Until it is done. The group's time-out holds, whatever is asked for here.

        :raises RuntimeError: when it failed.
        """
        self._future.wait()
        return True

    def get_future(self) -> Future[list[torch.Tensor]]:
        """What DDP waits for."""
        return self._future

    def is_completed(self) -> bool:
        """Whether it is done, or failed."""
        return self._future.done()

    def result(self) -> list[torch.Tensor]:
        """The reduced tensor, once it is done."""
        return self._future.value()


class PlinkProcessGroup(dist.ProcessGroup):
    """Ranks that all-reduce by a plan; without a plan for them it is a Gloo group."""

    def __init__(self, store: Store, rank: int, size: int, timeout: timedelta, members: Sequence[int] = ()) -> None:
        """:param members: the job's ranks that are in the group, in its order; none: it is the group of all."""
        super().__init__(rank, size)  # type: ignore[call-arg]
        self._members = tuple(members)
        self._gloo: Any = dist.ProcessGroupGloo(PrefixStore("gloo/", store), rank, size, timeout)
        self._gloo._set_sequence_number_for_group()
        # Who calls from C++ finds Gloo here by itself. Calls from Python must not: of a process group of Python torch
        # calls its own implementation with the interpreter's lock held, for which Gloo's thread may be waiting with
        # its own. So they go to a group of C++ (below), as they would without plink.
        self._plain: Any = dist.ProcessGroup(store, rank, size)
        self._accelerators = Accelerators(store, rank, size, timeout, self._gloo)
        for group in (self, self._plain):
            group._register_backend(torch.device("cpu"), dist.ProcessGroup.BackendType.GLOO, self._gloo)
            if self._accelerators.group is not None:
                group._register_backend(torch.device("cuda"), self._accelerators.kind, self._accelerators.group)
            group._set_default_backend(dist.ProcessGroup.BackendType.GLOO)
        self._engine: Engine | None = None
        self._sizes = Sizes()
        self._staged: dict[str, Sizes] = {}  # by the type of device
        self._given: Aggregation | None = None
        if size < 2:
            return
        self._given = aggregation = share(PrefixStore("plan/", store), rank, self._find)
        if not self._members:
            _MEASURED.clear()
            _SAID.clear()
        if aggregation is not None and aggregation.ranks == size:
            self._engage(aggregation, store, timeout)
        elif aggregation is not None and aggregation.ranks is not None and rank == 0 and not self._members:
            print(
                f"plink: the plan is for {aggregation.ranks} ranks; gloo serves this group of {size}", file=sys.stderr
            )

    def _find(self) -> Aggregation | None:
        """What the group goes by: what all go by now, without those who are not in it; the plan as it is, where it is
        for as many ranks as the group has, but not for all."""
        if not self._members:
            return _told()
        world = dist.group.WORLD
        whole = world.current() if isinstance(world, PlinkProcessGroup) else _told()
        if whole is None or whole.ranks != dist.get_world_size():
            return None if whole is None else replace(whole, ring=())
        return whole.for_members(self._members)

    def current(self) -> Aggregation | None:
        """What the group goes by now: Autotune may have replaced a schedule."""
        return self._given if self._engine is None else self._engine.current()

    def _engage(self, aggregation: Aggregation, store: Store, timeout: timedelta) -> None:
        rank, size = self.rank(), self.size()
        # Looking on finds out why before the transport gives up, which only knows whom it waited for.
        patience = timeout + timedelta(seconds=5)
        tuned = aggregation.tuned is not None and _first_on(PrefixStore("tuned/", store), rank)
        others, before = sockets() if tuned else {}, descriptors()
        names = self._members or range(size)
        allow(size * (2 * aggregation.lanes + 1))  # one aside
        mesh = FullMesh(rank, names, aggregation.lanes)
        transport = GlooTransport(PrefixStore("engine/", store), mesh, patience)
        eager = None
        if not self._members or _world_meets():
            address = own_address(descriptors() - before)
            eager = connected(PrefixStore("eager/", store), mesh, patience, address, self._all_can)
        opened = {fd: inode for fd, inode in sockets().items() if others.get(fd) != inode} if tuned else {}
        watch = Watch(PrefixStore("watch/", store), rank, size, timeout, names=names)
        self._engine = Engine(aggregation, rank, transport, watch, eager)
        _ENGINES.add(self._engine)
        self._sizes = self._crossover(aggregation)
        if aggregation.ring and aggregation.smallest_bytes is None and aggregation.tuned is None:
            self._try_ring(aggregation, PrefixStore("ring/", store), patience)
        self._say(summary(aggregation, self._sizes, self._engine.handed_from, bool(self._members)))
        if tuned and self._sizes.smallest >= NEVER:  # the same on all ranks
            if rank == 0:
                print("plink: not tuned: gloo does every all-reduce", file=sys.stderr)
        elif tuned:
            self._tune(aggregation, transport, Connections(opened, size), PrefixStore("aside/", store), timeout)

    def _all_can(self, mine: bool) -> bool:
        """Whether all ranks say so, who all ask."""
        known = torch.tensor([int(mine)], device=_HOST)
        self._by_gloo(known, _LEAST).wait()
        return bool(int(known))

    def _say(self, what: str) -> None:
        """Once for all groups of some of the ranks."""
        if (self._members or range(self.size()))[self.rank()] == 0:
            if what not in _SAID:
                print(f"plink: {what}", file=sys.stderr, flush=True)
            if self._members:
                _SAID.add(what)

    def _crossover(self, aggregation: Aggregation) -> Sizes:
        """For which sizes schedules are used: as given, as measured before for the same ranks, or measured. Who is in a
        group was in it before, so all know or nobody does."""
        assert self._engine is not None
        if aggregation.smallest_bytes is not None:
            return Sizes(aggregation.smallest_bytes)
        # What is large is what Autotune is for.
        short = None if aggregation.tuned is not None else self._engine.short_bytes
        rivals = Rivals(self._by_engine, self._by_gloo, _has_schedule(aggregation))
        return self._measured(aggregation, _HOST, lambda repeats: measured_sizes(rivals, repeats, short))

    def _measured(self, aggregation: Aggregation, device: torch.device, measured: Callable[[int], Sizes]) -> Sizes:
        """What was measured before, or is now with so many repetitions."""
        key = self._members, aggregation.fingerprint(), device.type
        if self._members and key in _MEASURED:
            return _MEASURED[key]
        found = measured(_FEW if self._members else REPEATS)
        if self._members:
            _MEASURED[key] = found
        return found

    def _wanted(self, size_bytes: int, device: torch.device) -> bool:
        """Whether the engine does all-reduces of such tensors, where it can."""
        assert self._engine is not None
        handed = size_bytes >= self._engine.handed_from
        if device.type == "cpu":
            return handed or size_bytes in self._sizes
        aggregation, short = self._engine.aggregation, self._engine.short_bytes
        if not aggregation.staged:
            return False
        if device.type not in self._staged:
            ways = self._by_engine, _has_schedule(aggregation)
            found = self._measured(
                aggregation,
                device,
                lambda repeats: self._accelerators.staged_sizes(device, self._sizes, *ways, repeats, short),
            )
            self._staged[device.type] = found
            self._say(f"all-reduces on {device.type} {by_schedules(found)}")
        return (handed and not self._accelerators.by_nccl) or size_bytes in self._staged[device.type]

    def _try_ring(self, aggregation: Aggregation, store: Store, timeout: timedelta) -> None:
        """Hand what is large over to Gloo in another order, where that is faster."""
        assert self._engine is not None
        engine, aside = self._engine, Aside(store, self.rank(), aggregation.ring, timeout)

        def ordered(data: torch.Tensor, op: Any) -> dist.Work:
            engine.hand_over(0, aside)
            return self._by_engine(data, op)

        def present(data: torch.Tensor, op: Any) -> dist.Work:
            engine.hand_over(NEVER, aside)
            return (self._by_engine if data.nbytes in self._sizes else self._by_gloo)(data, op)

        found = faster_from(ordered, present, self._by_gloo)
        engine.hand_over(found, aside if found < NEVER else None)
        if found >= NEVER:
            aside.shutdown()

    def _tune(
        self,
        aggregation: Aggregation,
        transport: GlooTransport,
        connections: Connections,
        store: Store,
        timeout: timedelta,
    ) -> None:
        """Let the launcher replace the schedule, if all ranks can say what they see."""
        assert self._engine is not None
        rank, size = self.rank(), self.size()
        # Two a peer and lane, for short messages and long ones, and room for what others opened meanwhile.
        length = (size + 1) * 2 * aggregation.lanes
        mine = torch.from_numpy(connections.identities(length))
        everyone = [torch.empty_like(mine) for _ in range(size)]
        self._gloo.allgather([everyone], [mine]).wait()
        if self._all_can(connections.meet(torch.stack(everyone).numpy(), rank)):
            line = LauncherLine() if rank == 0 else LauncherLine("")
            if rank == 0 and not line.connected:
                print("plink: not tuned: nobody listens at the launcher's end of the line", file=sys.stderr)
            crossover, aside = None, None
            if aggregation.smallest_bytes is None:
                aside = Aside(store, rank, range(size), timeout)
                crossover = Crossover(self._sizes.smallest, aside.all_reduce)
                self._sizes = Sizes(0)  # it is the engine now that knows what goes to Gloo
            self._engine.tune(Tuning(aggregation, rank, transport, connections, line, crossover), aside)
        elif rank == 0:
            print("plink: not tuned: the kernel does not tell which connection leads to which rank", file=sys.stderr)

    def allreduce(  # type: ignore[override]
        self, tensors: Sequence[torch.Tensor], opts: dist.AllreduceOptions | None = None
    ) -> dist.Work:
        """All-reduce one tensor in place; returns at once."""
        opts = opts or dist.AllreduceOptions()
        if len(tensors) == 1 and self._ours(tensors[0], opts.reduceOp):
            return self._by_engine(tensors[0], opts.reduceOp, waits=not getattr(opts, "asyncOp", True))
        where = self._plain if any(tensor.is_cuda for tensor in tensors) else self._gloo
        work: dist.Work = where.allreduce(list(tensors), opts)
        return work

    def _ours(self, tensor: torch.Tensor, op: dist.ReduceOp) -> bool:
        """Whether the engine does it: the same answer on every rank whose call is the same."""
        if self._engine is None:
            return False
        if self._engine.broken is not None:
            raise AggregationError(f"plink: {self._engine.broken}")
        if tensor.layout is not torch.strided or tensor.nbytes == 0:
            return False
        # What Gloo cannot do must not depend on what is faster.
        must = tensor.device.type == "cpu" and only_ours(op, tensor.dtype)
        return (
            (must or self._wanted(tensor.nbytes, tensor.device))
            and self._can(tensor)
            and reduction_for(op, tensor.dtype) is not None
        )

    def _can(self, tensor: torch.Tensor) -> bool:
        """Whether the engine has a schedule for it, or somebody to hand it over to."""
        assert self._engine is not None
        if tensor.nbytes >= self._engine.handed_from and tensor.dtype in GLOO_SUMS:
            return True
        return self._engine.aggregation.choose(tensor.nbytes).schedule is not None

    def _by_gloo(self, tensor: torch.Tensor, op: dist.ReduceOp) -> dist.Work:
        return all_reduce(self._gloo, tensor, op)

    def _by_engine(self, tensor: torch.Tensor, op: dist.ReduceOp, waits: bool = True) -> dist.Work:
        """Fetch, reduce, deliver. ``waits``: the caller waits for the result before it does anything else."""
        assert self._engine is not None
        reduction = reduction_for(op, tensor.dtype)
        schedule = self._engine.aggregation.choose(tensor.nbytes).schedule
        if reduction is None or not self._can(tensor):
            return self._by_gloo(tensor, op)
        fetched = fetch(tensor)
        # Of tensors on a GPU it takes streams along, for those who go on with what it gives (DDP's hooks).
        ended: Future[str | None] = Future(devices=[tensor.device]) if tensor.is_cuda else Future()

        def deliver(future: Future[str | None]) -> list[torch.Tensor]:
            why = future.value()
            if why is not None:
                raise AggregationError(f"plink: {why}")
            if fetched.deliver is not None:
                fetched.deliver()
            return [tensor]

        # What a callback raises is an error for those who wait in C++ too, which an exception set from Python is not.
        result = ended.then(deliver)
        self._engine.submit(fetched.flat, schedule, reduction, ended.set_result, fetched.ready, waits)
        return AllReduceWork(result)

    def getBackendName(self) -> str:
        """The name it is registered under."""
        return NAME

    def shutdown(self) -> None:
        """End what belongs to the group; ``destroy_process_group`` calls it."""
        if self._engine is not None:
            self._engine.close(_PATIENCE_S)
            _ENGINES.discard(self._engine)
            self._engine = None
        self._accelerators.shutdown()
        self._gloo.shutdown()

    def abort(self) -> None:
        """As :meth:`shutdown`, and what is under way fails."""
        self.shutdown()


def _world_meets() -> bool:
    """Whether nothing is known against connections of our own: all ranks know whether all had them."""
    world = dist.group.WORLD
    engine = world._engine if isinstance(world, PlinkProcessGroup) else None
    return engine is None or engine.short_bytes is not None


def _told() -> Aggregation | None:
    """What this process was told to go by."""
    aggregation = given()
    return None if aggregation is None else replace(aggregation, staged=staging_asked_for())


def _has_schedule(aggregation: Aggregation) -> Callable[[int], bool]:
    return lambda size: aggregation.choose(size).schedule is not None


def _first_on(store: Store, rank: int) -> bool:
    """Whether this is the only group with an engine on rank 0, whose word counts for all: the world is tuned, groups
    that are made besides keep their schedules."""
    if rank == 0:
        store.set("first", b"no" if _ENGINES else b"yes")  # type: ignore[arg-type]
    return bool(store.get("first") == b"yes")


def _delegate(name: str) -> Callable[..., Any]:
    def delegated(self: PlinkProcessGroup, *arguments: Any, **options: Any) -> Any:
        return getattr(self._plain, name)(*arguments, **options)

    delegated.__name__ = name
    delegated.__doc__ = f"{name}, by Gloo."
    return delegated


for _name in _DELEGATED:
    if hasattr(dist.ProcessGroup, _name):  # which of them there are depends on torch's version
        setattr(PlinkProcessGroup, _name, _delegate(_name))


@atexit.register
def _end() -> None:
    """Scripts end without ``destroy_process_group``."""
    for engine in list(_ENGINES):
        engine.close(_PATIENCE_S)
