"""Autotune on the lab (PLink thesis, Figure 6.15): a host falls to a quarter of its rate in mid-run and recovers; the
same run with and without ``--autotune``; and a network that stays as it is. With ``--full`` also what
watching costs there.

The thesis shows flat aggregation on 8 hosts. Here racks' uplinks limit that, whatever one host does; on one rack Gloo's
own ring was as fast, so the crossover chose it, and there was nothing to tune.
"""

import json
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.labs import BenchLab, lab
from benchmarks.record import Bar, record
from benchmarks.thesis_plot import ThesisPlot
from plink.model.storage import read_document

ROOT = Path(__file__).parents[1]
_PROGRAM = str(ROOT / "benchmarks/timing/steps.py")
_SIZE = 8_000_000
_CUT_S, _RESTORED_S, _END_S = 30.0, 100.0, 150.0
_STEADY_S = 120.0 if "--full" in sys.argv else 50.0
_SLOW = "50mbit"
_PAIRS, _COST_S = 3, 20.0
_GAIN, _STEPS = 1.27, 12
_EVEN, _EVEN_STEPS = 1.05, 15
_LABS = {"2lha": ("--racks", "4", "--hosts-per-rack", "4")}


_TUNED, _WATCHED, _STOCK = ("--autotune",), ("--autotune", "--set", "autotune-threshold=0.99"), ()


