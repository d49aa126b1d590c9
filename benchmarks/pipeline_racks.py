"""Pipelines on 16 lab hosts in 4 racks: predictions of many plans against the clock, gains over data parallelism in two
orders, GPipe, placements, bytes on the wire (Harlap thesis, sections 5.5.2 to 5.5.5).

Computing is emulated (:mod:`benchmarks.timing.emulated_training`). Links have 50 Mbit/s, a quarter of those of
:mod:`benchmarks.pipeline_lab`, and bytes are a quarter too: two cores carry 16 processes and their messages. Plans are
made as a user does, from ``plink probe`` and ``plink pipeline profile`` alone.

Words choose parts; the rest is kept from the last run.
"""

import json
import random
import statistics
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.labs import BenchLab, lab
from benchmarks.pipeline_runs import PROGRAM, ROOT, data_parallel_s, pipeline_s, plink_output
from benchmarks.record import Bar, record
from plink.model.pipeline.plan import read_pipeline
from plink.model.storage import read_document

if TYPE_CHECKING:
    from benchmarks.thesis_plot import ThesisPlot

_RATE = "50mbit"
_TIMES_BYTES = 0.25
_NETWORK = ".plink/network.json"
_TARGET_S = 9.0  # of a job's minibatches
_RANDOM_PLACEMENTS = 10
_RIVALS: dict[str, tuple[tuple[str, ...], float]] = {
    "gloo, buckets of 1 MB": ((), 0.25),
    "gloo, buckets of 4 MB": ((), 1),
    "gloo, buckets of 25 MB": ((), 6.25),
    "AggEngine, buckets of 4 MB": (("--backend", "flat"), 1),
}
"""Of bytes before they were scaled down."""


@dataclass(frozen=True)
class Model:
    """A shape with its seconds, and the bars of its gain over data parallelism in plink's and in the given order."""

    shape: str
    times_seconds: float
    fair: float
    as_given: float

    def options(self, *more: str) -> tuple[str, ...]:
        """Return the options of the program."""
        scaled = ("--times-seconds", str(self.times_seconds), "--times-bytes", str(_TIMES_BYTES))
        return ("--shape", self.shape, *scaled, *more)


MODELS = {
    "vgg": Model("vgg", 0.6 / 0.336, 2.0, 4.3),
    "alexnet": Model("alexnet", 1, 2.3, 4.5),
    "gnmt": Model("gnmt-16", 1, 2.2, 4.5),
}
# Options of `plink pipeline plan`; "shuffled": hosts as a random order hands them to ranks.
_PREDICTED: dict[str, list[tuple[str, tuple[str, ...], bool]]] = {
    "vgg": [
        ("15-1", ("--stages", "0-3x15,4-6x1"), False),
        ("15-1", ("--stages", "0-3x15,4-6x1"), True),
        ("14-2", ("--stages", "0-3x14,4-6x2"), False),
        ("12-4", ("--stages", "0-3x12,4-6x4"), False),
        ("8-8", ("--stages", "0-1x8,2-6x8"), False),
        ("8-8", ("--stages", "0-1x8,2-6x8"), True),
        ("8-4-4", ("--stages", "0-1x8,2-2x4,3-6x4"), False),
        ("straight, 7 hosts", ("--straight",), False),
        ("data parallelism", ("--kind", "data-parallel"), False),
        ("data parallelism", ("--kind", "data-parallel"), True),
    ],
    "gnmt": [
        ("straight", ("--straight", "--all-workers"), False),
        ("straight", ("--straight", "--all-workers"), True),
        ("straight, thesis's depths", ("--straight", "--all-workers", "--depth", "noam"), False),
        ("8-8", ("--stages", "0-7x8,8-15x8"), False),
        ("8-4-4", ("--stages", "0-7x8,8-11x4,12-15x4"), False),
        ("4-4-4-4", ("--stages", "0-3x4,4-7x4,8-11x4,12-15x4"), False),
        ("4-4-4-4", ("--stages", "0-3x4,4-7x4,8-11x4,12-15x4"), True),
        ("2-2-2-2-2-2-2-2", ("--stages", ",".join(f"{k}-{k + 1}x2" for k in range(0, 16, 2))), False),
        ("data parallelism", ("--kind", "data-parallel"), False),
        ("data parallelism", ("--kind", "data-parallel"), True),
    ],
}


