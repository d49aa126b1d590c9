"""Requests for profiles, plans, simulations and trainings of pipelines."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from plink.errors import UsageError
from plink.model.pipeline.shape import ACCUMULATING, KINDS, Kind
from plink.model.request import FeatureRequest, Option, Text, parse_option
from plink.model.units import parse_bytes, parse_duration

if TYPE_CHECKING:
    from plink.model.hosts import Hosts

MAX_WORKERS = 4096
UNLIMITED_GBPS = 1e7  # between slots of one host, where nobody says how fast they talk
_MAX_RTT_S = 3600.0
_MAX_DEPTH = 4096
_MAX_MICROBATCHES = 65_536  # as the format of plans allows
_network, _training = partial(Option, panel="Hosts and their network"), partial(Option, panel="How they train")
_NO_PIPELINE = ("data-parallel", "model-parallel")
_LEVELS = re.compile(r"[1-9]\d{0,5}(x[1-9]\d{0,5})*", re.ASCII)


def _hosts(text: str) -> int | Path:
    if not text.isdecimal():
        return Path(text)
    if not 1 <= int(text[:9]) <= MAX_WORKERS:
        raise UsageError(f"--hosts {text[:20]}: expected 1 to {MAX_WORKERS} hosts, or a hosts file")
    return int(text)


def _rates(text: str) -> tuple[float, ...]:
    rates = []
    for part in text.split(","):
        try:
            rates.append(float(part))
        except ValueError:
            raise UsageError(f"--gbps: {part[:40]!r} is not a rate in Gbit/s, like 10 or 0.2") from None
    return tuple(rates)


def _sizes(text: str) -> tuple[int, ...]:
    if _LEVELS.fullmatch(text) is None:
        raise UsageError(f"--levels {text[:40]}: components of each level, innermost first, like 4x4")
    return tuple(int(size) for size in text.split("x"))


def _memory(words: Sequence[str]) -> dict[str, float]:
    sizes: dict[str, float] = {}
    for word in words:
        name, separator, size = word.rpartition("=")
        if name in sizes or (separator and not name):
            raise UsageError(f"--memory {word[:60]}: a size for all hosts, or HOST=SIZE once for each host")
        sizes[name] = float(parse_option("--memory", parse_bytes, size))
    return sizes


@dataclass(frozen=True)
class PipelineRequest(FeatureRequest):
    """Request for a plan, of a measured network or of hosts that are alike. ``hosts``: how many, or those that may be
    used, a file or as it was read. ``gbps``: of every level, innermost first. ``levels``: components of each; None:
    one, or slots and hosts. ``memory``: bytes by host, by the empty name those of all others. ``kind``: ``auto`` leaves
    it to the planner. ``stages``: like ``0-30x15,31-39x1``; None: searched. ``seed``, ``max_moves`` None: 0 and
    60,000."""

    hosts: Annotated[
        "int | str | Path | Hosts | None",
        Text("N", _hosts),
        _network("How many hosts with one worker each, or a hosts file."),
    ] = None
    gbps: Annotated[
        Sequence[float] | None,
        Text("R,...", _rates),
        _network("Gbit/s of a worker's link; of each level, innermost first.", least=1e-6, most=UNLIMITED_GBPS),
    ] = None
    levels: Annotated[
        Sequence[int] | None,
        Text("NxN", _sizes),
        _network("Workers per machine, machines per rack, ...: 4x4.", least=1),
    ] = None
    local_gbps: Annotated[
        float | None,
        _network("Gbit/s between slots of one host; default: no limit.", least=0.001, most=UNLIMITED_GBPS),
    ] = None
    rtt_s: Annotated[
        float | None,
        Text("TIME", parse_duration),
        _network("Round trip between hosts: 0.5ms.", ("--rtt",), least=0, most=_MAX_RTT_S),
    ] = None
    memory: Annotated[
        Mapping[str, float],
        Text("[HOST=]SIZE", _memory, repeated=True),
        _network("Memory of every host, or of one; repeatable: 14GiB, node-3=6GiB."),
    ] = field(default_factory=dict[str, float])
    compare: Annotated[bool, Option("Also simulate other ways to train, and the given order.")] = False
    seed: Annotated[int | None, Option("Of the search; default 0.", least=0)] = None
    max_moves: Annotated[
        int | None,
        Option("Of the search, where not everything can be tried; default 60,000.", least=1, most=100_000_000),
    ] = None
    kind: Annotated[
        str, _training("When minibatches are processed and parameters updated.", choices=("auto", *KINDS))
    ] = "auto"
    model: Annotated[
        str | None,
        Option(
            "Of hosts that are alike: the fastest plan of those simulated, or the stages of the thesis's formulas as "
            "printed. Default: contention.",
            choices=("contention", "thesis"),
        ),
    ] = None
    stages: Annotated[
        str | None, Option("The stages themselves, with replicas: 0-30x15,31-39x1.", metavar="STAGES")
    ] = None
    straight: Annotated[bool, Option("One worker per stage.")] = False
    all_workers: Annotated[bool, _network("Leave no worker idle, even where that is slower.")] = False
    depth: Annotated[
        str,
        _training(
            "Minibatches in flight per replica of each stage; auto: as the network needs; noam: the thesis's.",
            metavar="[auto|noam|N,...]",
        ),
    ] = "auto"
    microbatches: Annotated[
        int | None,
        _training("For 2bw, 1f1b-flush, gpipe: minibatches per update.", least=1, most=_MAX_MICROBATCHES, metavar="M"),
    ] = None
    vertical_sync: Annotated[bool, _training("A minibatch uses the same version at every stage.")] = False
    reduce: Annotated[
        Literal["wait", "late"],
        _training("Whether the next forward pass waits for the all-reduce.", choices=("wait", "late")),
    ] = "wait"
    recompute: Annotated[bool, _training("Compute activations again instead of keeping them.")] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_hosts()
        for name, size in self.memory.items():
            if size < 0:
                raise UsageError(f"--memory {name}={size:g}: a size in bytes is needed")
        if (self.kind in ACCUMULATING) != (self.microbatches is not None):
            if self.microbatches is None:
                raise UsageError(f"--kind {self.kind} needs --microbatches: how many minibatches an update averages")
            raise UsageError(f"--microbatches goes with --kind {', '.join(ACCUMULATING[:-1])} or {ACCUMULATING[-1]}")
        if self.straight and self.stages is not None:
            raise UsageError("--straight and --stages exclude each other")
        if self.kind in _NO_PIPELINE and self.depth not in ("auto", "noam", "1"):
            raise UsageError(f"--kind {self.kind} has one minibatch in flight: leave --depth {self.depth[:40]} out")
        if self.kind == "gpipe" and self.depth != "auto":
            raise UsageError(f"--kind gpipe has all minibatches of an update in flight; omit --depth {self.depth[:40]}")
        if self.kind == "data-parallel" and self.straight:
            raise UsageError("--kind data-parallel is one stage, --straight one worker a stage: leave one of both out")
        if self.kind not in ("auto", "1f1b") and (self.vertical_sync or self.reduce == "late"):
            option = "--vertical-sync" if self.vertical_sync else "--reduce late"
            raise UsageError(f"{option} belongs to --kind 1f1b, not to {self.kind}")
        depths = self.depths
        if isinstance(depths, tuple) and len(depths) > 1 and self.stages is None and not self.straight:
            raise UsageError(f"--depth {self.depth[:40]}: depths of {len(depths)} stages need --stages or --straight")
        searched = {"--seed": self.seed, "--max-moves": self.max_moves, "--stages": self.stages}
        unused = [name for name, value in searched.items() if value is not None]
        if self.model == "thesis" and unused:
            raise UsageError(f"{unused[0]} is not used with --model thesis; omit it")
        if self.levels is not None and self.local_gbps is not None:
            raise UsageError("--local-gbps goes without --levels: the first rate of --gbps is that of the innermost")

    def _check_hosts(self) -> None:
        from plink.model.hosts import Hosts

        hosts = self.hosts
        if isinstance(hosts, int) and not isinstance(hosts, bool):
            is_possible = 1 <= hosts <= MAX_WORKERS
        else:
            is_number = isinstance(hosts, str) and hosts.isdecimal()
            is_possible = hosts is None or (isinstance(hosts, str | Path | Hosts) and not is_number)
        if not is_possible:
            raise UsageError(f"--hosts {hosts!r}: expected 1 to {MAX_WORKERS} hosts, or a hosts file")

    def check_network(self, is_measured: bool) -> None:
        """Refuse options of the other kind of network, before any file is read.

        :raises UsageError: naming the option.
        """
        if not is_measured:
            if self.hosts is None or self.gbps is None:
                missing = [name for name, value in (("--hosts", self.hosts), ("--gbps", self.gbps)) if value is None]
                raise UsageError(
                    f"{' and '.join(missing)} {'are' if len(missing) > 1 else 'is'} missing: plink pipeline plan "
                    "--hosts 4 --gbps 10, or --network FILE for measured hosts"
                )
            return
        even = {"--levels": self.levels, "--local-gbps": self.local_gbps, "--rtt": self.rtt_s, "--model": self.model}
        if misplaced := [name for name, value in even.items() if value is not None]:
            raise UsageError(f"{misplaced[0]} is for hosts that are alike; omit it with --network")
        if isinstance(self.hosts, int):
            raise UsageError(f"--hosts {self.hosts}: with --network, a file of the hosts that may be used")
        if self.gbps is not None and len(self.gbps) != 1:
            shown = ",".join(f"{rate:g}" for rate in self.gbps)
            raise UsageError(
                f"--gbps {shown}: with --network, one rate in Gbit/s, for hosts whose rates nobody measured"
            )

    @property
    def planned_kind(self) -> Kind | None:
        """Return the kind, None where it is the planner's choice."""
        return None if self.kind == "auto" else self.kind  # type: ignore[return-value]

    @property
    def depths(self) -> tuple[int, ...] | Literal["noam"] | None:
        """Return the depths; None where they are the planner's choice.

        :raises UsageError: for what is none.
        """
        if self.depth in ("auto", "noam"):
            return None if self.depth == "auto" else "noam"
        parts = self.depth.split(",")
        if not all(part.isdecimal() and len(part) < 10 and 1 <= int(part) <= _MAX_DEPTH for part in parts):
            raise UsageError(f"--depth {self.depth[:40]}: auto, noam, or minibatches in flight like 4 or 4,3,2,1")
        return tuple(map(int, parts))


