"""Plan a pipeline on a measured network: which layers on which hosts."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from plink.api.pipeline_simulation import check_hosts, rated_fabric
from plink.api.pipeline_training import TrainingRequest
from plink.errors import UsageError
from plink.model.hosts import Hosts
from plink.model.network import Network
from plink.model.pipeline.plan import PipelinePlan
from plink.model.pipeline.profile import ModelProfile
from plink.model.units import parse_bytes
from solvers.pipeline.joint import plan_measured
from solvers.pipeline.joint_request import JointRequest, MeasuredHosts
from solvers.pipeline.joint_search import Watch


@dataclass(frozen=True)
class MeasuredPipelineRequest:
    """How to train on measured hosts. ``hosts``: those that may be used, all of the network when None. ``gbps``: their
    rate where none was measured. ``memory``: sizes like ``14GiB``, for all hosts or ``HOST=14GiB`` for one."""

    training: TrainingRequest = field(default_factory=TrainingRequest)
    hosts: Hosts | None = None
    gbps: float | None = None
    memory: Sequence[str] = ()
    compare: bool = False
    seed: int = 0
    moves: int = 60_000

    def check(self) -> None:
        """Refuse what no file is needed to refuse.

        :raises UsageError: naming the option.
        """
        self.training.check()
        self._sizes()

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
        training = self.training
        return JointRequest(
            kind=training.planned_kind,
            stages=training.stage_ranges(profile, workers),
            depths=training.depths,
            accumulate=training.microbatches or 1,
            recompute=training.recompute,
            vertical_sync=training.vertical_sync,
            reduce=training.reduce,
            straight=training.straight,
            all_workers=training.all_workers,
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
