"""AggEngine beside stock Gloo: all-reduces of every size on the lab, its own overhead on loopback, training, and groups
from ProbeEmbed against random ones, the true ones and none (PLink thesis, Figures 6.12 to 6.14).

With ``--full`` 64 MB and training, too, five repetitions instead of three and 20 random groups instead of 6: a quarter
of an hour more.
"""

import json
import math
import statistics
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.labs import BenchLab, lab
from benchmarks.record import Bar, record
from benchmarks.thesis_plot import ThesisPlot
from plink.model.order import read_order
from plink.model.plan import read_plan
from plink.model.storage import read_document
from plink.model.units import format_bytes

ROOT = Path(__file__).parents[1]
_PROGRAM = str(ROOT / "benchmarks/timing/aggregation.py")
_RATE = 25e6  # bytes a second of every host and rack: 200 Mbit/s
_SIZES = (4, 1 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 25_000_000)
_FULL_SIZES = (*_SIZES, 64 << 20)
_FULL = "--full" in sys.argv
_REPEATS = 5 if _FULL else 3
_PARTS = {"loopback", "sizes", "groups", "training"}
_DRAWS = 20 if _FULL else 6
_DRAWN_BYTES, _DRAWN_REPEATS = 4 << 20, 5


def _done(run: Any) -> str:
    if run.returncode:
        raise SystemExit(run.stderr[-3000:])
    return str(run.stdout)


def launched(folder: Path, *words: str) -> list[dict[str, Any]]:
    """Return what rank 0 said, line by line."""
    output = _done(
        subprocess.run(
            [sys.executable, "-m", "plink", "launch", "--env", "OMP_NUM_THREADS=1", *words],
            cwd=folder, capture_output=True, text=True, check=False,
        )
    )  # fmt: skip
    lines = [line.partition("] ")[2] for line in output.splitlines()]
    return [json.loads(line) for line in lines if line.startswith("{")]


def _write(folder: Path, name: str, document: dict[str, Any]) -> str:
    path = folder / name
    path.write_text(json.dumps(document))
    return str(path)


def listed_hosts(bench: BenchLab) -> list[str]:
    lines = Path(bench.hosts_file).read_text().splitlines()
    return [line.split()[0] for line in lines if line and not line.startswith("#")]


def _prepared(bench: BenchLab) -> tuple[list[str], list[int]]:
    """Return the hosts as given, and the place of each in plink's order for Gloo's ring; a 2LHA plan of the given
    order."""
    names = listed_hosts(bench)
    (bench.folder / "given.txt").write_text("".join(f"{name}\n" for name in names))
    for words in (
        ("probe", bench.hosts_file),
        ("cluster",),
        ("reorder", "--algo", "gloo", "--size", "25MB"),
        ("plan", "--algo", "2lha", "--size", "25MB", "--order", "given.txt", "-o", "2lha.json"),
        ("plan", "--algo", "flat", "--size", "25MB", "--order", "given.txt", "-o", "flat.json"),
    ):
        run = bench.plink(*words)
        if run.code:
            raise SystemExit(run.stderr)
    ordered = read_order(bench.folder / ".plink" / "order.json").hosts
    return names, [ordered.index(name) for name in names]


def alone(bench: BenchLab, name: str) -> str:
    """Return a plan that hands nothing over to Gloo in another order."""
    from benchmarks.aggregation_file import aggregation_to_json
    from plink.runtime.allreduce.aggregation import read_aggregation

    whole = read_aggregation(bench.folder / f"{name}.json")
    return _write(bench.folder, f"{name}-alone.json", aggregation_to_json(replace(whole, ring=())))


def _sizes(bench: BenchLab, ring: list[int]) -> dict[str, Any]:
    groups = {
        "gloo, given order": {"kind": "gloo", "order": None},
        "gloo, plink's order": {"kind": "gloo", "order": ring},
        "2lha, given order": {"kind": "plink", "order": None, "plan": alone(bench, "2lha")},
        "plink, given order": {"kind": "plink", "order": None, "plan": str(bench.folder / "2lha.json")},
        "flat, given order": {"kind": "plink", "order": None, "plan": str(bench.folder / "flat.json")},
    }
    request = {
        "sizes": _FULL_SIZES if _FULL else _SIZES, "repeats": _REPEATS, "small_repeats": 5,
        "groups": groups,
    }  # fmt: skip
    rows_printed = launched(
        bench.folder,
        "--order",
        "given",
        "--hosts",
        bench.hosts_file,
        _PROGRAM,
        _write(bench.folder, "sizes.json", request),
    )
    rows = []
    for row in rows_printed:
        if "size_bytes" in row:
            bound = 2 * 15 / 16 * row["size_bytes"] / _RATE  # what every host sends, and receives
            medians = {name: statistics.median(times) for name, times in row["seconds"].items()}
            rows.append({**row, "median_s": medians, "bound_s": bound})
            print(row["size_bytes"], {name: round(value * 1e3, 2) for name, value in medians.items()}, flush=True)
    return {"found": [row for row in rows_printed if "group" in row], "rows": rows}