class Racks:
    """The lab's hosts, probed and profiled."""

    def __init__(self, bench: BenchLab) -> None:
        self.bench, self.folder = bench, bench.folder
        for name, model in MODELS.items():
            profiled = ("pipeline", "profile", "--minibatches", "5", "-o", f"{name}.json", PROGRAM, *model.options())
            plink_output(self.folder, *profiled)
        lines = Path(bench.hosts_file).read_text().splitlines()
        rack = dict(zip(bench.names, bench.racks.tolist(), strict=True))
        first = [line for line in lines if line.startswith("#") or rack[line.split()[0]] == 0]
        (self.folder / "rack.txt").write_text("\n".join(first) + "\n")
        self.probe()

    def probe(self) -> None:
        """Measure the network, and order the hosts for the ring of data parallelism."""
        plink_output(self.folder, "probe", self.bench.hosts_file, "--bandwidth")
        plink_output(self.folder, "reorder", "--algo", "gloo", "--size", "2MB")

    def plan(self, name: str, *options: str, hosts: str | None = None, profile: str | None = None) -> str:
        """Plan a model for the measured network, and return the file."""
        network = ("--network", _NETWORK, *(("--hosts", hosts) if hosts else ()))
        words = ("pipeline", "plan", f"{profile or name}.json", *network, *options, "-o", f"{name}-plan.json")
        plink_output(self.folder, *words)
        return f"{name}-plan.json"

    def shuffled(self, plan: str, seed: int) -> str:
        """Write a plan whose hosts are in a random order, any of the lab's, and return the file."""
        document = json.loads((self.folder / plan).read_text())
        by_name = {host["name"]: host for host in document["hosts"]}
        names = list(self.bench.names)
        random.Random(seed).shuffle(names)
        addresses = {
            line.split()[0]: line.split()[1].partition("=")[2]
            for line in Path(self.bench.hosts_file).read_text().splitlines() if not line.startswith("#")
        }  # fmt: skip
        pattern = next(iter(by_name.values()))
        document["hosts"] = [
            pattern | {"name": name, "address": addresses[name]} for name in names[: len(document["hosts"])]
        ]
        document["idle"] = names[len(document["hosts"]) :]
        (self.folder / f"shuffled-{plan}").write_text(json.dumps(document))
        return f"shuffled-{plan}"

    def predicted_s(self, plan: str, profile: str) -> float:
        """Return the simulated seconds of a minibatch."""
        words = ("pipeline", "simulate", plan, "--profile", f"{profile}.json", "--network", _NETWORK, "--json")
        return float(json.loads(plink_output(self.folder, *words))["minibatch_s"])

    def measured_s(self, plan: str, model: Model, predicted_s: float, *options: str, hosts: str | None = None) -> float:
        """Return the seconds of a minibatch on the lab's hosts, of a job of about ten seconds."""
        count = 16 * round(min(480.0, max(96.0, _TARGET_S / predicted_s)) / 16)
        program = model.options("--minibatches", str(count), *options)
        return pipeline_s(self.folder, plan, ("--hosts", hosts or self.bench.hosts_file), *program)

    def bytes_sent(self, hosts: list[str]) -> int:
        """Return how many bytes these hosts' interfaces have sent since they were up, headers included."""
        total = 0
        for host in hosts:
            command = ("ip", "netns", "exec", self.bench.blueprint.namespace(host), "cat", "/proc/net/dev")
            text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
            line = next(line for line in text.splitlines() if line.strip().startswith("eth0:"))
            total += int(line.partition(":")[2].split()[8])
        return total


def _predictions(racks: Racks) -> dict[str, Any]:
    """Plans of all kinds, each as the planner places it or in a random order: simulated and measured."""
    rows: list[dict[str, Any]] = []
    for name, plans in _PREDICTED.items():
        chosen = racks.plan(name)
        for label, options, is_shuffled in [("plink's choice", None, False), *plans]:
            plan = chosen if options is None else racks.plan(f"{name}-one", *options, profile=name)
            if is_shuffled:
                plan = racks.shuffled(plan, len(rows))
            predicted_s = racks.predicted_s(plan, name)
            measured_s = racks.measured_s(plan, MODELS[name], predicted_s)
            row = {
                "model": name, "plan": label, "label": read_pipeline(racks.folder / plan).label[:40],
                "shuffled": is_shuffled, "predicted_s": predicted_s, "measured_s": measured_s,
            }  # fmt: skip
            rows.append(row)
            print(json.dumps(row), flush=True)
    return {"plans": rows}


