"""Plan a pipeline on a measured network: which layers on which hosts."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from plink.api.pipeline_simulation import check_hosts, rated_fabric
from plink.documents.pipeline import Kind, ReduceMode
from plink.errors import UsageError
from plink.model.hosts import Hosts
from plink.model.network import Network
from plink.model.pipeline.plan import PipelinePlan
from plink.model.pipeline.profile import ModelProfile
from plink.model.units import parse_bytes
from solvers.pipeline.even import PLANNED_KINDS
from solvers.pipeline.joint import JointRequest, MeasuredHosts, plan_measured
from solvers.pipeline.joint_search import Watch
from solvers.pipeline.requested_stages import requested_stages

MAX_DEPTH = 4096


@dataclass(frozen=True)
class MeasuredPipelineRequest:
    """How to train on measured hosts. ``hosts``: those that may be used, all of the network when None. ``gbps``: their
    rate where none was measured. ``memory``: sizes like ``14GiB``, for all hosts or ``HOST=14GiB`` for one."""

    hosts: Hosts | None = None
    gbps: float | None = None
    memory: Sequence[str] = ()
    kind: str = "auto"
    stages: str | None = None
    depth: str = "auto"
    microbatches: int | None = None
    vertical_sync: bool = False
    reduce: ReduceMode = "wait"
    straight: bool = False
    all_workers: bool = False
    compare: bool = False
    seed: int = 0
    moves: int = 60_000

    def check(self) -> None:
        """Refuse what no file is needed to refuse.

        :raises UsageError: naming the option.
        """
        if self.kind not in ("auto", *PLANNED_KINDS):
            raise UsageError(f"--kind {self.kind}: choose one of auto, {', '.join(PLANNED_KINDS)}")
        if (self.kind == "2bw") != (self.microbatches is not None):
            raise UsageError("--kind 2bw and --microbatches go together: how many minibatches an update averages")
        if self.straight and self.stages is not None:
            raise UsageError("--straight and --stages exclude each other")
        self._depths()
        self._sizes()

    def _depths(self) -> tuple[int, ...] | Literal["noam"] | None:
        if self.depth in ("auto", "noam"):
            return None if self.depth == "auto" else "noam"
        parts = self.depth.split(",")
        if not all(part.isdecimal() and 1 <= int(part[:9]) <= MAX_DEPTH for part in parts):
            raise UsageError(f"--depth {self.depth[:40]}: auto, noam, or minibatches in flight like 4 or 4,3,2,1")
        return tuple(map(int, parts))

    def _sizes(self) -> dict[str, float]:
        """Return bytes by host; the empty name is that of all others."""
        sizes: dict[str, float] = {}
        for text in self.memory:
            name, separator, size = text.rpartition("=")
            if name in sizes or (separator and not name):
                raise UsageError(f"--memory {text[:60]}: a size for all hosts, or HOST=SIZE once for each host")
            sizes[name] = float(parse_bytes(size))
        return sizes

    def solver_request(self, profile: ModelProfile, network: Network, workers: int) -> JointRequest:
        """Return the request of the planner.

        :raises UsageError: when the stages do not fit the profile, or memory is of no host.
        """
        sizes = self._sizes()
        names = network.hosts.names
        unknown = [name for name in sizes if name and name not in names]
        if unknown:
            raise UsageError(f"--memory {unknown[0]}=...: {network.location} has no such host")
        kind: Kind | None = None if self.kind == "auto" else self.kind  # type: ignore[assignment]
        return JointRequest(
            kind=kind,
            stages=None if self.stages is None else requested_stages(self.stages, profile, workers),
            depths=self._depths(),
            accumulate=self.microbatches or 1,
            vertical_sync=self.vertical_sync,
            reduce=self.reduce,
            straight=self.straight,
            all_workers=self.all_workers,
            memory=tuple(sizes.get(name, sizes.get("", float("inf"))) for name in names) if sizes else None,
            compare=self.compare,
            seed=self.seed,
            moves=self.moves,
        )


def plan_on_network(
    profile: ModelProfile, network: Network, request: MeasuredPipelineRequest, watch: Watch | None = None
) -> PipelinePlan:
    """Return the plan of least simulated seconds per minibatch.

    :raises UsageError: when the request cannot be. :raises NoAnswer: for a network without rates, and when nothing
        fits in memory.
    """
    request.check()
    hosts = network.hosts
    usable = None
    if request.hosts is not None:
        check_hosts(request.hosts.names, network)
        usable = frozenset(request.hosts.names)
        wanted = {host.name: host.slots for host in request.hosts}
        hosts = Hosts(tuple(replace(host, slots=wanted.get(host.name, host.slots)) for host in hosts), hosts.lab)
    measured = MeasuredHosts(hosts, rated_fabric(network, request.gbps), usable)
    solver_request = request.solver_request(profile, network, len(measured.workers))
    plan = plan_measured(profile, measured, solver_request, watch)
    return replace(plan, network=network.fingerprint())