def _random_groups(bench: BenchLab, ring: list[int]) -> dict[str, Any]:
    """2LHA by the groups of `plink cluster` against balanced random ones, the racks themselves, and none (flat).

    All plans are made in one way, so that the same groups give the same plan; those that are compared one
    with one take turns.
    """
    generator, baseline = np.random.default_rng(1), listed_hosts(bench)
    plans = {"flat": str(bench.folder / "flat.json")}
    names, planned = np.array(bench.names), read_plan(bench.folder / "2lha.json")
    assert planned.groups is not None
    drawn = {
        "probed": [[baseline[rank] for rank in group] for group in planned.groups],
        "true": [names[bench.racks == rack].tolist() for rack in np.unique(bench.racks)],
    }
    drawn |= {f"random {k}": generator.permutation(baseline).reshape(4, 4).tolist() for k in range(_DRAWS)}
    drawn = {name: in_one_order(groups, baseline) for name, groups in drawn.items()}
    for name, groups in drawn.items():
        file, short = bench.folder / "groups.txt", f"by-{name.replace(' ', '-')}"
        file.write_text("".join(" ".join(row) + "\n" for row in groups))
        run = bench.plink(
            "plan", "--algo", "2lha", "--order", "given.txt", "--groups", str(file), "-o", f"{short}.json"
        )
        if run.code:
            raise SystemExit(run.stderr)
        plans[name] = alone(bench, short)
    request = {
        "sizes": [_DRAWN_BYTES], "repeats": _DRAWN_REPEATS,
        "together": [["probed", "true", "flat"], *([name] for name in plans if name.startswith("random"))],
        "groups": {name: {"kind": "plink", "order": None, "plan": plan} for name, plan in plans.items()},
    }  # fmt: skip
    rows_printed = launched(
        bench.folder,
        "--order",
        "given",
        "--hosts",
        bench.hosts_file,
        _PROGRAM,
        _write(bench.folder, "random.json", request),
    )
    samples = {name: times for row in rows_printed if "seconds" in row for name, times in row["seconds"].items()}
    seconds = {name: statistics.median(times) for name, times in samples.items()}
    over = {name: round(took / seconds["probed"], 3) for name, took in seconds.items() if name != "probed"}
    print("groups:", over, flush=True)
    return {
        "size_bytes": _DRAWN_BYTES, "samples": samples, "seconds": seconds,
        "gains": [gain for name, gain in over.items() if name.startswith("random")],
        "over_true": over["true"], "over_flat": over["flat"],
        "groups": {name: drawn[name] for name in ("probed", "true")}, "found": drawn["probed"] == drawn["true"],
    }  # fmt: skip


def in_one_order(groups: list[list[str]], baseline: list[str]) -> list[list[str]]:
    """Members, and groups by their first member, as they stand in the given order."""
    return sorted((sorted(group, key=baseline.index) for group in groups), key=lambda group: baseline.index(group[0]))


def _training(bench: BenchLab, pairs: int = 3) -> dict[str, Any]:
    """DDP of the VGG-like network in the given order: stock Gloo and 2LHA, turn and turn about."""
    program = (str(ROOT / "examples/ddp_vgg.py"), "--steps", "6")
    steps: dict[str, list[float]] = {"gloo": [], "2lha": []}
    for pair in range(pairs):
        for which in sorted(steps, reverse=bool(pair % 2)):
            words = ("--backend", "2lha") if which == "2lha" else ()
            rows_printed = launched(bench.folder, "--order", "given", "--hosts", bench.hosts_file, *words, *program)
            steps[which].append(next(row["step_s"] for row in rows_printed if "step_s" in row))
            print(which, steps[which][-1], flush=True)
    gain = statistics.median(steps["gloo"]) / statistics.median(steps["2lha"])
    return {"step_s": steps, "gain": round(gain, 3)}


