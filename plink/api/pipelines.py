"""Plans of pipelines: from a profile and a description of an even network to a plan, and its proof.

The fastest plan that was simulated is taken, as for measured networks; or the stages are those of the thesis.
"""

import re
from dataclasses import dataclass, field, replace
from pathlib import Path

from plink.api.pipeline_search import SearchOptions, joint_request
from plink.api.pipeline_training import TrainingRequest
from plink.errors import InputError, UsageError, no_choice
from plink.model.hosts import Host, Hosts, read_hosts
from plink.model.pipeline.actions import PipelineAction
from plink.model.pipeline.plan import PipelinePlan
from plink.model.pipeline.profile import ModelProfile
from plink.model.pipeline.shape import minibatches_to_prove
from plink.model.units import parse_duration
from solvers.pipeline.joint import plan_measured
from solvers.pipeline.joint_request import BYTES_PER_S_OF_GBPS, MeasuredHosts
from solvers.pipeline.thesis import NetworkLevel, Watch
from solvers.pipeline.verifier import never_locks, verify_actions

UNLIMITED_GBPS = 1e7  # between slots of one host, where nobody says how fast they talk
MAX_WORKERS = 4096
CONTENTION = "contention"
PLAN_MODELS = (CONTENTION, "thesis")
_MAX_EXECUTED_ACTIONS = 2_000_000  # of plans whose depths only an execution proves
_LEVELS = re.compile(r"[1-9]\d{0,5}(x[1-9]\d{0,5})*", re.ASCII)


@dataclass(frozen=True)
class EvenNetworkRequest:
    """Workers that are alike. ``hosts``: their number or a hosts file; ``gbps``: of every level, innermost first.

    ``levels``: components of each level, like ``4x4``; None: one level, or slots and hosts of a hosts file. ``rtt``: a
    round trip between hosts, like ``0.5ms``; None: 0.
    """

    hosts: str
    gbps: str
    levels: str | None = None
    local_gbps: float | None = None
    rtt: str | None = None

    @property
    def has_levels(self) -> bool:
        """Whether some links are faster than others."""
        return self.levels is not None or self.local_gbps is not None

    @property
    def rtt_s(self) -> float:
        """Seconds of a round trip between hosts.

        :raises UsageError: for what is no time.
        """
        return 0.0 if self.rtt is None else parse_duration(self.rtt)

    def resolve(self) -> tuple[Hosts, tuple[NetworkLevel, ...]]:
        """Return the hosts, and the levels that they make up.

        :raises UsageError: when these do not fit together. :raises InputError: when the hosts file is wrong.
        """
        hosts = self._hosts()
        slots = {host.slots for host in hosts}
        workers = sum(host.slots for host in hosts)
        if workers > MAX_WORKERS:
            raise UsageError(f"{workers} workers are more than can be planned for ({MAX_WORKERS})")
        rates = [_rate(text) for text in self.gbps.split(",")]
        if self.levels is not None:
            if self.local_gbps is not None:
                raise UsageError(
                    "--local-gbps goes without --levels: the first rate of --gbps is that of the innermost"
                )
            sizes = _sizes(self.levels)
        elif self.local_gbps is not None and max(slots) == 1:
            raise UsageError("--local-gbps is of slots that share a host; here every host has one slot")
        elif len(slots) == 1 and max(slots) > 1:
            sizes = [max(slots), len(hosts)]
            rates = [self.local_gbps or UNLIMITED_GBPS, *rates]
        else:
            sizes = [workers]
        if len(rates) != len(sizes):
            raise UsageError(f"--gbps {self.gbps}: one rate for each of {len(sizes)} levels, innermost first")
        product = 1
        for size in sizes:
            product *= size
        if product != workers:
            raise UsageError(f"--levels {self.levels} are {product} workers, but the hosts have {workers}")
        return hosts, tuple(
            NetworkLevel(size, rate * BYTES_PER_S_OF_GBPS) for size, rate in zip(sizes, rates, strict=True)
        )

    def _hosts(self) -> Hosts:
        if not self.hosts.isdecimal():
            return read_hosts(Path(self.hosts)).ranked()
        number = int(self.hosts[:9])
        if not 1 <= number <= MAX_WORKERS:
            raise UsageError(f"--hosts {self.hosts[:20]}: expected 1 to {MAX_WORKERS} hosts, or a hosts file")
        width = len(str(number - 1))
        return Hosts(tuple(Host(name, name) for name in (f"node-{k:0{width}d}" for k in range(number))))