def _gains(racks: Racks) -> dict[str, Any]:
    """The plan over DistributedDataParallel, in plink's ring order and in the given one."""
    rows = {}
    for name, model in MODELS.items():
        plan = racks.plan(name)
        predicted_s = racks.predicted_s(plan, name)
        hosts = ("--hosts", racks.bench.hosts_file)

        def rival_s(rival: str, *more: str, model: Model = model, hosts: tuple[str, ...] = hosts) -> float:
            options, bucket_mb = _RIVALS[rival]
            program = model.options("--minibatches", "64", "--bucket-mb", str(bucket_mb))
            return data_parallel_s(racks.folder, (*hosts, *options, *more), *program)

        first = {rival: rival_s(rival) for rival in _RIVALS}
        best = min(first, key=lambda rival: first[rival])
        own_s, fair_s = [], [first[best]]
        for turn in range(3):
            own_s.append(racks.measured_s(plan, model, predicted_s))
            if turn < 2:
                fair_s.append(rival_s(best))
        given_s = rival_s(best, "--order", "given")
        own = statistics.median(own_s)
        rows[name] = {
            "plan": read_pipeline(racks.folder / plan).label[:40], "predicted_s": predicted_s, "pipeline_s": own_s,
            "rival": best, "rivals_s": first, "fair_s": fair_s, "given_s": given_s,
            "fair": round(statistics.median(fair_s) / own, 3), "given": round(given_s / own, 3),
        }  # fmt: skip
        print(name, json.dumps(rows[name]), flush=True)
    return rows


def _gpipe(racks: Racks) -> dict[str, Any]:
    """GPipe with recomputation on 4 and 16 hosts, one stage each, over the straight pipeline."""
    rows = {}
    few = Model("gnmt", 1, 0, 0)
    plink_output(
        racks.folder, "pipeline", "profile", "--minibatches", "5", "-o", "gnmt-8.json", PROGRAM, *few.options()
    )
    for count, profile, model, hosts in ((4, "gnmt-8", few, "rack.txt"), (16, "gnmt", MODELS["gnmt"], None)):
        straight = ("--straight", "--all-workers")
        plan = racks.plan(profile, *straight, hosts=hosts)
        predicted_s = racks.predicted_s(plan, profile)
        rows[str(count)] = {
            "straight": {
                "predicted_s": predicted_s, "measured_s": racks.measured_s(plan, model, predicted_s, hosts=hosts),
            },
        }  # fmt: skip
        for accumulated in (count, 2 * count, 4 * count):
            options = (*straight, "--kind", "gpipe", "--microbatches", str(accumulated), "--recompute")
            plan = racks.plan(profile, *options, hosts=hosts)
            predicted_s = racks.predicted_s(plan, profile)
            measured_s = racks.measured_s(plan, model, predicted_s, "--minibatches", str(6 * accumulated), hosts=hosts)
            rows[str(count)][str(accumulated)] = {"predicted_s": predicted_s, "measured_s": measured_s}
        print("gpipe", count, json.dumps(rows[str(count)]), flush=True)
    return rows


def _without_pipelining(racks: Racks) -> dict[str, Any]:
    """Pipelines over the same stages with one minibatch in flight, on the four hosts of a rack (Figure 5.13)."""
    rows = {}
    straight, alone = ("--straight", "--all-workers"), ("--kind", "model-parallel", "--straight", "--all-workers")
    quarters = ("--kind", "model-parallel", "--stages", "0-0x1,1-1x1,2-2x1,3-6x1")
    for what, options, rival, least in (
        ("gnmt", straight, alone, 2.5),
        ("lm", straight, alone, 2.5),
        ("vgg, cut into quarters", ("--stages", "0-3x3,4-6x1"), quarters, 6.0),
        ("vgg, cuts that suit it best", ("--stages", "0-3x3,4-6x1"), alone, None),
        ("s2vt", ("--stages", "0-1x2,2-3x1,4-5x1"), ("--stages", "0-1x2,2-3x1,4-5x1", "--depth", "1,1,1"), 1.5),
    ):
        shape = what.partition(",")[0]
        model, profile = Model(shape, 1, 0, 0), f"{shape}-4"
        plink_output(
            racks.folder, "pipeline", "profile", "--minibatches", "5", "-o", f"{profile}.json", PROGRAM,
            *model.options(),
        )  # fmt: skip
        seconds = []
        for chosen in (options, rival):
            plan = racks.plan(profile, *chosen, hosts="rack.txt")
            predicted_s = racks.predicted_s(plan, profile)
            measured_s = racks.measured_s(plan, model, predicted_s, hosts="rack.txt")
            seconds.append({"predicted_s": predicted_s, "measured_s": measured_s})
        gain = seconds[1]["measured_s"] / seconds[0]["measured_s"]
        rows[what] = {"pipeline": seconds[0], "alone": seconds[1], "gain": round(gain, 3), "bar": least}
        print("without pipelining", what, json.dumps(rows[what]), flush=True)
    return rows


