"""MLfabric's arbiter in real jobs on a lab of 1/100 (Viswanathan and Akella 2020, 7): committed updates a second.

A server of its own and hosts with two workers each; links of 100 Mbit/s, one in ten of half that; a model of 1 MB that
every step reads and changes; computations of 160 ms, which one in ten takes twice (C1) or four times (C2). Beside it
the simulation of :mod:`benchmarks.transfers`, in which reads take the link, too. ``--hosts N``, ``--seconds N``,
``--only RULE``.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from benchmarks import transfers
from benchmarks.labs import BenchLab, lab
from benchmarks.record import Bar, record
from plink.model.rules.ordered import MAX_DELAY
from plink.model.transfers import arbiter

if TYPE_CHECKING:
    from benchmarks.thesis_plot import ThesisPlot

_APP = str(Path(__file__).parent / "timing" / "bounded_delay_app.py")
_BOUND, _WARM_UP_S, _SLOW_EVERY = 30, 10.0, 10
_RULES = ("asp", f"ordered:{_BOUND}:direct", f"ordered:{_BOUND}", "ssp:2", "bsp")
_COMPUTE = {"C1": 2, "C2": 4}


def _option(name: str, usual: int) -> int:
    return int(sys.argv[sys.argv.index(name) + 1]) if name in sys.argv else usual


_HOSTS, _SECONDS = _option("--hosts", 15), _option("--seconds", 60)
_ONLY = sys.argv[sys.argv.index("--only") + 1] if "--only" in sys.argv else ""


class SteadyLinks(transfers.Setting):
    """Links that stay what they are."""

    def capacities(self) -> Iterator[tuple[float, npt.NDArray[np.float64]]]:
        """Yield the same rates again and again."""
        rates = np.full(2 * transfers.HOSTS + 2, transfers.LINK_BYTES_S)
        for host in range(_SLOW_EVERY - 1, transfers.HOSTS, _SLOW_EVERY):
            rates[[host, transfers.HOSTS + host]] /= 2
        at_s = 0.0
        while True:
            yield at_s, rates
            at_s += 5.0


def simulated(compute: str) -> dict[str, float]:
    """Return committed updates a second by rule, of 15 hosts; reads are not shared."""
    result = {}
    for rule, bound, options in (
        ("asp", MAX_DELAY, {"min_transfer_s": np.inf}),
        (f"ordered:{_BOUND}:direct", _BOUND, {"min_transfer_s": np.inf}),
        (f"ordered:{_BOUND}", _BOUND, {}),
    ):
        rates = [transfers.LINK_BYTES_S] * (2 * transfers.HOSTS + 1)
        state = replace(arbiter.start(bound, rates), **options)  # type: ignore[arg-type]
        course = transfers.Simulation(SteadyLinks(compute, "N1", 0), state, reads=True).run(40.0)
        result[rule] = len(course.delays) / 30.0
    return result


def measured(bench: BenchLab, rule: str, times: int) -> dict[str, Any]:
    """Return what a job did after its warm-up."""
    before = set(bench.folder.glob(".plink/runs/*"))
    options = ("--stage-thresholds", "100:100", "--max-hosts", str(_HOSTS + 1), "--env", "OMP_NUM_THREADS=1")
    program = (_APP, "--seconds", str(_SECONDS), "--times", str(times), "--shards", str(2 * _HOSTS + 1))
    done = bench.plink("elastic", "run", "--hosts", "hosts.txt", "--rule", rule, *options, *program)
    if done.code:
        raise SystemExit(done.stderr[-2000:])
    (run,) = set(bench.folder.glob(".plink/runs/*")) - before
    log = [json.loads(line) for line in (run / "elastic.jsonl").read_text().splitlines()[1:]]
    partitions = (_HOSTS + 1) // 2
    if rule in ("bsp", "ssp:2"):
        clocks = [line["at"] for line in log if line["what"] == "iteration" and line["at"] > _WARM_UP_S]
        return {"committed_s": round((len(clocks) - 1) * 2 * _HOSTS / (clocks[-1] - clocks[0]), 2)}
    counted = [line for line in log if line["what"] == "traffic" and line["updates"] and line["at"] > _WARM_UP_S]
    first, last = counted[0], [line for line in counted if line["host"] == counted[0]["host"]][-1]
    differences = {
        key: (last["updates"][key] - first["updates"][key]) / partitions for key in ("total", "dropped", "unsent")
    }
    applied = (sum(last["updates"]["delays"]) - sum(first["updates"]["delays"])) / partitions
    ends = applied + differences["dropped"] + differences["unsent"]
    words = [sys.executable, "-m", "plink", "elastic", "summary", run.name, "--json"]
    summary = json.loads(subprocess.run(words, cwd=bench.folder, capture_output=True, check=True).stdout)
    return {
        "committed_s": round(applied / (last["at"] - first["at"]), 2),
        "dropped": round(differences["dropped"] / ends, 3), "unsent": round(differences["unsent"] / ends, 3),
        "mean_delay": round(differences["total"] / applied, 1), "largest_delay": last["updates"]["largest"],
        **{key: summary["updates"][key] for key in ("planned", "grouped", "lateness")},
    }  # fmt: skip


def _prepare(bench: BenchLab) -> None:
    """Write the hosts file, and slow one host in ten."""
    lines = Path(bench.hosts_file).read_text().splitlines()
    hosts = [line.replace(" slots=1", "") for line in lines if not line.startswith("#")]
    marked = [f"{hosts[0]} tier=reliable", *(f"{host} tier=transient slots=2" for host in hosts[1:])]
    comments = [line for line in lines if line.startswith("#")]
    (bench.folder / "hosts.txt").write_text("\n".join([*comments, *marked]) + "\n")
    for host in hosts[_SLOW_EVERY::_SLOW_EVERY]:
        bench.plink("lab", "shape", host.split()[0], "--rate", "50mbit", "--name", bench.name)


def thesis_plots(figures: dict[str, Any]) -> "dict[str, ThesisPlot]":
    """For docs/results/theses.md: committed updates a second."""
    from benchmarks.drawing import strips
    from benchmarks.thesis_plot import ThesisPlot

    rates = {f"{rule}, {name}": [row["committed_s"]] for name, rows in figures.items() for rule, row in rows.items()}
    heading, second = "Committed updates a second", f"{2 * _HOSTS} workers, a server with 100 Mbit/s, 1 MB; lab"
    picture = strips("mlfabric-lab", heading, second, rates, "updates a second")
    ordered = f"ordered:{_BOUND}"
    each = (
        f"{name}: {rows[ordered]['committed_s'] / rows['asp']['committed_s']:.2f} of `asp`, "
        f"{rows[ordered]['committed_s'] / rows['bsp']['committed_s']:.2f} of `bsp`"
        for name, rows in figures.items()
    )
    return {"mlfabric-lab": ThesisPlot("; ".join(each), picture)}


def main() -> int:
    """Run and record; the exit code."""
    figures: dict[str, Any] = {}
    with lab("--racks", "1", "--hosts-per-rack", str(_HOSTS + 1), "--host-rate", "100mbit") as bench:
        _prepare(bench)
        bench.use_reno()
        for compute, times in _COMPUTE.items():
            rows = figures[compute] = {}
            for rule in _RULES:
                if _ONLY in (rule, ""):
                    rows[rule] = measured(bench, rule, times)
                    print(compute, rule, rows[rule], flush=True)
            if _HOSTS == transfers.HOSTS and not _ONLY:
                for rule, committed_s in simulated(compute).items():
                    rows[rule]["simulated_s"] = round(committed_s, 2)
    if _ONLY:
        return 0
    bars = []
    ordered = f"ordered:{_BOUND}"
    for compute, rows in figures.items():
        gain = rows[ordered]["committed_s"] / rows["asp"]["committed_s"]
        bars.append(Bar(f"{compute}: {ordered} over asp", gain, at_least=2.0))
        bars += [
            Bar(f"{compute}: largest delay of {rule}", rows[rule]["largest_delay"], _BOUND)
            for rule in rows
            if rule.startswith("ordered")
        ]
        bars += [
            Bar(f"{compute}: {rule} over simulated", row["committed_s"] / row["simulated_s"], 1.15, 0.85)
            for rule, row in rows.items()
            if "simulated_s" in row
        ]
    configuration = {"hosts": _HOSTS, "seconds": _SECONDS, "partitions": (_HOSTS + 1) // 2}
    return record("ordered-lab", configuration, figures, bars)


if __name__ == "__main__":
    sys.exit(main())
