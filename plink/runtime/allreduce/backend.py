"""Backend ``plink`` of torch.distributed: a process group whose all-reduces run by a schedule.

A sub-group uses the schedule of all ranks without the absent ones (:mod:`subgroup_schedule`). Everything else is
delegated to a Gloo group of the same ranks: other collectives, tensors of other types, and sizes for which a
measurement at the beginning found Gloo to be faster. Tensors on a GPU are delegated to NCCL, where torch has it
(:mod:`cuda_delegation`).
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

from plink.runtime import requested_backend
from plink.runtime.allreduce.aggregation import Aggregation, aggregation_from_environment, broadcast_aggregation
from plink.runtime.allreduce.algorithm_selection import (
    NEVER,
    REPEATS,
    Candidates,
    DispatchThreshold,
    SizeRange,
    measure_delegation,
    measure_size_range,
)
from plink.runtime.allreduce.banner import staging_banner, startup_banner
from plink.runtime.allreduce.connections import PeerConnections, file_descriptors, own_addresses, tcp_sockets
from plink.runtime.allreduce.cuda_delegation import CudaDelegate, staging_requested
from plink.runtime.allreduce.eager import connect_eager
from plink.runtime.allreduce.engine import Engine
from plink.runtime.allreduce.host_staging import stage_to_host
from plink.runtime.allreduce.hub_announcements import HubAnnouncer, shared_store
from plink.runtime.allreduce.launcher_channel import LauncherChannel
from plink.runtime.allreduce.mesh import FullMesh
from plink.runtime.allreduce.reductions import GLOO_SUM_DTYPES, needs_engine, reduction_for
from plink.runtime.allreduce.secondary_group import SecondaryGroup, all_reduce
from plink.runtime.allreduce.tracing import untraced
from plink.runtime.allreduce.transport import GlooTransport, rail_addresses, raise_file_limit
from plink.runtime.allreduce.tuner import RankTuner
from plink.runtime.allreduce.watchdog import AggregationError, Member, Watchdog
from plink.runtime.step_report import StepCounter

NAME = "plink"

# Methods delegated to Gloo.
_DELEGATED = (
    *("_allgather_base", "_reduce_scatter_base", "all_gather_single", "all_gather_single_coalesced"),
    *("all_to_all_single",),
    *("allgather", "allgather_coalesced", "allgather_into_tensor_coalesced", "allreduce_coalesced", "alltoall"),
    *("alltoall_base", "barrier", "broadcast", "gather", "monitored_barrier", "recv", "recv_anysource", "reduce"),
    *("reduce_scatter", "reduce_scatter_single", "reduce_scatter_single_coalesced", "reduce_scatter_tensor_coalesced"),
    *("scatter", "send"),
)
_ENGINES: "weakref.WeakSet[Engine]" = weakref.WeakSet()
_CLOSE_TIMEOUT_S = 2.0
_MIN: Any = dist.ReduceOp.MIN
_HOST = torch.device("cpu")
_SUBGROUP_REPEATS = 2  # of measurements: a job may have many sub-groups
# Earlier results for sub-groups, which scripts make again and again, by ranks, schedules and device.
_MEASURED: dict[tuple[tuple[int, ...], str, str], SizeRange] = {}
_PRINTED_BANNERS: set[str] = set()  # of sub-groups
_MAX_NAMED_RANKS = 4


class AllReduceWork(dist.Work):
    """Handle of an all-reduce in progress. (``wait`` of the works that torch makes of a future raises nothing.)"""

    def __init__(self, future: Future[list[torch.Tensor]]) -> None:
        super().__init__()
        self._future = future

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Block until it is done. The group's time-out applies, not this one.

        :raises RuntimeError: when it failed.
        """
        self._future.wait()
        return True

    def get_future(self) -> Future[list[torch.Tensor]]:
        """Return the future that DDP waits for."""
        return self._future

    def is_completed(self) -> bool:
        """Return whether it is done or failed."""
        return self._future.done()

    def result(self) -> list[torch.Tensor]:
        """Return the reduced tensor, once it is done."""
        return self._future.value()