def _bytes(racks: Racks) -> dict[str, Any]:
    """Bytes of a minibatch by the interfaces' counters: of jobs of two lengths the difference."""
    rows: dict[str, Any] = {}
    hosts = [line.split()[0] for line in (racks.folder / "rack.txt").read_text().splitlines() if line[0] != "#"]
    shapes = {"vgg": ("--stages", "0-3x3,4-6x1"), "gnmt": ("--straight", "--all-workers"), "resnet": ("--straight",)}
    for shape, options in shapes.items():
        model, profile = Model(shape, 1, 0, 0), f"{shape}-4"
        plink_output(
            racks.folder, "pipeline", "profile", "--minibatches", "5", "-o", f"{profile}.json", PROGRAM,
            *model.options(),
        )  # fmt: skip
        row: dict[str, Any] = {}
        for what, chosen in (("pipeline", options), ("data_parallel", ("--kind", "data-parallel", "--all-workers"))):
            plan = racks.plan(profile, *chosen, hosts="rack.txt")
            document = read_pipeline(racks.folder / plan)
            sent = []
            for count in (48, 144):
                before = racks.bytes_sent(hosts)
                racks.measured_s(plan, model, 1.0, "--minibatches", str(count), hosts="rack.txt")
                sent.append(racks.bytes_sent(hosts) - before)
            planned = document.predicted.bytes_per_item * document.minibatch
            row[what] = {"planned": planned, "counted": (sent[1] - sent[0]) / 96}
        row["fewer"] = 1 - row["pipeline"]["counted"] / row["data_parallel"]["counted"]
        rows[shape] = row
        print("bytes", shape, json.dumps(row), flush=True)
    return rows


def _placement(racks: Racks) -> dict[str, Any]:
    """The plan on a network with a slow uplink and a slow host, over random placements and over the thesis's plan."""
    bench, name = racks.bench, "vgg"
    slow_host = bench.names[-1]
    rack = sorted(set(bench.racks.tolist()))[1]
    plink_output(racks.folder, "lab", "shape", f"rack{rack}", "--rate", "12.5mbit", "--name", bench.name)
    racks.probe()
    document = json.loads((racks.folder / f"{name}.json").read_text()) | {"hosts": {slow_host: 2.0}}
    (racks.folder / "slow.json").write_text(json.dumps(document))
    model, slow = MODELS[name], ("--slow-host", f"{slow_host}=2")

    def both(plan: str) -> dict[str, float]:
        predicted_s = racks.predicted_s(plan, "slow")
        row = {"predicted_s": predicted_s, "measured_s": racks.measured_s(plan, model, predicted_s, *slow)}
        print("placement", json.dumps(row), flush=True)
        return row

    plan = racks.plan("slow")
    rows: dict[str, Any] = {"plan": read_pipeline(racks.folder / plan).label, "own": [both(plan)]}
    network = ("--hosts", bench.hosts_file, "--gbps", "0.05", "--model", "thesis", "-o", "thesis-plan.json")
    plink_output(racks.folder, "pipeline", "plan", "slow.json", *network)
    rows["thesis_plan"] = read_pipeline(racks.folder / "thesis-plan.json").label
    rows["thesis"] = [both("thesis-plan.json")]
    rows["random"] = [both(racks.shuffled(plan, 100 + seed)) for seed in range(_RANDOM_PLACEMENTS)]
    rows["own"].append(both(plan))
    return rows


_PARTS = {
    "predictions": _predictions, "gains": _gains, "gpipe": _gpipe, "without_pipelining": _without_pipelining,
    "bytes": _bytes, "placement": _placement,
}  # fmt: skip


