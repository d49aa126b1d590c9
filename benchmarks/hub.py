"""Hubs on the lab: all-reduces through wide hosts beside Gloo's ring, flat schedules, 2LHA and MXNet's parameter
server (PLink thesis, Figures 6.2, 6.5, 6.9, 6.10).

``--only PART``: one of ``exchange``, ``workers``, ``racks``, ``hidden``, ``jobs`` and ``process``; the others are kept
as they were recorded. MXNet 1.9.1 gets an environment of its own at the first run; where it cannot be had, a line says
so.
"""

import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import plink
from benchmarks import results
from benchmarks.aggregation_file import aggregation_to_json
from benchmarks.labs import BenchLab, lab
from benchmarks.record import Bar, record
from plink.model.segmentation import SegmentationConfig
from plink.runtime.allreduce.aggregation import Aggregation, SizeClass
from solvers.schedules.catalogue import Options, schedule_for

if TYPE_CHECKING:
    from benchmarks.thesis_plot import ThesisPlot

ROOT = Path(__file__).parents[1]
_MXNET = ROOT / ".venv-mxnet"
_TIMING = ROOT / "benchmarks/timing"
_WORKER_MBIT, _HUB_MBIT = 100, 900
_SIZES = (1_000_000, 5_000_000, 10_000_000, 25_000_000)
_MXNET_KEY_BYTES = 450_000  # about as many as AggEngine's slices
_ROUNDS, _REPEATS = 2, 3
_RACK_BYTES, _UPLINKS = 10_000_000, (50, 100, 200)
_JOBS, _STEP_S, _STEP_ELEMENTS = (1, 2, 4, 8), 1.0, 625_000
_STEP_BYTES, _STEPS_S = 12_500_000, (0.5, 1.0, 2.0)
_PROCESS_BYTES, _SLICES = 50_000_000, (64, 256, 448, 1024, 4096)
Seconds = dict[str, dict[int, list[float]]]


def _require(run: Any) -> None:
    if run.code:
        raise SystemExit(run.stderr[-3000:])


def _hosts(bench: BenchLab, name: str, workers: Sequence[str], hubs: Sequence[str]) -> str:
    """Return a hosts file of these workers and hubs."""
    listed = Path(bench.hosts_file).read_text().splitlines()
    lines = {line.split()[0]: line for line in listed if line[:1] not in "#"}
    wide = [f"{lines[hub].replace(' slots=1', '')} role=hub gbps={_HUB_MBIT / 1e3}" for hub in hubs]
    path = bench.folder / name
    comments = [line for line in listed if line.startswith("#")]  # name the lab
    path.write_text("\n".join([*comments, *(lines[worker] for worker in workers), *wide]) + "\n")
    return str(path)


def _wide(bench: BenchLab, hubs: Sequence[str]) -> None:
    for hub in hubs:
        _require(bench.plink("lab", "shape", hub, "--rate", f"{_HUB_MBIT}mbit", "--name", bench.name))


def _timed(
    bench: BenchLab, hosts: str, groups: dict[str, Any], sizes: Sequence[int], backend: str, samples: Seconds,
    wait_s: float = 0.0,
) -> None:  # fmt: skip
    """Add the seconds of one job, whose groups take turns, to those of each group and size."""
    request, result = bench.folder / "request.json", bench.folder / "result.jsonl"
    request.write_text(json.dumps({"sizes": list(sizes), "repeats": _REPEATS, "wait_s": wait_s, "groups": groups}))
    result.unlink(missing_ok=True)
    _require(
        bench.plink(
            "launch", "--order", "given", "--hosts", hosts, "--backend", backend, "--env", "OMP_NUM_THREADS=1",
            str(_TIMING / "aggregation.py"), str(request), str(result),
        )
    )  # fmt: skip
    for row in map(json.loads, result.read_text().splitlines()):
        for name, seconds in row["seconds"].items():
            samples.setdefault(name, {}).setdefault(row["size_bytes"], []).extend(seconds)


def _plans(bench: BenchLab, workers: Sequence[str], *algorithms: str) -> dict[str, Any]:
    """Return groups of the workers alone, by these algorithms in the given order."""
    alone = _hosts(bench, "alone.txt", workers, [])
    (bench.folder / "given.txt").write_text("".join(f"{name}\n" for name in workers))
    _require(bench.plink("probe", alone, "-o", "alone.json"))
    for algo in algorithms:
        _require(bench.plink("plan", "alone.json", "--algo", algo, "--order", "given.txt", "-o", f"{algo}.json"))
    return {algo: {"kind": "plink", "plan": str(bench.folder / f"{algo}.json")} for algo in algorithms}


