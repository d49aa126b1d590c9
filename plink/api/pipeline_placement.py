"""Plan a pipeline on a measured network: which layers on which hosts."""

from dataclasses import dataclass, field, replace

from plink.api.pipeline_search import SearchOptions, joint_request
from plink.api.pipeline_simulation import check_hosts, rated_fabric
from plink.api.pipeline_training import TrainingRequest
from plink.model.hosts import Hosts
from plink.model.network import Network
from plink.model.pipeline.plan import PipelinePlan
from plink.model.pipeline.profile import ModelProfile
from solvers.pipeline.joint import plan_measured
from solvers.pipeline.joint_request import MeasuredHosts
from solvers.pipeline.joint_search import Watch


@dataclass(frozen=True)
class MeasuredPipelineRequest:
    """How to train on measured hosts. ``hosts``: those that may be used, all of the network when None. ``gbps``: their
    rate where none was measured."""

    training: TrainingRequest = field(default_factory=TrainingRequest)
    hosts: Hosts | None = None
    gbps: float | None = None
    search: SearchOptions = field(default_factory=SearchOptions)

    def check(self) -> None:
        """Refuse what no file is needed to refuse.

        :raises UsageError: naming the option.
        """
        self.training.check()
        self.search.check()


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
        slots = {host.name: host.slots for host in request.hosts}
        hosts = Hosts(tuple(replace(host, slots=slots.get(host.name, host.slots)) for host in hosts), hosts.lab)
    measured = MeasuredHosts(hosts, rated_fabric(network, request.gbps), usable)
    wanted = joint_request(profile, measured, request.training, request.search)
    plan = plan_measured(profile, measured, wanted, watch)
    return replace(plan, network=network.fingerprint())