def _errors(rows: list[dict[str, Any]]) -> list[float]:
    return [abs(row["predicted_s"] / row["measured_s"] - 1) for row in rows]


def _ranks(values: list[float]) -> "np.ndarray[Any, Any]":
    return np.argsort(np.argsort(values)).astype(float)


def _bars(figures: dict[str, Any]) -> list[Bar]:
    bars = []
    if plans := figures.get("predictions", {}).get("plans"):
        errors = _errors(plans)
        predicted, measured = (_ranks([row[key] for row in plans]) for key in ("predicted_s", "measured_s"))
        bars += [
            Bar(f"prediction of {len(plans)} plans, off: median", statistics.median(errors), at_most=0.05),
            Bar(f"prediction of {len(plans)} plans, off: worst", max(errors), at_most=0.10),
            Bar("Spearman's correlation", float(np.corrcoef(predicted, measured)[0, 1]), at_least=0.95),
        ]
        for name in _PREDICTED:
            own = [row for row in plans if row["model"] == name]
            fastest = min(row["measured_s"] for row in own)
            chosen = own[0]["measured_s"]
            bars.append(Bar(f"{name}: plink's choice over the fastest measured", chosen / fastest, at_most=1.03))
    for name, row in figures.get("gains", {}).items():
        bars.append(Bar(f"{name}: times data parallelism", row["fair"], at_least=MODELS[name].fair))
        bars.append(
            Bar(f"{name}: times data parallelism in the given order", row["given"], at_least=MODELS[name].as_given)
        )
    for count, rows in figures.get("gpipe", {}).items():
        slower = rows[count]["measured_s"] / rows["straight"]["measured_s"]
        bars.append(Bar(f"GPipe, {count} hosts, as many minibatches: times as long", slower, at_least=1.5))
        bars.append(Bar(f"GPipe, {count} hosts: prediction off, worst", max(_errors(list(rows.values()))), at_most=0.1))
    for name, row in figures.get("without_pipelining", {}).items():
        if row["bar"] is not None:
            bars.append(Bar(f"{name}, 4 hosts: times one minibatch in flight", row["gain"], at_least=row["bar"]))
    for name, row in figures.get("bytes", {}).items():
        for what in ("pipeline", "data_parallel"):
            off = abs(row[what]["counted"] / row[what]["planned"] - 1)
            bars.append(Bar(f"{name}, {what.replace('_', ' ')}: counted over planned bytes, less 1", off, at_most=0.02))
        least = {"vgg": 0.85, "gnmt": 0.9}.get(name)
        if least is not None:
            bars.append(Bar(f"{name}: bytes fewer than data parallelism", row["fewer"], at_least=least))
        else:
            bars.append(Bar(f"{name}: bytes fewer than data parallelism", row["fewer"], at_most=0.0))
    if row := figures.get("placement"):
        own = statistics.median(entry["measured_s"] for entry in row["own"])
        others = statistics.median(entry["measured_s"] for entry in row["random"])
        bars += [
            Bar("placement over the median of random ones", others / own, at_least=1.25),
            Bar("placement over the thesis's plan", row["thesis"][0]["measured_s"] / own, at_least=1.15),
        ]
    return bars


def thesis_plots(figures: dict[str, Any]) -> "dict[str, ThesisPlot]":
    """For docs/results/theses.md."""
    from benchmarks.pipeline_thesis_plots import rack_plots

    return rack_plots(figures)


def main() -> int:
    """Run and record; the exit code."""
    words = [word for word in sys.argv[1:] if not word.startswith("--")]
    path = ROOT / "benchmarks/records/pipeline-racks.json"
    figures: dict[str, Any] = read_document(path)["figures"] if words and path.exists() else {}
    measured: list[str] = []
    code = 0
    with lab("--racks", "4", "--hosts-per-rack", "4", "--host-rate", _RATE, "--uplink-rate", _RATE) as bench:
        bench.use_reno()
        racks = Racks(bench)
        for part, measure in _PARTS.items():
            if not words or part in words:
                figures[part] = measure(racks)
                measured.append(part)
                configuration = {"hosts": 16, "racks": 4, "rate": _RATE, "times_bytes": _TIMES_BYTES}
                code = record("pipeline-racks", configuration, figures, _bars(figures), measured)
    return code


if __name__ == "__main__":
    sys.exit(main())