def _loopback() -> dict[str, Any]:
    """Processes here, no limit of any rate: 64 MB by two, which is what the engine itself costs, and short vectors by
    eight, ten in a row, whose messages go over sockets of the engine's own, or over Gloo."""
    from benchmarks.aggregation_file import aggregation_to_json
    from plink.runtime.allreduce.aggregation import SizeClass, aggregation_for_rate
    from solvers.schedules.catalogue import Options, schedule_for

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)

        def timed(ranks: int, algo: str, options: Options, request: dict[str, Any], *ways: str) -> list[dict[str, Any]]:
            classes = (SizeClass(None, algo, schedule_for(algo, ranks, options)),)
            # As launch has it for one host.
            by_rate = replace(aggregation_for_rate(classes, math.inf), smallest_bytes=0)
            plan = _write(folder, f"{algo}.json", aggregation_to_json(by_rate))
            groups = {way: {"kind": "plink", "order": None, "plan": plan, "eager": way != "by gloo"} for way in ways}
            whole = {**request, "groups": {"gloo": {"kind": "gloo", "order": None}, **groups}}
            rows_printed = launched(
                folder, "--runner", "local", "--slots", str(ranks), _PROGRAM, _write(folder, "asked.json", whole)
            )
            rows = [row for row in rows_printed if "size_bytes" in row]
            medians = [{way: statistics.median(times) for way, times in row["seconds"].items()} for row in rows]
            print("loopback:", medians, flush=True)
            return [{**row, "median_s": median} for row, median in zip(rows, medians, strict=True)]

        (row,) = timed(2, "ring", Options(), {"sizes": [64 << 20], "repeats": 11}, "ring")
        short = timed(
            8, "2lha", Options(groups=[[0, 1, 2, 3], [4, 5, 6, 7]]),
            {"sizes": [4, 1 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20], "repeats": 11, "in_a_row": 10},
            "2lha", "by gloo",
        )  # fmt: skip
    return {**row, "throughput_of_gloo": round(row["median_s"]["gloo"] / row["median_s"]["ring"], 3), "short": short}


def thesis_plots(figures: dict[str, Any]) -> dict[str, ThesisPlot]:
    """For docs/results/theses.md."""
    from benchmarks.drawing import curves, strips

    rows = figures["sizes"]["rows"]
    names = list(dict.fromkeys(name for row in rows for name in row["median_s"]))
    times = {
        row["size_bytes"]: {name: row["median_s"]["gloo, given order"] / took for name, took in row["median_s"].items()}
        for row in rows
    }
    ours = [name for name in ("flat, given order", "2lha, given order", "plink, given order") if name in names]
    text = "times as fast as stock Gloo in the given order, " + "; ".join(
        f"{size}: " + ", ".join(f"{name.partition(',')[0]} {times[count][name]:.2f}" for name in ours)
        for size, count in (("4 B", 4), ("25 MB", 25_000_000))
    )
    picture = curves(
        "figure-6-12", "All-reduce beside stock Gloo in the given order", "higher is faster; 16 lab hosts", {
            name: ([row["size_bytes"] for row in rows], [times[row["size_bytes"]][name] for row in rows])
            for name in names
        }, "size", "times as fast", "x",
        xticks={row["size_bytes"]: format_bytes(row["size_bytes"]) for row in rows},
    )  # fmt: skip
    plots = {"figure-6-12": ThesisPlot(text, picture, part="sizes")}
    if "groups" in figures and "samples" in figures["groups"]:
        plots["figure-6-13"] = _groups_plot(figures["groups"], strips)
    return plots