def _run(bench: BenchLab, algo: str, more: tuple[str, ...], seconds: float, faults: bool) -> dict[str, Any]:
    """Return one job: its steps, when the host fell and recovered, and what the log has."""
    before = set(bench.folder.glob(".plink/runs/*"))
    words = ["--backend", algo, "--order", "2lha.json", *more]
    job = subprocess.Popen(
        [sys.executable, "-m", "plink", "launch", "--env", "OMP_NUM_THREADS=1", "--hosts",
         bench.hosts_file, *words, _PROGRAM, str(_SIZE), str(seconds)],
        cwd=bench.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    steps: list[tuple[float, float]] = []
    upcoming = [(_CUT_S, "shape"), (_RESTORED_S, "heal")] if faults else []
    assert job.stdout is not None
    for line in job.stdout:
        text = line.partition("] ")[2]
        if not text.startswith("{"):
            continue
        row = json.loads(text)
        steps.append((row["at_s"], row["s"]))
        if upcoming and row["at_s"] >= upcoming[0][0]:
            what = upcoming.pop(0)[1]
            done = bench.plink(
                "lab", what, *((_victim(bench), "--rate", _SLOW) if what == "shape" else ()), "--name", bench.name
            )
            if done.code:
                raise SystemExit(done.stderr)
    if job.wait():
        assert job.stderr is not None
        raise SystemExit(f"{algo}: the job ended with {job.returncode}: {job.stderr.read()[-2000:]}")
    (folder,) = set(bench.folder.glob(".plink/runs/*")) - before
    log = folder / "autotune.jsonl"
    rows = [json.loads(line) for line in log.read_text().splitlines()] if more else []
    log_rows = [
        {key: row[key] for key in row if key not in ("seen", "local_masters", "global_group", "groups")}
        for row in rows[1:]
    ]
    return {"steps": steps, "log": log_rows}


def _cost(bench: BenchLab, algo: str) -> dict[str, Any]:
    """Return the same job on a network that stays as it is, with and without, turn and turn about: steps a second."""
    rates: dict[str, list[float]] = {"with": [], "without": []}
    for pair in range(_PAIRS):
        for which in sorted(rates, reverse=bool(pair % 2)):
            steps = _run(bench, algo, _TUNED if which == "with" else _STOCK, _COST_S, False)["steps"]
            rates[which].append(round(len(steps) / steps[-1][0], 3))
    share = statistics.median(rates["with"]) / statistics.median(rates["without"])
    return {"steps_a_second": rates, "cost": round(1 - share, 4)}


def _victim(bench: BenchLab) -> str:
    return bench.names[5]


def _throughput(run: dict[str, Any], begin: float, end: float) -> float:
    """MB a second, the median step's."""
    return _SIZE / 1e6 / statistics.median(s for at, s in run["steps"] if begin <= at < end)


def _validate(with_it: dict[str, Any], without: dict[str, Any]) -> dict[str, Any]:
    slow = _throughput(without, _CUT_S + 5, _RESTORED_S)
    rates = [(row["at"], row["MB_s"]) for row in with_it["stretches"]]
    begun = next((k for k, row in enumerate(with_it["stretches"]) if row["action"] == "quicktune"), None)
    result: dict[str, Any] = {
        "steady_MB_s": round(_throughput(without, 5, _CUT_S), 3),
        "slow_MB_s": round(slow, 3),
        "tuned_MB_s": round(_throughput(with_it, _RESTORED_S - 20, _RESTORED_S), 3),
    }
    result["gain"] = round(result["tuned_MB_s"] / slow, 3)
    if begun is not None:
        # What comes after the recovery is the host's own doing.
        reached = [
            k - begun for k, (at, rate) in enumerate(rates) if k > begun and at < _RESTORED_S and rate >= _GAIN * slow
        ]
        result["steps_to_gain"] = reached[0] if reached else None
        retuned = [
            k for k, row in enumerate(with_it["stretches"]) if row["action"] == "quicktune" and row["at"] > _RESTORED_S
        ]
        later = range(retuned[0], len(rates)) if retuned else range(0)
        even = [k - retuned[0] for k in later if all(row["imbalance"] < _EVEN for row in with_it["stretches"][k:])]
        result["steps_to_even"] = even[0] if even else None
        result["recovered_MB_s"] = round(_throughput(with_it, _END_S - 15, _END_S), 3)
    return result


def _stretches(run: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the log by the clock of the steps: its stretches follow one another."""
    at, imbalance, installed, intervals = 0.0, 1.0, {0: 1.0}, []
    offset = run["steps"][-1][0] - run["log"][-1]["at_s"]
    for row in run["log"]:
        at = row["at_s"] + offset
        imbalance = installed.get(row["epoch"], imbalance)
        rate = round(row["bytes"] / row["seconds"] / 1e6, 3)
        intervals.append({"at": round(at, 2), "MB_s": rate, "imbalance": imbalance,
                      "action": row["action"], "reason": row["reason"]})  # fmt: skip
        if "imbalance" in row:
            installed[max(installed) + 1] = row["imbalance"]
    return intervals


def _prepare(bench: BenchLab) -> None:
    """A plan for two levels, ranks as the hosts are given."""
    names = [line.split()[0] for line in Path(bench.hosts_file).read_text().splitlines() if line[0] not in "#\n"]
    (bench.folder / "given.txt").write_text("".join(f"{name}\n" for name in names))
    for words in (
        ("probe", bench.hosts_file),
        ("cluster",),
        ("plan", "--algo", "2lha", "--size", "8MB", "--order", "given.txt", "--chunks", "64", "-o", "2lha.json"),
    ):
        run = bench.plink(*words)
        if run.code:
            raise SystemExit(run.stderr)


def thesis_plots(figures: dict[str, Any]) -> dict[str, ThesisPlot]:
    """For docs/results/theses.md."""
    from benchmarks.drawing import curves

    row = figures["2lha"]
    gained, even = (
        "never" if row.get(key) is None else f"after {row[key]} steps" for key in ("steps_to_gain", "steps_to_even")
    )
    text = (
        f"{row['gain']:.2f} times (from {row['slow_MB_s']:.2f} to {row['tuned_MB_s']:.2f} MB/s, "
        f"{row['steady_MB_s']:.2f} before), {_GAIN} times {gained}; even again {even}; "
        f"{row['steady_changes']} changes on a network that stays as it is"
    )
    every = 2.0  # seconds, a point the median step's
    series = {}
    for label, name in (("with Autotune", "with"), ("without", "without")):
        steps = row["steps_s"][name]
        parts = [
            [s for at, s in steps if begin <= at < begin + every] for begin in range(0, int(steps[-1][0]), int(every))
        ]
        rates = [(every * (k + 0.5), _SIZE / 1e6 / statistics.median(part)) for k, part in enumerate(parts) if part]
        series[label] = ([at for at, _ in rates], [rate for _, rate in rates])
    picture = curves(
        "figure-6-15", "Throughput while a host is slow, and after",
        f"all-reduces of {_SIZE // 1_000_000} MB by two levels, 16 hosts",
        series, "seconds", "MB/s", spans={"one host at a quarter of its rate": (_CUT_S, _RESTORED_S)}, points=False,
    )  # fmt: skip
    moved = [step for step in row["stretches"] if step["action"] not in ("watch", "wait")]
    table = ["| at, s | MB/s | action | reason |", "|---" * 4 + "|"]
    table += [f"| {step['at']:.0f} | {step['MB_s']:.2f} | {step['action']} | {step['reason']} |" for step in moved]
    return {"figure-6-15": ThesisPlot(text, picture, "\n".join(table))}


def main() -> int:
    """Run and record; the exit code. Words (2lha) measure these only, the rest is kept."""
    path = ROOT / "benchmarks/records/autotune.json"
    full, words = "--full" in sys.argv, [word for word in sys.argv[1:] if not word.startswith("--")]
    figures = read_document(path)["figures"] if path.exists() and words else {}
    for algo in words or _LABS:
        with lab("--seed", "5", *_LABS[algo]) as bench:
            _prepare(bench)
            without = _run(bench, algo, _WATCHED, _RESTORED_S + 10, True)  # after that both are alike
            tuned = _run(bench, algo, _TUNED, _END_S, True)
            tuned["stretches"] = _stretches(tuned)
            steady = _run(bench, algo, _TUNED, _STEADY_S, False)
            cost = _cost(bench, algo) if full else {}
        validated = _validate(tuned, without) | cost
        validated["steady_changes"] = sum(row["action"] not in ("watch", "wait") for row in steady["log"])
        print(algo, validated, flush=True)
        figures[algo] = validated | {
            "stretches": tuned["stretches"],
            "steps_s": {"with": tuned["steps"], "without": without["steps"]},
            "steady": [round(row["bytes"] / row["seconds"] / 1e6, 3) for row in steady["log"]],
        }
    return record(
        "autotune",
        {"labs": _LABS, "rate": "200mbit", "slow": _SLOW, "size_bytes": _SIZE,
         "steady_s": _STEADY_S, "cut_s": _CUT_S, "restored_s": _RESTORED_S, "end_s": _END_S},
        figures, _bars(figures), words or list(_LABS),
    )  # fmt: skip


def _bars(figures: dict[str, Any]) -> list[Bar]:
    bars = []
    for algo, row in figures.items():
        nan = float("nan")
        bars += [
            Bar(f"{algo}: times as fast as without, a host at a quarter", row["gain"], at_least=_GAIN),
            Bar(f"{algo}: stretches until that", _or(row.get("steps_to_gain"), nan), at_most=_STEPS),
            Bar(
                f"{algo}: stretches until even after recovery", _or(row.get("steps_to_even"), nan), at_most=_EVEN_STEPS
            ),
            Bar(f"{algo}: changes on a steady network", row["steady_changes"], at_most=0),
        ]
    return bars


def _or(value: float | None, other: float) -> float:
    return other if value is None else value


if __name__ == "__main__":
    sys.exit(main())