def _mxnet_python() -> Path | None:
    """Return the interpreter of MXNet's environment, made now if it is not there; None where it cannot be had."""
    python = _MXNET / "bin/python"
    wanted = ["numpy==1.23.5", "mxnet==1.9.1", "requests", "graphviz<0.9"]  # what it needs of NumPy went with 1.24
    made = python.exists() or not (
        subprocess.run([sys.executable, "-m", "venv", str(_MXNET)], check=False).returncode
        or subprocess.run([python, "-m", "pip", "install", "-q", *wanted], check=False).returncode
    )
    if not made:
        print("MXNet 1.9.1 cannot be installed here: its figures are left out", file=sys.stderr)
    return python if made else None


def _time_mxnet(bench: BenchLab, python: Path, workers: Sequence[str], hub: str, samples: Seconds) -> None:
    """Add the seconds of MXNet's workers with one server on the hub: each time the slowest worker's."""
    address = next(line.split("address=")[1].split()[0] for line in Path(bench.hosts_file).read_text().splitlines()
                   if line.startswith(hub))  # fmt: skip
    variables = [
        f"DMLC_PS_ROOT_URI={address}", "DMLC_PS_ROOT_PORT=9123", "DMLC_NUM_SERVER=1",
        f"DMLC_NUM_WORKER={len(workers)}", "OMP_NUM_THREADS=1",
    ]  # fmt: skip
    words = [str(_TIMING / "mxnet_rank.py"), ",".join(map(str, _SIZES)), str(_REPEATS), str(_MXNET_KEY_BYTES)]
    places = [("scheduler", hub), ("server", hub), *(("worker", name) for name in workers)]
    processes = [
        subprocess.Popen(
            ["ip", "netns", "exec", bench.blueprint.namespace(name), "env", f"DMLC_ROLE={role}", *variables,
             str(python), *words],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )
        for role, name in places
    ]  # fmt: skip
    try:
        outputs = [process.communicate(timeout=600)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    rows = [[json.loads(line) for line in output.splitlines()] for output in outputs if output]
    for of_size in zip(*rows, strict=True):
        seconds = [max(times) for times in zip(*(row["seconds"] for row in of_size), strict=True)]
        samples.setdefault("mxnet", {}).setdefault(of_size[0]["size_bytes"], []).extend(seconds)


def _rows(samples: Seconds, **more: Any) -> list[dict[str, Any]]:
    rows = [
        {"way": way, "bytes": size, "median_s": round(statistics.median(times), 4), "seconds": times, **more}
        for way, by_size in samples.items()
        for size, times in by_size.items()
    ]
    for row in rows:
        print({key: value for key, value in row.items() if key != "seconds"}, flush=True)
    return rows


def _exchange() -> list[dict[str, Any]]:
    """Eight workers and a hub, all ways in turns."""
    with lab("--racks", "1", "--hosts-per-rack", "9", "--host-rate", f"{_WORKER_MBIT}mbit") as bench:
        *workers, hub = bench.names
        _wide(bench, [hub])
        groups = {"phub": {"kind": "job"}, "gloo": {"kind": "gloo"}, **_plans(bench, workers, "flat")}
        hosts, python = _hosts(bench, "hosts.txt", workers, [hub]), _mxnet_python()
        _require(bench.plink("probe", hosts))
        samples: Seconds = {}
        for _ in range(_ROUNDS):
            _timed(bench, hosts, groups, _SIZES, "phub", samples)
            if python is not None:
                _time_mxnet(bench, python, workers, hub, samples)
    return _rows(samples)


def _workers() -> list[dict[str, Any]]:
    """2, 4 and 8 workers of one hub."""
    rows = []
    with lab("--racks", "1", "--hosts-per-rack", "9", "--host-rate", f"{_WORKER_MBIT}mbit") as bench:
        *workers, hub = bench.names
        _wide(bench, [hub])
        for number in (2, 4, 8):
            samples: Seconds = {}
            hosts = _hosts(bench, "hosts.txt", workers[:number], [hub])
            _require(bench.plink("probe", hosts))
            _timed(bench, hosts, {"phub": {"kind": "job"}}, _SIZES[-1:], "phub", samples)
            rows += _rows(samples, workers=number)
    return rows


def _racks() -> list[dict[str, Any]]:
    """Two racks of four workers with a hub each, by the rate of the uplinks."""
    rows = []
    for uplink in _UPLINKS:
        rates = ("--host-rate", f"{_WORKER_MBIT}mbit", "--uplink-rate", f"{uplink}mbit")
        with lab("--racks", "2", "--hosts-per-rack", "5", *rates) as bench:
            hubs = [bench.names[int((bench.racks == rack).nonzero()[0][-1])] for rack in (0, 1)]
            workers = [name for name in bench.names if name not in hubs]
            _wide(bench, hubs)
            plans = _plans(bench, workers, "2lha")
            hosts = _hosts(bench, "hosts.txt", workers, hubs)
            _require(bench.plink("probe", hosts))
            network, alone = bench.network(".plink/network.json"), bench.network("alone.json")
            samples: Seconds = {}
            for _ in range(_ROUNDS):
                for backend in ("phub", "phub-2l"):
                    groups = {backend: {"kind": "job"}, "gloo": {"kind": "gloo"}, **plans}
                    _timed(bench, hosts, groups, (_RACK_BYTES,), backend, samples)
            for row in _rows(samples, uplink_mbit=uplink):
                if (algo := {"gloo": "ring"}.get(row["way"], row["way"])) in ("ring", "phub", "phub-2l"):
                    of = alone if algo == "ring" else network
                    cost = plink.cost(of, None, plink.CostRequest(algo, _RACK_BYTES, "contention", random=0))
                    row["predicted_s"] = round(cost.cost_us / 1e6, 4)
                rows.append(row)
    return rows


def _hidden() -> list[dict[str, Any]]:
    """What of an exchange a step does not hide, beside the balance: eight workers and a hub, steps that wait."""
    rows = []
    with lab("--racks", "1", "--hosts-per-rack", "9", "--host-rate", f"{_WORKER_MBIT}mbit") as bench:
        *workers, hub = bench.names
        _wide(bench, [hub])
        groups = {"phub": {"kind": "job"}, "gloo": {"kind": "gloo"}, **_plans(bench, workers, "flat")}
        hosts = _hosts(bench, "hosts.txt", workers, [hub])
        _require(bench.plink("probe", hosts))
        network = bench.network(".plink/network.json")
        for step_s in _STEPS_S:
            samples: Seconds = {}
            _timed(bench, hosts, groups, (_STEP_BYTES,), "phub", samples, step_s)
            request = plink.BalanceRequest(_STEP_BYTES, step_s, advise=plink.AdviseRequest(algorithms=("ring", "flat")))
            balance = plink.balance(network, request)
            for row in _rows(samples, step_s=step_s):
                form = balance.of("ring" if row["way"] == "gloo" else row["way"])
                assert form is not None
                row["exposed_share"] = round(max(0.0, 1 - step_s / row["median_s"]), 4)
                row["predicted_share"] = round(form.exposed_s / form.step_s, 4)
                print(row["exposed_share"], row["predicted_share"], flush=True)
                rows.append(row)
    return rows


def _jobs() -> list[dict[str, Any]]:
    """Jobs of two workers each at one hub host, whose programs wait a second between all-reduces of 2.5 MB."""
    rows = []
    count = 2 * max(_JOBS)
    with lab("--racks", "1", "--hosts-per-rack", str(count + 1), "--host-rate", f"{_WORKER_MBIT}mbit") as bench:
        *workers, hub = bench.names
        _wide(bench, [hub])
        for jobs in _JOBS:
            files = [_hosts(bench, f"job-{k}.txt", workers[2 * k : 2 * k + 2], [hub]) for k in range(jobs)]

            def steps(place: int, files: list[str] = files) -> list[float]:
                words = [sys.executable, "-m", "plink", "launch", "--order", "given", "--hosts", files[place]]
                words += ["--backend", "phub", "--set", f"master-port={29600 + place}", "--env", "OMP_NUM_THREADS=1"]
                program = [str(_TIMING / "waiting_training.py"), "20", str(_STEP_ELEMENTS), str(_STEP_S)]
                done = subprocess.run([*words, *program], cwd=bench.folder, capture_output=True, text=True, check=False)
                if done.returncode:
                    raise SystemExit(done.stderr[-3000:])
                line = next(line for line in done.stdout.splitlines() if '"seconds"' in line)
                return list(json.loads(line.partition("] ")[2])["seconds"])

            with ThreadPoolExecutor(jobs) as pool:
                each = list(pool.map(steps, range(jobs)))
            middle = [value for seconds in each for value in seconds[5:15]]  # while all run
            rows += _rows({"phub": {4 * _STEP_ELEMENTS: middle}}, jobs=jobs, wait_s=_STEP_S)
    return rows


def _process() -> list[dict[str, Any]]:
    """What one hub process receives and adds up on loopback, from two workers, by the size of slices."""
    folder = Path(tempfile.mkdtemp())
    hub = schedule_for("ps", 3, Options(sharded=False))
    groups = {}
    for kilobytes in _SLICES:
        cut = SegmentationConfig(segment_bytes=kilobytes * 1024, min_segment_bytes=32 * 1024)
        plan = Aggregation((SizeClass(None, "ps", hub),), smallest_bytes=0, segmentation=cut)
        (folder / f"{kilobytes}.json").write_text(json.dumps(aggregation_to_json(plan)))
        groups[str(kilobytes)] = {"kind": "plink", "plan": str(folder / f"{kilobytes}.json")}
    (folder / "request.json").write_text(
        json.dumps({"sizes": [_PROCESS_BYTES], "repeats": 2 * _REPEATS, "groups": groups})
    )
    run = subprocess.run(
        [sys.executable, "-m", "plink", "launch", "--runner", "local", "--slots", "3", "--env", "OMP_NUM_THREADS=1",
         str(_TIMING / "aggregation.py"), str(folder / "request.json"), str(folder / "result.jsonl")],
        capture_output=True, text=True, check=False, cwd=folder,
    )  # fmt: skip
    if run.returncode:
        raise SystemExit(run.stderr[-3000:])
    (row,) = map(json.loads, (folder / "result.jsonl").read_text().splitlines())
    rows = []
    for kilobytes, seconds in row["seconds"].items():
        busy = row["cpu_s"][kilobytes]  # of rank 0, the hub
        moved = 2 * _PROCESS_BYTES / 1e9
        rows.append(
            {
                "slice_kb": int(kilobytes), "gbytes_per_s": round(moved / statistics.median(seconds), 3),
                "cpu_s_per_gb": round(statistics.median(busy) / moved, 3), "seconds": seconds, "cpu_s": busy,
            }
        )  # fmt: skip
        print(rows[-1], flush=True)
    return rows


_PARTS = {
    "exchange": _exchange,
    "workers": _workers,
    "racks": _racks,
    "hidden": _hidden,
    "jobs": _jobs,
    "process": _process,
}


def thesis_plots(figures: dict[str, Any]) -> "dict[str, ThesisPlot]":
    """For docs/results/theses.md."""
    from benchmarks.drawing import spreads
    from benchmarks.thesis_plot import ThesisPlot

    names = {"phub": "a hub", "gloo": "Gloo's ring", "flat": "flat", "mxnet": "MXNet, one server", "2lha": "2LHA"}
    names["phub-2l"] = "a hub in each rack, in two levels"
    plots = {}

    def add(figure: str, part: str, title: str, text: str, rows: dict[str, list[float]], unit: str) -> None:
        picture = spreads(f"hub-figure-{figure}", title, "lab; medians", rows, unit, 1.0)
        plots[f"hub-figure-{figure}"] = ThesisPlot(text, picture, part=part)

    if rows := [row for row in figures.get("exchange", ()) if row["bytes"] == _SIZES[-1]]:
        (hub,) = (row["median_s"] for row in rows if row["way"] == "phub")
        times = {names[row["way"]]: [value / hub for value in row["seconds"]] for row in rows}
        text = "25 MB, 8 workers, times a hub's: " + ", ".join(
            f"{names[row['way']]} {row['median_s'] / hub:.2f}" for row in rows if row["way"] != "phub"
        )
        add("6-2", "exchange", "All-reduce of 25 MB by 8 workers over a hub's", text, times, "times the hub's")
    if rows := figures.get("workers", []):
        of_one = rows[0]["median_s"] / rows[0]["workers"]
        rates = {f"{row['workers']} workers": [row["workers"] * of_one / s for s in row["seconds"]] for row in rows}
        text = ", ".join(f"{row['workers']} workers {row['workers'] * of_one / row['median_s']:.2f}" for row in rows)
        add("6-5", "workers", "Vectors a second through a hub", f"times those of 2: {text}", rates, "times those of 2")
    if rows := figures.get("jobs", []):
        alone = rows[0]["median_s"]
        steps = {f"{row['jobs']} jobs": [value / alone for value in row["seconds"]] for row in rows}
        text = f"a step of each of 8 jobs takes {rows[-1]['median_s'] / alone:.2f} times one job's"
        add("6-9", "jobs", "A step by the number of jobs at one hub", text, steps, "times one job's")
    if rows := figures.get("racks", []):
        median = {(row["uplink_mbit"], row["way"]): row["median_s"] for row in rows}
        ways = {
            f"{row['uplink_mbit']} Mbit/s, {names[row['way']]}": [
                value / median[row["uplink_mbit"], "phub-2l"] for value in row["seconds"]
            ]
            for row in rows
        }
        text = "hubs as shards over a hub in each rack, by uplink: " + ", ".join(
            f"{median[uplink, 'phub'] / median[uplink, 'phub-2l']:.2f} at {uplink} Mbit/s" for uplink in _UPLINKS
        )
        add("6-10", "racks", "Two racks of 4 workers and a hub over phub-2l", text, ways, "times phub-2l's")
    return plots


def main() -> int:
    """Measure, record, compare with the bars."""
    path = results.RECORDS / "hub.json"
    figures = json.loads(path.read_text())["figures"] if path.exists() else {}
    wanted = [sys.argv[sys.argv.index("--only") + 1]] if "--only" in sys.argv else list(_PARTS)
    configuration = {
        "worker_mbit": _WORKER_MBIT, "hub_mbit": _HUB_MBIT, "rounds": _ROUNDS, "repeats": _REPEATS,
        "mxnet_key_bytes": _MXNET_KEY_BYTES,
    }  # fmt: skip
    code = 0
    for part in wanted:
        figures[part] = _PARTS[part]()
        code = record("hub", configuration, figures, _bars(figures), [part])
    return code


def _bars(figures: dict[str, Any]) -> list[Bar]:
    bars = []
    if "exchange" in figures:
        median = {row["way"]: row["median_s"] for row in figures["exchange"] if row["bytes"] == _SIZES[-1]}
        bars.append(Bar("25 MB: hub over its bound", median["phub"] / (8 * 25 / _WORKER_MBIT), at_most=1.10))
        bars += [
            Bar(f"25 MB: {way} over hub", median[way] / median["phub"], at_least=1.0 if way == "mxnet" else 1.6)
            for way in median
            if way != "phub"
        ]
    if "workers" in figures:
        rates = {row["workers"]: row["workers"] / row["median_s"] for row in figures["workers"]}
        bars.append(Bar("vectors a second, 8 workers over 2", rates[8] / rates[2], at_least=3.6))
    if "racks" in figures:
        seconds = {(row["uplink_mbit"], row["way"]): row for row in figures["racks"]}
        errors = [abs(row["predicted_s"] / row["median_s"] - 1) for row in figures["racks"] if "predicted_s" in row]
        same = [
            (seconds[uplink, "phub"]["median_s"] < seconds[uplink, "phub-2l"]["median_s"])
            == (seconds[uplink, "phub"]["predicted_s"] < seconds[uplink, "phub-2l"]["predicted_s"])
            for uplink in _UPLINKS
        ]
        bars += [
            Bar("racks: largest error of a predicted time", max(errors), at_most=0.15),
            Bar("racks: uplinks at which the faster of phub and phub-2l is predicted", sum(same), at_least=3),
            Bar(
                "racks, 100 Mbit/s: phub over phub-2l",
                seconds[100, "phub"]["median_s"] / seconds[100, "phub-2l"]["median_s"], at_least=1.5,
            ),
        ]  # fmt: skip
    if "hidden" in figures:
        off = max(abs(row["exposed_share"] - row["predicted_share"]) for row in figures["hidden"])
        bars.append(Bar("share of a step that is not hidden, measured less predicted", round(off, 4), at_most=0.1))
    if "jobs" in figures:
        median = {row["jobs"]: row["median_s"] for row in figures["jobs"]}
        bars.append(Bar("8 jobs: a step over one job's", median[8] / median[1], at_most=1.10))
    if "process" in figures:
        best = max(row["gbytes_per_s"] for row in figures["process"])
        bars.append(Bar("GB/s that one hub process receives", best, at_least=1.0))
    return bars


if __name__ == "__main__":
    sys.exit(main())
