"""Request for a check."""

from collections.abc import Sequence
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Annotated

from plink.errors import UsageError, no_choice
from plink.model.request import Bytes, Environment, FeatureRequest, Option, Settings, Text, fields_of
from plink.model.units import parse_limit

_MEASURE, _LIMITS = "Benchmark on the hosts", "Acceptance limits"
_ELEMENT_BYTES = 4


def _algorithms(words: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(words)) or ("gloo",)


@dataclass(frozen=True)
class CheckRequest(FeatureRequest):
    """Request for a check: of orders that are run now (``measure``) or were (``results``), of measured distances
    (``truth``), or of both. ``model`` None: ``auto``, or that of the recorded runs."""

    measure: Annotated[bool, Option("Run orders on the hosts and compare with predictions.", ("--measure",))] = False
    results: Annotated[
        Path | None, Option("Evaluate recorded runs, without hosts; with NETWORK their costs are computed again.")
    ] = None
    truth: Annotated[Path | None, Option("True locations of the hosts: plink.truth/1, groups, or a topology file.")] = (
        None
    )
    algorithms: Annotated[
        tuple[str, ...],
        Text("[gloo|ring|...]", _algorithms, repeated=True),
        Option(
            "gloo (PyTorch's own), openmpi-... (mpirun with mpi4py) or any algorithm, by plink's backend; repeat for "
            "several; default: gloo.",
            ("--algo",),
            panel=_MEASURE,
        ),
    ] = field(default_factory=lambda: _algorithms(()))
    size_bytes: Annotated[Bytes, Option("Bytes to reduce.", ("--size",), panel=_MEASURE)] = 16e6
    model: Annotated[
        str | None,
        Option("Cost model; with NETWORK --results too. Default: auto, or that of the recorded runs.", panel=_MEASURE),
    ] = None
    options: Annotated[Settings, Option("An option of the algorithm: --set base=4.", ("--set",), panel=_MEASURE)] = (
        field(default_factory=dict[str, int | bool])
    )
    orders: Annotated[
        int, Option("Number of orders, at even steps of the cost.", least=2, most=100, panel=_MEASURE)
    ] = 10
    repeats: Annotated[int, Option("Timed all-reduces of each order.", least=1, most=100, panel=_MEASURE)] = 3
    calibrate: Annotated[
        bool,
        Option(
            "Also time smaller sizes, and write what hosts take for each message and byte into NETWORK; with --results "
            "from recorded runs of four sizes or more.",
            ("--calibrate",),
            panel=_MEASURE,
        ),
    ] = False
    seed: Annotated[
        int, Option("Of the orders, and of the embedding of --truth.", least=0, most=2**63 - 1, panel=_MEASURE)
    ] = 0
    env: Annotated[Environment, Option("Set a variable in every rank's environment; repeatable.", panel=_MEASURE)] = (
        field(default_factory=dict[str, str])
    )
    python: Annotated[
        str | None,
        Option("Interpreter on the hosts; default: this one's path, else python3.", metavar="PYTHON", panel=_MEASURE),
    ] = None
    interface: Annotated[
        str | None,
        Option(
            "Interface for Gloo (eth0, or eth0,eth1); default: that of the route to the other hosts.",
            metavar="IFACE",
            panel=_MEASURE,
        ),
    ] = None
    timeout_s: Annotated[
        float,
        Text("TIME", parse_limit, lambda seconds: f"{seconds / 60:g}m"),
        Option("Terminate an algorithm's job after this time (2h).", ("--timeout",), panel=_MEASURE),
    ] = 1800.0
    accept_new_host_keys: Annotated[
        bool,
        Option("Note unknown SSH host keys instead of refusing them.", ("--accept-new-host-keys",), panel=_MEASURE),
    ] = False
    min_spearman: Annotated[
        float | None,
        Option("Exit code 1 below this rank correlation, such as 0.9; 4 with too few orders.", panel=_LIMITS),
    ] = None
    max_regression: Annotated[
        Path | None,
        Option("Exit code 1 when this is worse than that earlier check.", metavar="BASELINE", panel=_LIMITS),
    ] = None
    tolerance: Annotated[
        float | None,
        Option(
            "With BASELINE: share by which the cheapest order may take longer (0.1).", least=0, most=10, panel=_LIMITS
        ),
    ] = None
    min_paia: Annotated[
        float | None,
        Option(
            "With --truth: exit code 1 below this share of correct triplets, such as 0.9.",
            least=0,
            most=1,
            panel=_LIMITS,
        ),
    ] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.measure and self.results is None and self.truth is None:
            raise UsageError(
                "--measure runs orders on the hosts, --results FILE evaluates recorded runs, --truth FILE has the true "
                "locations of hosts: give one of them (docs/ci.md)"
            )
        if self.measure and self.results is not None:
            raise UsageError("--measure runs orders, --results evaluates recorded ones; give one of the two")
        if self.min_paia is not None and self.truth is None:
            raise UsageError("--min-paia goes with --truth")
        if self.min_spearman is not None and not -1 <= self.min_spearman <= 1:
            raise UsageError(f"--min-spearman {self.min_spearman:g}: give a correlation, -1 to 1")
        runs = self.measure or self.results is not None
        if (self.min_spearman is not None or self.max_regression is not None) and not runs:
            raise UsageError("--min-spearman and --max-regression go with --measure or --results")
        if self.tolerance is not None and self.max_regression is None:
            raise UsageError("--tolerance goes with --max-regression: it is relative to that baseline")
        if not self.measure:
            self._refuse_benchmark_options()
        if self.size_bytes < _ELEMENT_BYTES:
            raise UsageError(f"--size {self.size_bytes:g}: an element has {_ELEMENT_BYTES} bytes")
        if self.measure:
            from solvers.checking.agreement import MIN_ORDERS
            from solvers.schedules.catalogue import ALGORITHMS

            if self.min_spearman is not None and self.orders < MIN_ORDERS:
                raise UsageError(f"--orders {self.orders}: {MIN_ORDERS} at least are needed for --min-spearman")
            runnable = [name for name in ALGORITHMS if not name.startswith("nccl-") and name != "lightgbm"]
            for name in self.algorithms:
                if name not in runnable:
                    raise no_choice("--algo", name, runnable)

    def _refuse_benchmark_options(self) -> None:
        """Refuse options of a benchmark where none is run.

        :raises UsageError: naming those that would change nothing.
        """
        effective = {"model", "calibrate"} if self.results is not None else set[str]()
        effective |= {"seed"} if self.truth is not None else set()
        defaults = {
            each.name: each.default if each.default_factory is MISSING else each.default_factory()
            for each in fields(self)
        }
        idle = [
            each.names[0]
            for each in fields_of(type(self))
            if each.option.panel == _MEASURE
            and each.name not in effective
            and getattr(self, each.name) != defaults[each.name]
        ]
        if idle:
            raise UsageError(f"{', '.join(idle)} {'go' if idle[1:] else 'goes'} with --measure: nothing is run here")
