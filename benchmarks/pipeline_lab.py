"""Pipelines on lab hosts against data parallelism (Harlap thesis, Table 5.1, one machine of four GPUs), what depth by
the network gains, and what the executor itself costs.

Computing is emulated: layers wait for stated seconds (:mod:`benchmarks.timing.emulated_training`). Messages, versions,
all-reduces and updates are real. The rival is fair: DistributedDataParallel with buckets that are reduced while the
backward pass goes on, in plink's order for its ring, the best of several bucket sizes over Gloo and AggEngine.

Words choose shapes (vgg, gnmt, ...) or parts (depth, cost); the rest is kept from the last run.
"""

import json
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.labs import BenchLab, lab
from benchmarks.pipeline_runs import ENV, PROGRAM, ROOT, data_parallel_s, pipeline_s, plink_output
from benchmarks.record import Bar, record
from plink.model.pipeline.plan import read_pipeline
from plink.model.storage import read_document

if TYPE_CHECKING:
    from benchmarks.thesis_plot import ThesisPlot

_PLAIN = str(ROOT / "benchmarks/timing/plain_messages.py")
_GBPS = "0.2"
_REPEATS = 3
_MINIBATCHES = 60
_RIVALS: dict[str, tuple[tuple[str, ...], float]] = {
    "gloo, buckets of 1 MB": ((), 1),
    "gloo, buckets of 4 MB": ((), 4),
    "gloo, buckets of 25 MB": ((), 25),
    "AggEngine, buckets of 4 MB": (("--backend", "flat"), 4),
}


@dataclass(frozen=True)
class Shape:
    """A model of the thesis's table: the plan that is expected, and the bar of its gain over data parallelism."""

    label: str
    min_gain: float | None
    thesis: float
    straight: bool = False


SHAPES = {
    "vgg": Shape("3-1", 2.0, 2.14),
    "alexnet": Shape("3-1", 3.0, 3.4),
    "gnmt": Shape("1-1-1-1", 2.9, 3.26),
    "lm": Shape("1-1-1-1", 3.5, 4.25),
    "s2vt": Shape("2-1-1", 2.6, 3.01),
    "resnet": Shape("4", None, 1.0),
}
_PARTS = ("depth", "cost")


def _rival_s(bench: BenchLab, rival: str, shape: str) -> float:
    """Return the seconds of a minibatch of data parallelism."""
    more, bucket_mb = _RIVALS[rival]
    program = ("--shape", shape, "--minibatches", "48", "--bucket-mb", str(bucket_mb))
    return data_parallel_s(bench.folder, ("--hosts", bench.hosts_file, *more), *program)


