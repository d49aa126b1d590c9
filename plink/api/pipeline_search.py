"""How plans of pipelines are searched for: memory of hosts, what to compare with, and how long."""

from collections.abc import Sequence
from dataclasses import dataclass

from plink.api.pipeline_training import TrainingRequest
from plink.errors import UsageError
from plink.model.pipeline.profile import ModelProfile
from plink.model.units import parse_bytes
from solvers.pipeline.joint_request import JointRequest, MeasuredHosts


@dataclass(frozen=True)
class SearchOptions:
    """``memory``: sizes like ``14GiB``, for all hosts or ``HOST=14GiB`` for one. ``compare``: also simulate other ways
    to train. ``seed``, ``moves``: of a search that cannot try everything; None: 0 and 60,000."""

    memory: Sequence[str] = ()
    compare: bool = False
    seed: int | None = None
    moves: int | None = None

    @property
    def names(self) -> list[str]:
        """Return the options of the search that were set, as they are typed."""
        options = {"--seed": self.seed is not None, "--max-moves": self.moves is not None}
        return [name for name, is_set in options.items() if is_set]

    def check(self) -> None:
        """Refuse what no file is needed to refuse.

        :raises UsageError: naming the option.
        """
        self.sizes()

    def sizes(self) -> dict[str, float]:
        """Return bytes by host; the empty name is that of all others.

        :raises UsageError: for what is no size, or set twice.
        """
        sizes: dict[str, float] = {}
        for text in self.memory:
            name, separator, size = text.rpartition("=")
            if name in sizes or (separator and not name):
                raise UsageError(f"--memory {text[:60]}: a size for all hosts, or HOST=SIZE once for each host")
            sizes[name] = float(parse_bytes(size))
        return sizes


def joint_request(
    profile: ModelProfile, measured: MeasuredHosts, training: TrainingRequest, search: SearchOptions
) -> JointRequest:
    """Return the request of the planner; slots that are planned by themselves share their host's memory.

    :raises UsageError: when the stages do not fit the profile, or memory is of no host.
    """
    sizes, hosts, names = search.sizes(), measured.hosts.by_name(), measured.fabric.names
    unknown = [name for name in sizes if name and name not in names]
    if unknown:
        raise UsageError(f"--memory {unknown[0]}=...: there is no such host")
    return JointRequest(
        kind=training.planned_kind,
        stages=training.stage_ranges(profile, len(measured.workers)),
        depths=training.depths,
        accumulate=training.microbatches or 1,
        recompute=training.recompute,
        vertical_sync=training.vertical_sync,
        reduce=training.reduce,
        straight=training.straight,
        all_workers=training.all_workers,
        memory=tuple(
            sizes.get(name, sizes.get("", float("inf"))) / (hosts[name].slots if measured.by_slot else 1)
            for name in names
        )
        if sizes
        else None,
        compare=search.compare,
        seed=search.seed or 0,
        moves=search.moves,
    )