@dataclass(frozen=True)
class PipelineSimulationRequest(FeatureRequest):
    """Request for a simulation. ``gbps``: of every host, where the network has none. ``minibatches`` None: enough for a
    steady state."""

    gbps: Annotated[
        float | None, Option("Without a network, or one without rates: Gbit/s of every host.", least=0.001, most=1e6)
    ] = None
    minibatches: Annotated[
        int | None, Option("Of the job; default: enough for a steady state.", least=2, most=20_000)
    ] = None


@dataclass(frozen=True)
class PipelineTrainingRequest(FeatureRequest):
    """Request for a training in one process. ``minibatches`` None: as the program has; ``threads`` None: PyTorch's."""

    minibatches: Annotated[int | None, Option("Train fewer minibatches, or more.", least=1)] = None
    beside: Annotated[bool, Option("Also train without delays, for comparison.")] = False
    threads: Annotated[int | None, Option("Threads of PyTorch; default: its own.", least=1)] = None


@dataclass(frozen=True)
class PipelineProfileRequest(FeatureRequest):
    """Request for a profile of a program's layers."""

    minibatches: Annotated[int, Option("How many to measure.", least=1, most=100_000)] = 100
    threads: Annotated[int, Option("Threads of PyTorch.", least=1, most=1024)] = 1
