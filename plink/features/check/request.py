"""Request for a check."""

import math
from collections.abc import Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import Annotated

from plink.errors import UsageError, no_choice
from plink.model.request import ENV, SET, SIZE, Bytes, Environment, FeatureRequest, Option, Settings, Text, fields_of
from plink.model.units import parse_limit

_MEASURE, _LIMITS = "Benchmark on the hosts", "Acceptance limits"
_benchmark, _limit = partial(Option, panel=_MEASURE), partial(Option, panel=_LIMITS)
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
        _benchmark(
            "gloo (PyTorch's own), nccl, nccl-ring or nccl-tree (on GPUs), openmpi-... (mpirun with mpi4py) or any "
            "algorithm, by plink's backend; repeat for several; default: gloo.",
            ("--algo",),
        ),
    ] = field(default_factory=lambda: _algorithms(()))
    size_bytes: Annotated[Bytes, replace(SIZE, panel=_MEASURE)] = 16e6
    model: Annotated[
        str | None, _benchmark("Cost model; with NETWORK --results too. Default: auto, or that of the recorded runs.")
    ] = None
    options: Annotated[Settings, replace(SET, panel=_MEASURE)] = field(default_factory=dict[str, int | bool])
    orders: Annotated[int, _benchmark("Number of orders, at even steps of the cost.", least=2, most=100)] = 10
    repeats: Annotated[int, _benchmark("Timed all-reduces of each order.", least=1, most=100)] = 3
    calibrate: Annotated[
        bool,
        _benchmark(
            "Also time smaller sizes, and write what hosts (or NCCL) take besides the network into NETWORK; with "
            "--results from recorded runs of four sizes or more.",
            ("--calibrate",),
        ),
    ] = False
    seed: Annotated[int, _benchmark("Of the orders, and of the embedding of --truth.", least=0, most=2**63 - 1)] = 0
    env: Annotated[Environment, replace(ENV, panel=_MEASURE)] = field(default_factory=dict[str, str])
    python: Annotated[
        str | None, _benchmark("Interpreter on the hosts; default: this one's path, else python3.", metavar="PYTHON")
    ] = None
    interface: Annotated[
        str | None,
        _benchmark(
            "Interface for Gloo (eth0, or eth0,eth1); default: that of the route to the other hosts.", metavar="IFACE"
        ),
    ] = None
    timeout_s: Annotated[
        float,
        Text("TIME", parse_limit, lambda seconds: f"{seconds / 60:g}m"),
        _benchmark("Terminate an algorithm's job after this time (2h).", ("--timeout",)),
    ] = 1800.0
    accept_new_host_keys: Annotated[
        bool, _benchmark("Note unknown SSH host keys instead of refusing them.", ("--accept-new-host-keys",))
    ] = False
    min_spearman: Annotated[
        float | None, _limit("Exit code 1 below this rank correlation, such as 0.9; 4 where chance would pass.")
    ] = None
    max_regression: Annotated[
        Path | None, _limit("Exit code 1 when this is worse than that earlier check.", metavar="BASELINE")
    ] = None
    tolerance: Annotated[
        float | None,
        _limit("With BASELINE: share by which the cheapest order may take longer (0.1).", least=0, most=10),
    ] = None
    min_paia: Annotated[
        float | None,
        _limit("With --truth: exit code 1 below this share of correct triplets, such as 0.9.", least=0, most=1),
    ] = None

    @property
    def has_to_rank(self) -> bool:
        """Whether orders have to be ranked: there is a limit, or nothing else that is asked for."""
        return not self.calibrate or self.min_spearman is not None or self.max_regression is not None

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
        if not _ELEMENT_BYTES <= self.size_bytes < math.inf:
            raise UsageError(f"--size {self.size_bytes:g}: an element has {_ELEMENT_BYTES} bytes")
        if not self.timeout_s > 0:
            raise UsageError(f"--timeout {self.timeout_s:g}s: give more than 0")
        if not self.algorithms:
            raise UsageError("--algo: name one at least")
        if self.measure:
            from solvers.checking import MIN_ORDERS
            from solvers.costs.by_name import NAMES

            if self.min_spearman is not None and self.orders < MIN_ORDERS:
                raise UsageError(f"--orders {self.orders}: {MIN_ORDERS} at least are needed for --min-spearman")
            runnable = [name for name in NAMES if name != "lightgbm"]
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