class PlinkProcessGroup(dist.ProcessGroup):
    """Process group that all-reduces by a plan; without a plan for its ranks it is a Gloo group."""

    def __init__(self, store: Store, rank: int, size: int, timeout: timedelta, members: Sequence[int] = ()) -> None:
        """:param members: the job's ranks that are in the group, in its order; empty for the group of all ranks."""
        super().__init__(rank, size)  # type: ignore[call-arg]
        self._members = tuple(members)
        self._name = "gloo" if requested_backend.gloo_requested else NAME
        self._gloo: Any = dist.ProcessGroupGloo(PrefixStore("gloo/", store), rank, size, timeout)
        self._gloo._set_sequence_number_for_group()
        # Calls from C++ reach Gloo directly. Calls from Python must not: torch calls the implementation of a Python
        # process group with the interpreter's lock held, for which Gloo's thread may wait while it holds its own. So
        # they go to a C++ group (below), as they would without plink.
        self._native: Any = dist.ProcessGroup(store, rank, size)
        self._cuda = CudaDelegate(store, rank, size, timeout, self._gloo)
        for group in (self, self._native):
            group._register_backend(torch.device("cpu"), dist.ProcessGroup.BackendType.GLOO, self._gloo)
            if self._cuda.group is not None:
                group._register_backend(torch.device("cuda"), self._cuda.kind, self._cuda.group)
            group._set_default_backend(dist.ProcessGroup.BackendType.GLOO)
        self._engine: Engine | None = None
        self._sizes = SizeRange()
        self._staged: dict[str, SizeRange] = {}  # by the type of device
        self._aggregation: Aggregation | None = None
        self._steps = StepCounter() if rank == 0 and not self._members else None
        if size < 2:
            return
        self._aggregation = aggregation = broadcast_aggregation(
            PrefixStore("plan/", store), rank, self._find_aggregation
        )
        if not self._members:
            _MEASURED.clear()
            _PRINTED_BANNERS.clear()
        if aggregation is not None and aggregation.ranks == size:
            self._start_engine(aggregation, store, timeout)
        elif aggregation is not None and aggregation.ranks is not None and rank == 0 and not self._members:
            print(f"plink: the plan is for {aggregation.ranks} ranks; this group of {size} uses gloo", file=sys.stderr)
        elif aggregation is None and rank == 0 and not self._members:
            print("plink: gloo does every all-reduce; `plink launch --backend` names a plan", file=sys.stderr)

    def _find_aggregation(self) -> Aggregation | None:
        """Return the aggregation of this group: the current one of all ranks, restricted to its members.

        A plan for as many ranks as the group has, but not for all ranks, is used as it is.
        """
        if not self._members:
            return _launch_aggregation()
        world = dist.group.WORLD
        aggregation = world.current() if isinstance(world, PlinkProcessGroup) else _launch_aggregation()
        if aggregation is None or aggregation.ranks != dist.get_world_size():
            return None if aggregation is None else replace(aggregation, ring=())
        return aggregation.for_members(self._members)

    def current(self) -> Aggregation | None:
        """Return the current aggregation: Autotune may have replaced a schedule."""
        return self._aggregation if self._engine is None else self._engine.current()

    def _start_engine(self, aggregation: Aggregation, store: Store, timeout: timedelta) -> None:
        rank = self.rank()
        names: list[Member] = [*(self._members or range(self.size())), *aggregation.hubs]
        size = len(names)
        announcer = None
        if aggregation.hubs:
            store = shared_store(store)
            announcer = HubAnnouncer(store, aggregation, timeout) if rank == 0 else None
        # The watchdog must find the reason before the transport times out, which only knows its peer.
        transport_timeout = timeout + timedelta(seconds=5)
        tuned = aggregation.tuned is not None and _is_first_engine(PrefixStore("tuned/", store), rank)
        sockets_before, descriptors_before = tcp_sockets() if tuned else {}, file_descriptors()
        raise_file_limit(size * (2 * aggregation.channels + 1))  # and one secondary group
        mesh = FullMesh(rank, names, aggregation.channels)
        transport = GlooTransport(PrefixStore("engine/", store), mesh, transport_timeout)
        eager = None
        if not aggregation.hubs and (not self._members or _world_has_eager()):
            addresses = rail_addresses() or own_addresses(file_descriptors() - descriptors_before)
            eager = connect_eager(PrefixStore("eager/", store), mesh, transport_timeout, addresses, self._all_agree)
        opened = {fd: inode for fd, inode in tcp_sockets().items() if sockets_before.get(fd) != inode} if tuned else {}
        watchdog = Watchdog(PrefixStore("watch/", store), rank, size, timeout, names=names)
        self._engine = Engine(aggregation, rank, transport, watchdog, eager, announcer)
        _ENGINES.add(self._engine)
        self._sizes = self._measure_sizes(aggregation)
        takes_ring = aggregation.smallest_bytes is None and aggregation.tuned is None and not aggregation.hubs
        if aggregation.ring and takes_ring:  # hubs run all that the engine is given: it must delegate nothing
            self._measure_ring_delegation(aggregation, PrefixStore("ring/", store), transport_timeout)
        self._print_banner(
            startup_banner(aggregation, self._sizes, self._engine.delegation_min_bytes, bool(self._members))
        )
        if tuned and self._sizes.min_bytes >= NEVER:  # the same on all ranks
            if rank == 0:
                print("plink: not tuned: gloo does every all-reduce", file=sys.stderr)
        elif tuned:
            self._start_tuner(
                aggregation, transport, PeerConnections(opened, size), PrefixStore("aside/", store), timeout
            )

    def _all_agree(self, own: bool) -> bool:
        """Return whether all ranks pass True; all ranks call this."""
        answer = torch.tensor([int(own)], device=_HOST)
        self._run_gloo(answer, _MIN).wait()
        return bool(int(answer))

    def _print_banner(self, banner: str) -> None:
        """Print a line on rank 0, once for all sub-groups of which it is true, with the ranks of the first."""
        if (self._members or range(self.size()))[self.rank()] == 0:
            if banner not in _PRINTED_BANNERS:
                more = ", ..." if len(self._members) > _MAX_NAMED_RANKS else ""
                members = ", ".join(map(str, self._members[:_MAX_NAMED_RANKS])) + more
                print(f"plink: {banner}{members and f' (ranks {members})'}", file=sys.stderr, flush=True)
            if self._members:
                _PRINTED_BANNERS.add(banner)

    def _measure_sizes(self, aggregation: Aggregation) -> SizeRange:
        """Return the sizes that use schedules: as configured, as measured before for the same ranks, or measured now.

        All members of a group were in the earlier one, so all ranks have the earlier result or none has.
        """
        assert self._engine is not None
        if aggregation.smallest_bytes is not None:
            return SizeRange(aggregation.smallest_bytes)
        # Large messages are Autotune's.
        short = None if aggregation.tuned is not None else self._engine.eager_max_bytes
        rivals = Candidates(self._run_engine, self._run_gloo, _has_schedule(aggregation))
        has_hubs = bool(aggregation.hubs)
        return self._cached_measurement(
            aggregation, _HOST, lambda repeats: measure_size_range(rivals, repeats, short, has_hubs)
        )

    def _cached_measurement(
        self, aggregation: Aggregation, device: torch.device, measure_with: Callable[[int], SizeRange]
    ) -> SizeRange:
        """Return an earlier measurement, or measure with so many repetitions."""
        key = self._members, aggregation.fingerprint(), device.type
        if self._members and key in _MEASURED:
            return _MEASURED[key]
        size_range = measure_with(_SUBGROUP_REPEATS if self._members else REPEATS)
        if self._members:
            _MEASURED[key] = size_range
        return size_range

    def _prefers_engine(self, size_bytes: int, device: torch.device) -> bool:
        """Return whether the engine does all-reduces of such tensors, where it can."""
        assert self._engine is not None
        is_delegated = size_bytes >= self._engine.delegation_min_bytes
        if device.type == "cpu":
            return is_delegated or size_bytes in self._sizes
        aggregation, short = self._engine.aggregation, self._engine.eager_max_bytes
        if not aggregation.staged:
            return False
        if device.type not in self._staged:
            algorithms = self._run_engine, _has_schedule(aggregation)
            size_range = self._cached_measurement(
                aggregation,
                device,
                lambda repeats: self._cuda.staged_range(device, self._sizes, *algorithms, repeats, short),
            )
            self._staged[device.type] = size_range
            self._print_banner(f"all-reduces on {device.type} {staging_banner(size_range)}")
        return (is_delegated and not self._cuda.is_nccl) or size_bytes in self._staged[device.type]

    def _measure_ring_delegation(self, aggregation: Aggregation, store: Store, timeout: timedelta) -> None:
        """Delegate large all-reduces to Gloo in another rank order, where that is faster."""
        assert self._engine is not None
        engine, secondary = self._engine, SecondaryGroup(store, self.rank(), aggregation.ring, timeout)

        def delegated(data: torch.Tensor, op: Any) -> dist.Work:
            engine.delegate_above(0, secondary)
            return self._run_engine(data, op)

        def current_algorithm(data: torch.Tensor, op: Any) -> dist.Work:
            engine.delegate_above(NEVER, secondary)
            return (self._run_engine if data.nbytes in self._sizes else self._run_gloo)(data, op)

        min_bytes = measure_delegation(delegated, current_algorithm, self._run_gloo)
        engine.delegate_above(min_bytes, secondary if min_bytes < NEVER else None)
        if min_bytes >= NEVER:
            secondary.shutdown()

    def _start_tuner(
        self,
        aggregation: Aggregation,
        transport: GlooTransport,
        connections: PeerConnections,
        store: Store,
        timeout: timedelta,
    ) -> None:
        """Let the launcher replace the schedule, if all ranks can read their connections' statistics."""
        assert self._engine is not None
        rank, size = self.rank(), self.size()
        # Two for each peer and channel (short and long messages), and some for connections opened meanwhile.
        length = (size + 1) * 2 * aggregation.channels
        own = torch.from_numpy(connections.identities(length))
        by_rank = [torch.empty_like(own) for _ in range(size)]
        self._gloo.allgather([by_rank], [own]).wait()
        if self._all_agree(connections.match_peers(torch.stack(by_rank).numpy(), rank)):
            launcher = LauncherChannel() if rank == 0 else LauncherChannel("")
            if rank == 0 and not launcher.connected:
                print("plink: not tuned: the launcher does not accept connections", file=sys.stderr)
            threshold, secondary = None, None
            if aggregation.smallest_bytes is None:
                secondary = SecondaryGroup(store, rank, range(size), timeout)
                threshold = DispatchThreshold(self._sizes.min_bytes, secondary.all_reduce)
                self._sizes = SizeRange(0)  # the engine delegates to Gloo from now on
            self._engine.attach_tuner(
                RankTuner(aggregation, rank, transport, connections, launcher, threshold), secondary
            )
        elif rank == 0:
            print("plink: not tuned: the kernel does not match connections to ranks", file=sys.stderr)

    @untraced
    def allreduce(self, tensors: Sequence[torch.Tensor], opts: dist.AllreduceOptions | None = None) -> dist.Work:
        """All-reduce one tensor in place; returns at once."""
        opts = opts or dist.AllreduceOptions()
        if self._steps is not None:
            self._steps.add(sum(tensor.nbytes for tensor in tensors if tensor.layout is torch.strided))
        if len(tensors) == 1 and self._uses_engine(tensors[0], opts.reduceOp):
            return self._run_engine(tensors[0], opts.reduceOp, blocking=not getattr(opts, "asyncOp", True))
        is_alone = self.size() == 1 or not tensors[0].numel()
        if len(tensors) == 1 and is_alone and needs_engine(opts.reduceOp, tensors[0]):
            unchanged: Future[list[torch.Tensor]] = Future()
            unchanged.set_result(list(tensors))
            return AllReduceWork(unchanged)
        group = self._native if any(tensor.is_cuda for tensor in tensors) else self._gloo
        work: dist.Work = group.allreduce(list(tensors), opts)
        return work

    def _uses_engine(self, tensor: torch.Tensor, op: dist.ReduceOp) -> bool:
        """Return whether the engine does the all-reduce: the same on every rank for the same call."""
        if self._engine is None:
            return False
        if self._engine.error is not None:
            raise AggregationError(f"plink: {self._engine.error}")
        reduction = reduction_for(op, tensor.dtype)
        if tensor.layout is not torch.strided or tensor.nbytes == 0 or reduction is None:
            return False
        # A reduction that Gloo lacks must not depend on measurements.
        required = needs_engine(op, tensor)
        return (required or self._prefers_engine(tensor.nbytes, tensor.device)) and self._has_algorithm(tensor, op)

    def _has_algorithm(self, tensor: torch.Tensor, op: dist.ReduceOp) -> bool:
        """Return whether the engine has a schedule for the tensor, or a delegate."""
        assert self._engine is not None
        if tensor.nbytes >= self._engine.delegation_min_bytes and tensor.dtype in GLOO_SUM_DTYPES:
            return True
        return self._engine.aggregation.schedule_for(tensor.nbytes, needs_engine(op, tensor)) is not None

    def _run_gloo(self, tensor: torch.Tensor, op: dist.ReduceOp) -> dist.Work:
        return all_reduce(self._gloo, tensor, op)

    def _run_engine(self, tensor: torch.Tensor, op: dist.ReduceOp, blocking: bool = True) -> dist.Work:
        """Stage, reduce, copy back. ``blocking``: the caller waits for the result at once."""
        assert self._engine is not None
        reduction = reduction_for(op, tensor.dtype)
        schedule = self._engine.aggregation.schedule_for(tensor.nbytes, needs_engine(op, tensor))
        if reduction is None or not self._has_algorithm(tensor, op):
            return self._run_gloo(tensor, op)
        staged = stage_to_host(tensor)
        # For tensors on a GPU the future carries streams, for callbacks on its result (DDP's hooks).
        done: Future[str | None] = Future(devices=[tensor.device]) if tensor.is_cuda else Future()

        def copy_back(future: Future[str | None]) -> list[torch.Tensor]:
            error = future.value()
            if error is not None:
                raise AggregationError(f"plink: {error}")
            if staged.copy_back is not None:
                staged.copy_back()
            return [tensor]

        # An error that a callback raises also reaches waiters in C++; an exception set from Python does not.
        result = done.then(copy_back)
        self._engine.submit(staged.flat, schedule, reduction, done.set_result, staged.wait_ready, blocking)
        return AllReduceWork(result)

    def getBackendName(self) -> str:
        """Return the backend that the program asked for: operations of torch ask, and refuse others than Gloo."""
        return self._name

    def shutdown(self) -> None:
        """Shut the group down; ``destroy_process_group`` calls it."""
        self.report_steps()
        if self._engine is not None:
            self._engine.close(_CLOSE_TIMEOUT_S)
            _ENGINES.discard(self._engine)
            self._engine = None
        self._cuda.shutdown()
        self._gloo.shutdown()

    def report_steps(self) -> None:
        """Print the bytes and seconds of a step, once, on rank 0 of a program that ends well."""
        line = None if self._steps is None or hasattr(sys, "last_value") else self._steps.report()
        self._steps = None
        if line is not None:
            print(line, file=sys.stderr, flush=True)

    def abort(self) -> None:
        """Shut the group down; all-reduces in progress fail."""
        self.shutdown()