@dataclass(frozen=True)
class PipelineRequest:
    """What to plan on an even network. ``model``: ``contention``, which simulates, or ``thesis``, whose dynamic
    programme chooses the stages; None: ``contention``."""

    network: EvenNetworkRequest
    training: TrainingRequest = field(default_factory=TrainingRequest)
    model: str | None = None
    search: SearchOptions = field(default_factory=SearchOptions)

    def check(self) -> None:
        """Refuse what no file is needed to refuse.

        :raises UsageError: naming the option.
        """
        if self.model is not None and self.model not in PLAN_MODELS:
            raise no_choice("--model", self.model, PLAN_MODELS)
        self.training.check()
        self.search.check()
        if self.model == "thesis" and (unused := [*self.search.names, *(["--stages"] if self.training.stages else [])]):
            raise UsageError(f"{unused[0]} is not used with --model thesis; omit it")
        _ = self.network.rtt_s


def plan_pipeline(profile: ModelProfile, request: PipelineRequest, watch: Watch | None = None) -> PipelinePlan:
    """Return the plan of least predicted seconds per minibatch; ``watch``: as of :func:`plan_measured`.

    :raises UsageError: when the request cannot be. :raises InputError: when the hosts file is wrong.
    """
    request.check()
    hosts, levels = request.network.resolve()
    measured = MeasuredHosts.even(hosts, levels, request.network.rtt_s, request.network.has_levels)
    wanted = joint_request(profile, measured, request.training, request.search)
    if request.model == "thesis":
        wanted = replace(wanted, model="thesis", depths=wanted.depths or "noam")
    return plan_measured(profile, measured, wanted, watch)


def check_profile(plan: PipelinePlan, profile: ModelProfile, location: str) -> None:
    """Refuse a plan that was made for another profile.

    :raises InputError: naming both digests, or the layer that is not there.
    """
    if plan.stages[-1].last != (last := len(profile.layers) - 1):
        reason = f"the plan ends with layer {plan.stages[-1].last}, the profile with {last}"
        raise InputError(f"{location}: stages", reason)
    if plan.profile is not None and plan.profile != profile.digest():
        reason = f"the plan was made for {plan.profile[:19]}, this profile is {profile.digest()[:19]}"
        raise InputError(f"{location}: profile", reason)


def prove_pipeline(plan: PipelinePlan, minibatches: int | None = None) -> tuple[list[str], int | None]:
    """Return what is wrong with a plan's actions, and for how many minibatches that was looked at; None: for any.

    A plan's own actions are of as many minibatches as they have forward passes of the first stage.
    """
    shape = plan.shape
    ranks = [stage.ranks for stage in plan.stages]
    if plan.actions is None:
        if minibatches is None and never_locks(shape):
            return verify_actions(shape, ranks=ranks), None
        count = minibatches or min(minibatches_to_prove(shape), _MAX_EXECUTED_ACTIONS // (4 * shape.stages))
        return verify_actions(shape, count, ranks=ranks), count
    lists: dict[tuple[int, int], list[PipelineAction]] = {
        plan.place_of(rank): list(actions) for rank, actions in enumerate(plan.actions)
    }
    first = [action for rank in plan.stages[0].ranks for action in plan.actions[rank] if action.kind == "F"]
    count = max(1, len(first))
    return verify_actions(shape, count, lists, ranks), count


def _rate(text: str) -> float:
    try:
        rate = float(text)
    except ValueError:
        rate = 0.0
    if not 0 < rate < UNLIMITED_GBPS:
        raise UsageError(f"--gbps: {text[:40]!r} is not a rate in Gbit/s above 0, like 10 or 0.2")
    return rate


def _sizes(text: str) -> list[int]:
    if _LEVELS.fullmatch(text) is None:
        raise UsageError(f"--levels {text[:40]}: components of each level, innermost first, like 4x4")
    return [int(size) for size in text.split("x")]