@contextmanager
def _load() -> Iterator[Callable[[], float]]:
    """Yield what returns the share of all cores in use since the beginning."""

    def busy() -> tuple[float, float]:
        fields = [float(text) for text in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
        return sum(fields) - fields[3] - fields[4], sum(fields)

    begin = busy()
    yield lambda: (busy()[0] - begin[0]) / max(1.0, busy()[1] - begin[1])


def _planned(bench: BenchLab, name: str, *options: str) -> str:
    """Profile a shape and plan it, as a user does."""
    plink_output(
        bench.folder, "pipeline", "profile", "--minibatches", "10", "-o", f"{name}.json", PROGRAM, "--shape", name
    )
    network = ("--hosts", bench.hosts_file, "--gbps", _GBPS)
    plan = f"{name}-plan.json"
    plink_output(bench.folder, "pipeline", "plan", f"{name}.json", *network, *options, "-o", plan)
    return plan


def _compared(bench: BenchLab, name: str) -> dict[str, Any]:
    """Measure a shape by its plan and by data parallelism, in turns."""
    shape, hosts = SHAPES[name], ("--hosts", bench.hosts_file)
    plan_file = _planned(bench, name)
    plan = read_pipeline(bench.folder / plan_file)
    if plan.kind == "data-parallel":  # then the best pipeline is what it is compared with
        network = ("--hosts", bench.hosts_file, "--gbps", _GBPS)
        plan_file = "straight.json"
        plink_output(bench.folder, "pipeline", "plan", f"{name}.json", *network, "--straight", "-o", plan_file)
    first = {rival: _rival_s(bench, rival, name) for rival in _RIVALS}
    best = min(first, key=lambda rival: first[rival])
    own_s, rival_s = [], [first[best]]
    program = ("--shape", name, "--minibatches", str(_MINIBATCHES))
    with _load() as load:
        for turn in range(_REPEATS):
            own_s.append(pipeline_s(bench.folder, plan_file, hosts, *program))
            if turn + 1 < _REPEATS:
                rival_s.append(_rival_s(bench, best, name))
        cores = load()
    gain = statistics.median(rival_s) / statistics.median(own_s)
    row = {
        "plan": plan.label, "measured": read_pipeline(bench.folder / plan_file).label,
        "depths": [stage.depth for stage in read_pipeline(bench.folder / plan_file).stages],
        "predicted_s": plan.predicted.minibatch_s, "pipeline_s": own_s, "rival": best,
        "rivals_s": first, "rival_s": rival_s, "gain": round(gain, 3), "thesis": shape.thesis,
        "cores_in_use": round(cores, 2),
    }  # fmt: skip
    print(name, json.dumps(row), flush=True)
    return row


_DEPTHS = {
    "2 hosts, 20 ms a pass, 20 ms a transfer": (2, 500_000),
    "4 hosts, 20 ms a pass, 60 ms a boundary": (4, 750_000),
}


def _depth(bench: BenchLab) -> dict[str, Any]:
    """The thesis's depth against the network's, with transfers as long as computing."""
    rows = {}
    bench.use_reno()  # a host in the middle sends in both directions at once
    names = [line for line in Path(bench.hosts_file).read_text().splitlines() if line]
    for what, (count, size) in _DEPTHS.items():
        (bench.folder / "few.txt").write_text("\n".join(names[: count + names[0].startswith("#")]) + "\n")
        shape = ("--shape", "even", "--layers", str(count), "--output-bytes", str(size))
        plink_output(bench.folder, "pipeline", "profile", "--minibatches", "10", "-o", "even.json", PROGRAM, *shape)
        network = ("even.json", "--hosts", "few.txt", "--gbps", _GBPS, "--straight", "--all-workers")
        samples: dict[str, list[float]] = {"noam": [], "auto": []}
        depths = {}
        for depth in samples:
            plink_output(bench.folder, "pipeline", "plan", *network, "--depth", depth, "-o", f"{depth}.json")
            depths[depth] = [stage.depth for stage in read_pipeline(bench.folder / f"{depth}.json").stages]
        for _ in range(_REPEATS):
            for depth, seconds in samples.items():
                program = (*shape, "--minibatches", str(_MINIBATCHES))
                seconds.append(pipeline_s(bench.folder, f"{depth}.json", ("--hosts", "few.txt"), *program))
        gain = statistics.median(samples["noam"]) / statistics.median(samples["auto"])
        rows[what] = {"depths": depths, "seconds": samples, "gain": round(gain, 3)}
        print(what, json.dumps(rows[what]), flush=True)
    return rows


def _local(folder: Path, plan: str, *program: str) -> float:
    return pipeline_s(folder, plan, ("--runner", "local"), *program)


def _plan_locally(folder: Path, stages: int, *shape: str) -> str:
    profiled = ("pipeline", "profile", "--minibatches", "5", "-o", "even.json", PROGRAM, *shape)
    plink_output(folder, *profiled)
    words = ("even.json", "--hosts", str(stages), "--gbps", "1000", "--straight", "--all-workers", "--depth", "noam")
    plink_output(folder, "pipeline", "plan", *words, "-o", "even-plan.json")
    return "even-plan.json"


def _cost() -> dict[str, Any]:
    """What the executor costs on loopback: empty stages, large boundaries, and copies of versions."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        empty = ("--shape", "even", "--layers", "2", "--pass-s", "0")
        plan = _plan_locally(folder, 2, *empty)
        empty_s = [_local(folder, plan, *empty, "--minibatches", "2000") for _ in range(_REPEATS)]
        large = (*empty, "--output-bytes", str(16_000_000))
        plan = _plan_locally(folder, 2, *large)
        large_s = [_local(folder, plan, *large, "--minibatches", "100") for _ in range(_REPEATS)]
        output = [
            plink_output(folder, "launch", "--runner", "local", "--slots", "2", *ENV, _PLAIN) for _ in range(_REPEATS)
        ]
        plain_s = [float(text.partition("] ")[2].split()[0]) for text in output]
        copied = ("--shape", "even", "--layers", "3", "--weight-bytes", str(4_000_000))
        plan = _plan_locally(folder, 3, *copied)
        stashing: dict[str, list[float]] = {"with": [], "without": []}
        for _ in range(_REPEATS):
            stashing["with"].append(_local(folder, plan, *copied, "--minibatches", "100"))
            stashing["without"].append(_local(folder, plan, *copied, "--minibatches", "100", "--no-stashing"))
    return {
        "empty_s": empty_s,
        "large_s": large_s,
        "plain_s": plain_s,
        "large_throughput_of_plain": round(statistics.median(plain_s) / statistics.median(large_s), 3),
        "stashing_s": stashing,
        "stashing_share": round(statistics.median(stashing["with"]) / statistics.median(stashing["without"]) - 1, 4),
    }


def _bars(figures: dict[str, Any]) -> list[Bar]:
    bars = []
    for name, row in figures.get("shapes", {}).items():
        shape = SHAPES[name]
        if shape.min_gain is not None:
            bars.append(Bar(f"{name}, {row['plan']}: times data parallelism", row["gain"], at_least=shape.min_gain))
        else:
            bars.append(Bar(f"{name}: data parallelism over the pipeline", 1 / row["gain"], at_least=1.0))
        bars.append(Bar(f"{name}: plan is {shape.label}", float(row["plan"] == shape.label), at_least=1.0))
    errors = [
        abs(row["predicted_s"] / statistics.median(row["pipeline_s"]) - 1)
        for row in figures.get("shapes", {}).values() if row["measured"] == row["plan"]
    ]  # fmt: skip
    if errors:
        bars.append(Bar("prediction over measurement, less 1: median", statistics.median(errors), at_most=0.05))
        bars.append(Bar("prediction over measurement, less 1: worst", max(errors), at_most=0.1))
    for what, row in figures.get("depth", {}).items():
        bars.append(Bar(f"depth by the network over the thesis's, {what}", row["gain"], at_least=1.3))
    if "cost" in figures:
        cost = figures["cost"]
        bars += [
            Bar("empty stages: ms a minibatch", statistics.median(cost["empty_s"]) * 1e3, at_most=1.0),
            Bar("boundaries of 16 MB: share of plain messages", cost["large_throughput_of_plain"], at_least=0.8),
            Bar("stashing: share of a minibatch", cost["stashing_share"], at_most=0.03),
        ]
    return bars


def thesis_plots(figures: dict[str, Any]) -> "dict[str, ThesisPlot]":
    """For docs/results/theses.md."""
    from benchmarks.pipeline_thesis_plots import lab_plots

    return lab_plots(figures)


def main() -> int:
    """Run and record; the exit code."""
    words = [word for word in sys.argv[1:] if not word.startswith("--")]
    wanted = words or [*SHAPES, *_PARTS]
    path = ROOT / "benchmarks/records/pipeline-lab.json"
    figures: dict[str, Any] = read_document(path)["figures"] if words and path.exists() else {}
    if set(wanted) - {"cost"}:
        with lab("--racks", "1", "--hosts-per-rack", "4", "--host-rate", "200mbit") as bench:
            plink_output(bench.folder, "probe", bench.hosts_file)
            plink_output(bench.folder, "reorder", "--algo", "gloo", "--size", "8MB")
            for name in SHAPES:
                if name in wanted:
                    figures.setdefault("shapes", {})[name] = _compared(bench, name)
                    _record(figures)  # a run that is cut off loses no shape
            if "depth" in wanted:
                figures["depth"] = _depth(bench)
    if "cost" in wanted:
        figures["cost"] = _cost()
    return _record(figures)


def _record(figures: dict[str, Any]) -> int:
    configuration = {"hosts": 4, "rate": "200mbit", "repeats": _REPEATS, "minibatches": _MINIBATCHES}
    return record("pipeline-lab", configuration, figures, _bars(figures))


if __name__ == "__main__":
    sys.exit(main())