def _world_has_eager() -> bool:
    """Return whether the group of all ranks uses the eager protocol, or is not known not to."""
    world = dist.group.WORLD
    engine = world._engine if isinstance(world, PlinkProcessGroup) else None
    return engine is None or engine.eager_max_bytes is not None


def _launch_aggregation() -> Aggregation | None:
    """Return the aggregation that the launcher configured for this process."""
    aggregation = aggregation_from_environment()
    return None if aggregation is None else replace(aggregation, staged=staging_requested())


def _has_schedule(aggregation: Aggregation) -> Callable[[int], bool]:
    return lambda size: aggregation.choose(size).schedule is not None


def _is_first_engine(store: Store, rank: int) -> bool:
    """Return whether this is the only group with an engine on rank 0, which decides for all ranks.

    The group of all ranks is tuned; other groups keep their schedules.
    """
    if rank == 0:
        store.set("first", b"no" if _ENGINES else b"yes")  # type: ignore[arg-type]
    return bool(store.get("first") == b"yes")


def _delegate(name: str) -> Callable[..., Any]:
    @untraced
    def delegated(self: PlinkProcessGroup, *arguments: Any, **options: Any) -> Any:
        return getattr(self._native, name)(*arguments, **options)

    delegated.__name__ = name
    delegated.__doc__ = f"{name}, by Gloo."
    return delegated


for _name in _DELEGATED:
    if hasattr(dist.ProcessGroup, _name):  # torch's versions differ
        setattr(PlinkProcessGroup, _name, _delegate(_name))


@atexit.register
def _end() -> None:
    """Close engines, and the group, of scripts that end without ``destroy_process_group``."""
    world = dist.group.WORLD
    if isinstance(world, PlinkProcessGroup):
        world.report_steps()
    for engine in list(_ENGINES):
        engine.close(_CLOSE_TIMEOUT_S)
    if isinstance(world, PlinkProcessGroup):
        dist.destroy_process_group()  # Gloo's threads abort a process that ends before they do
