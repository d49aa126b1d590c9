"""Request for an order."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from plink.errors import InputError, UsageError, no_choice
from plink.features.order.constraints import RequestedGroups
from plink.model.mesh import Mesh, ModelShape, Traffic, make_mesh, read_mesh
from plink.model.pipeline.plan import read_pipeline
from plink.model.request import MODEL, SET, SIZE, SMOOTH, Bytes, FeatureRequest, Option, Settings, Text

if TYPE_CHECKING:
    from plink.model.topology import Topology

_OBJECTIVE, _MESH, _HOSTS, _SEARCH = "Objective", "Mesh of groups", "Hosts and constraints", "Search"
_SIZE_BYTES = 100e6
_MAX_DIGITS = 9


def _pins(words: Sequence[str]) -> dict[str, int]:
    pinned: dict[str, int] = {}
    for word in words:
        name, _, rank = word.rpartition("=")
        if not name or not rank.isdecimal() or len(rank) > _MAX_DIGITS:
            raise UsageError(f"--pin {word}: write a host's name, = and its first rank, node1=0")
        if pinned.setdefault(name, int(rank)) != int(rank):
            raise UsageError(f"--pin: {name} cannot have rank {pinned[name]} and rank {rank}")
    return pinned


@dataclass(frozen=True)
class OrderRequest(FeatureRequest):
    """Request for an order. ``model`` ``simulated``: the search goes by ``contention``, and its best orders are
    simulated. ``groups``: hosts kept together, by name, or how many groups to form; ``groups_source`` names them in
    errors. ``prior``: how near hosts are that were not measured. ``time_limit_s`` None: until nothing has come of the
    search for long, 10 s at most (60 s with ``prove``). ``max_moves``: with them no clock is looked at, so that a seed
    gives the same order however busy the machine is."""

    algo: Annotated[
        str, Option("The collective's algorithm, or a library's own (gloo, nccl, ...).", panel=_OBJECTIVE)
    ] = "ring"
    size_bytes: Annotated[Bytes, replace(SIZE, panel=_OBJECTIVE)] = _SIZE_BYTES
    model: Annotated[str, replace(MODEL, panel=_OBJECTIVE)] = "auto"
    options: Annotated[Settings, replace(SET, panel=_OBJECTIVE)] = field(default_factory=dict[str, int | bool])
    objective: Annotated[
        str,
        Option(
            "Minimise time (the model's cost); for rings also the sum of round trips, or bottleneck: the longest one.",
            choices=("auto", "time", "sum", "bottleneck"),
            panel=_OBJECTIVE,
        ),
    ] = "auto"
    pins: Annotated[
        Mapping[str, int],
        Text("HOST=RANK", _pins, repeated=True),
        Option("Pin a host's first rank.", ("--pin",), panel=_HOSTS),
    ] = field(default_factory=dict[str, int])
    groups: RequestedGroups | None = None
    groups_source: str = "groups"
    prior: "Topology | None" = None
    mesh: Mesh | None = None
    time_limit_s: Annotated[
        float | None,
        Option(
            "Seconds to search; default: until it finds nothing better, 10 at most.",
            ("--time-limit",),
            least=0,
            most=1e6,
            metavar="SECONDS",
            panel=_SEARCH,
        ),
    ] = None
    max_moves: Annotated[
        int | None,
        Option("Maximum number of moves, instead of a time limit: reproducible.", least=1, most=10**12, panel=_SEARCH),
    ] = None
    seed: Annotated[int, Option("Makes the search reproducible.", least=0, most=2**63 - 1, panel=_SEARCH)] = 0
    prove: Annotated[bool, Option("Prove optimality by exact methods; exit code 3 without a proof.", panel=_SEARCH)] = (
        False
    )
    force: Annotated[bool, Option("Take the found order even if its gain is within noise.", panel=_SEARCH)] = False
    smooth_latencies: Annotated[bool, replace(SMOOTH, panel=_HOSTS)] = False

    def __post_init__(self) -> None:
        from plink.features.order.algorithms import options_of
        from plink.features.order.hubs import refuse_hubs
        from solvers.costs.by_name import NAMES, SIMULATED
        from solvers.schedules.catalogue import HUBS

        super().__post_init__()
        if self.mesh is not None:
            self._take_mesh(self.mesh)
        elif self.algo not in NAMES:
            raise no_choice("--algo", self.algo, NAMES)
        refuse_hubs(self.algo)
        if self.algo == HUBS:
            raise UsageError(f"--algo {HUBS} is made for any order, and all cost the same: `plink plan --algo {HUBS}`")
        if self.max_moves is not None and self.time_limit_s is not None:
            raise UsageError("--max-moves replaces the time limit; omit --time-limit")
        if self.model == SIMULATED and self.objective in ("sum", "bottleneck"):
            raise UsageError(f"--objective {self.objective} uses round trips only; omit --model {SIMULATED}")
        if self.model == SIMULATED and self.prove:
            raise UsageError(f"--prove: no exact method knows --model {SIMULATED}; omit one of the two")
        for name, rank in self.pins.items():
            if type(rank) is not int:
                raise UsageError(f"--pin {name}={rank}: a rank is a whole number")
        options_of(self.options, [self.algo])

    def _take_mesh(self, mesh: Mesh) -> None:
        from solvers.costs.by_name import MESH
        from solvers.costs.mesh_patterns import check_mesh

        replaced = {
            "--algo": self.algo not in ("ring", MESH),
            "--size": self.size_bytes not in (_SIZE_BYTES, 1.0),
            "--set": bool(self.options),
            f"--objective {self.objective}": self.objective != "auto",
        }
        for name, is_given in replaced.items():
            if is_given:
                raise UsageError(f"{name} is of one collective; a mesh's traffic says what runs: omit it")
        check_mesh(mesh)
        object.__setattr__(self, "algo", MESH)
        object.__setattr__(self, "size_bytes", 1.0)  # the traffic has its own bytes


@dataclass(frozen=True)
class MeshRequest(FeatureRequest):
    """Request for a mesh: its axes and traffic, or what they follow from."""

    axes: Annotated[
        str | None,
        Option(
            "Order for groups along several axes, outermost first: pp=4,dp=8,tp=8.",
            ("--mesh",),
            metavar="AXIS=SIZE,...",
            panel=_MESH,
        ),
    ] = None
    traffic: Annotated[
        tuple[str, ...],
        Text("AXES=KIND:BYTES[*TIMES]", tuple, repeated=True),
        Option("What groups send in a step: dp=all-reduce:1.6GB, pp=p2p:64MB*32; repeatable.", panel=_MESH),
    ] = ()
    mesh_file: Annotated[Path | None, Option("Axes and traffic in a file, plink.mesh/1.", panel=_MESH)] = None
    mesh_from: Annotated[
        Path | None, Option("Axes and traffic of a plan of `plink pipeline plan`.", metavar="PLAN", panel=_MESH)
    ] = None
    megatron_order: Annotated[
        str | None,
        Option("Megatron-LM's order of the axes, fastest first: tp-cp-ep-dp-pp.", ("--order",), panel=_MESH),
    ] = None
    parameters: Annotated[
        float | None, Option("Of the model, for traffic that is not given: 8e9.", least=1, most=1e15, panel=_MESH)
    ] = None
    layers: Annotated[int | None, Option("Of the model.", least=1, most=100_000, panel=_MESH)] = None
    hidden: Annotated[int | None, Option("Width of the model.", least=1, most=10**7, panel=_MESH)] = None
    tokens: Annotated[int | None, Option("Of a microbatch.", least=1, most=10**9, panel=_MESH)] = None
    microbatches: Annotated[int | None, Option("Of a step; default: 1.", least=1, most=10**6, panel=_MESH)] = None
    experts_per_token: Annotated[
        int | None, Option("Experts that work on a token; default: 1.", least=1, most=1000, panel=_MESH)
    ] = None
    dtype_bytes: Annotated[int | None, Option("Bytes of a number; default: 2.", least=1, most=8, panel=_MESH)] = None

    def mesh(self) -> Mesh | None:
        """Return the mesh; None where none is asked for.

        :raises UsageError, InputError: for options that do not fit each other, and files that are wrong.
        """
        from solvers.costs.mesh_patterns import check_mesh

        sources = {"--mesh": self.axes, "--mesh-file": self.mesh_file, "--mesh-from": self.mesh_from}
        chosen = [name for name, value in sources.items() if value is not None]
        if len(chosen) > 1:
            raise UsageError(f"{' and '.join(chosen)}: give one of them")
        shape = (self.parameters, self.layers, self.hidden, self.tokens)
        steps = {
            "microbatches": self.microbatches,
            "experts-per-token": self.experts_per_token,
            "dtype-bytes": self.dtype_bytes,
        }
        details = {
            "--traffic": bool(self.traffic),
            "--order": self.megatron_order is not None,
            "--parameters, --layers, --hidden and --tokens": any(shape),
            **{f"--{name}": value is not None for name, value in steps.items()},
        }
        if chosen != ["--mesh"]:
            for name, is_given in details.items():
                if is_given:
                    raise UsageError(f"{name}: {chosen[0]} has it; omit it" if chosen else f"{name}: give --mesh, too")
        if self.mesh_file is not None:
            mesh = read_mesh(self.mesh_file)
            try:
                check_mesh(mesh)
            except UsageError as error:
                raise InputError(str(self.mesh_file), str(error).removeprefix("--")) from None
            return mesh
        if self.mesh_from is not None:
            return mesh_of_plan(self.mesh_from)
        if self.axes is None:
            return None
        model = None
        if self.parameters and self.layers and self.hidden and self.tokens:
            each = self.microbatches or 1, self.experts_per_token or 1, self.dtype_bytes or 2
            model = ModelShape(self.parameters, self.layers, self.hidden, self.tokens, *each)
        elif any(shape) or any(steps.values()):
            raise UsageError("what a model sends needs --parameters, --layers, --hidden and --tokens: give all four")
        return make_mesh(self.axes, self.traffic, model, self.megatron_order)


def mesh_of_plan(path: Path) -> Mesh:
    """Return the stages and replicas of a pipeline plan as axes ``pp`` and ``dp``, and what a step (an update) sends.

    :raises InputError: for a file that is wrong. :raises UsageError: for stages of different numbers of replicas, or a
        plan that does not say how large they are.
    """
    plan = read_pipeline(path)
    stages, replicas = len(plan.stages), len(plan.stages[0].ranks)
    expected = [tuple(range(s * replicas, (s + 1) * replicas)) for s in range(stages)]
    if [tuple(stage.ranks) for stage in plan.stages] != expected:
        raise UsageError(f"{path}: a mesh needs stages of equally many replicas on consecutive ranks; these differ")
    traffic = []
    if stages > 1:
        crossing = [float(max(each.forward_bytes, each.backward_bytes, 1)) for each in plan.boundaries]
        minibatches = max(1.0, plan.accumulate / replicas)
        traffic.append(Traffic(("pp",), "p2p", tuple(crossing), times=minibatches))
    if replicas > 1:
        weights = [stage.memory_bytes.weights for stage in plan.stages if stage.memory_bytes]
        if len(weights) < stages:
            raise UsageError(f"{path}: how large its stages are is not in it: plan it again with `plink pipeline plan`")
        traffic.append(Traffic(("dp",), "all-reduce", tuple(float(max(size, 1)) for size in weights)))
    return Mesh((("pp", stages), ("dp", replicas)), tuple(traffic))