def _groups_plot(groups: dict[str, Any], strips: Any) -> ThesisPlot:
    """2LHA by groups of either kind, over what it takes by the probed ones."""
    probed, gains = groups["seconds"]["probed"], sorted(groups["gains"])
    p95 = float(np.percentile(gains, 95))
    found_text = {None: "", True: " (the same groups)", False: " (others)"}[groups.get("found")]
    text = (
        f"by probed groups {groups['over_true']:.2f} times as fast as by the true ones{found_text}, "
        f"{statistics.mean(gains):.2f} (median {statistics.median(gains):.2f}, 95 % {p95:.2f}) as by "
        f"{len(gains)} random draws, {groups['over_flat']:.2f} as flat aggregation"
    )
    kinds = {"probed": "probed groups", "true": "true groups", "random": "random groups", "flat": "flat, no groups"}
    rows = {
        label: [s / probed for name, times in groups["samples"].items() if name.split()[0] == kind for s in times]
        for kind, label in kinds.items()
    }
    second = f"every all-reduce of {groups['size_bytes'] / 1e6:.1f} MB, in the median by probed groups; 16 lab hosts"
    picture = strips("figure-6-13", "Two levels by probed, true and random groups", second, rows, "times as long")
    return ThesisPlot(text, picture, part="groups")


def main() -> int:
    """Run and record; the exit code. Words (sizes, groups, training, loopback) measure these only, the rest is kept."""
    path = ROOT / "benchmarks/records/aggengine.json"
    words = [word for word in sys.argv[1:] if not word.startswith("--")]
    wanted = words or ["loopback", "sizes", "groups", *(["training"] if _FULL else [])]
    figures = read_document(path)["figures"] if path.exists() and set(wanted) != _PARTS else {}
    if "loopback" in wanted:
        figures["loopback"] = _loopback()
    if set(wanted) - {"loopback"}:
        with lab("--seed", "5") as bench:
            _, ring = _prepared(bench)
            for part, measure in (("sizes", _sizes), ("groups", _random_groups)):
                if part in wanted:
                    figures[part] = measure(bench, ring)
            if "training" in wanted:
                figures["training"] = _training(bench)
    configuration = {"racks": 4, "hosts_per_rack": 4, "rate": "200mbit", "repeats": _REPEATS}
    return record("aggengine", configuration, figures, _bars(figures), wanted)


def _bars(figures: dict[str, Any]) -> list[Bar]:
    bars = []
    if "sizes" in figures:
        rows = {row["size_bytes"]: row["median_s"] for row in figures["sizes"]["rows"]}
        bound = {row["size_bytes"]: row["bound_s"] for row in figures["sizes"]["rows"]}
        stock, ordered, engine = "gloo, given order", "gloo, plink's order", "2lha, given order"
        whole = "plink, given order"
        large = 25_000_000
        bars += [
            Bar("25 MB: times stock Gloo in the given order", rows[large][stock] / rows[large][whole], at_least=3.0),
            Bar("25 MB: share of Gloo in plink's order", rows[large][ordered] / rows[large][whole], at_least=0.95),
            Bar("25 MB: share of the bound", bound[large] / rows[large][whole], at_least=0.9),
            Bar("25 MB, 2LHA alone: times stock Gloo", rows[large][stock] / rows[large][engine], at_least=3.0),
            Bar("25 MB, 2LHA alone: share of Gloo in order", rows[large][ordered] / rows[large][engine], at_least=0.95),
            Bar("25 MB, 2LHA alone: share of the bound", bound[large] / rows[large][engine], at_least=0.9),
            Bar("64 KB: times Gloo in the better order", _better(rows[64 << 10], whole), at_least=4.0),
            Bar("1 MB: times Gloo in the better order", _better(rows[1 << 20], whole), at_least=1.0),
            Bar(
                "any size: slower than the better of stock Gloo and 2LHA by, worst",
                max(row[whole] / min(row[stock], row[engine]) for row in rows.values()),
                at_most=1.05,
            ),
        ]
    if "loopback" in figures:
        share = figures["loopback"]["throughput_of_gloo"]
        bars.append(Bar("64 MB between two processes: share of Gloo's throughput", share, at_least=0.8))
        medians = [row["median_s"] for row in figures["loopback"].get("short", [])]
        if medians:
            least = min(median["by gloo"] / median["2lha"] for median in medians)
            bars.append(Bar("short vectors over sockets of its own: times by Gloo's, least", least, at_least=1.0))
    if "training" in figures:
        bars.append(Bar("DDP in the given order, times stock Gloo", figures["training"]["gain"], at_least=2.3))
    if "groups" in figures:
        bars.append(
            Bar("probed against random groups, mean", statistics.mean(figures["groups"]["gains"]), at_least=1.3)
        )
    return bars


def _better(row: dict[str, float], engine: str) -> float:
    return min(seconds for name, seconds in row.items() if name.startswith("gloo")) / row[engine]


if __name__ == "__main__":
    sys.exit(main())
