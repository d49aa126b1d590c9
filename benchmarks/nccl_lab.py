"""NCCL between lab hosts that share one GPU: orders, collectives and sizes beside predictions, two labs.

Needs a GPU, and root. One command does all within ``--seconds`` (540): steps by importance, each left out where too
little time is left, each with what it took. What was measured is written after each cell and each step, to ``--folder``
with NCCL's own debug lines, and to the record at the end. ``--backend gloo`` runs the same steps without a GPU, with
Gloo in NCCL's place, on 4 hosts and small vectors; it writes no record. ``--tables`` prints the record's tables, for
docs/results/nccl.md. docs/nccl.md says what a bare GPU machine needs.
"""

import contextlib
import json
import os
import random
import shutil
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import results
from benchmarks.labs import BenchLab, lab
from benchmarks.record import Bar, packed, record
from plink.errors import PlinkError
from plink.features.order.algorithms import fabric_from
from plink.model.network import Network
from plink.model.order import read_order
from plink.model.units import format_bytes
from solvers.checking import CollectiveTiming, rank_correlation
from solvers.library_costs import fit_library_costs
from solvers.schedules.catalogue import Options
from solvers.simulation.cost import cost_by_model

_TIMING = Path(__file__).parent / "timing"
_OPERATIONS = ("all-gather", "reduce-scatter", "all-to-all", "send-recv")
_ALGORITHMS = {"nccl-ring": "Ring", "nccl-tree": "Tree", "nccl": None}
_BYTES, _RANKING_BYTES = (65_536, 262_144, 1_000_000, 4_000_000, 8_000_000, 64_000_000), 8_000_000
_DRY_BYTES = (4096, 16_384, 65_536, 262_144, 1_000_000)
_CALIBRATED_BY = ("plink's ring", "given", "random 1")  # orders to whose times costs are fitted, for others
_SMALL_BYTES = 1_000_000
_ORDERS, _DRY_ORDERS = 12, 6  # of which times are ranked
_FIRST_ORDERS = 5  # of which all sizes are timed
_SEED = 3
_MIN_STEP_S = 25.0  # a launch is begun only with so much time left


@dataclass
class Course:
    """Steps of the benchmark: what is left of its time, what each took, and what was measured so far."""

    end: float
    folder: Path
    figures: dict[str, Any] = field(default_factory=dict)
    steps: list[dict[str, Any]] = field(default_factory=list)

    @property
    def left_s(self) -> float:
        """Seconds that are left."""
        return self.end - time.monotonic()

    def timeout(self, seconds: float) -> tuple[str, str]:
        """Return the option of a launch that may take so long, or what is left."""
        return "--timeout", f"{max(1.0, min(seconds, self.left_s)):.0f}s"

    @contextlib.contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Time a step, and write what there is after it. A step that fails ends no other.

        :raises TimeoutError: too little time is left; whoever names steps stops there.
        """
        if self.left_s < _MIN_STEP_S:
            self.steps.append({"step": name, "seconds": 0.0, "outcome": "no time left"})
            raise TimeoutError(name)
        began, outcome = time.monotonic(), "done"
        try:
            yield
        except (PlinkError, ImportError, RuntimeError, OSError, ValueError, LookupError) as error:
            outcome = f"failed: {str(error)[-600:]}"
        finally:
            self.steps.append({"step": name, "seconds": round(time.monotonic() - began, 1), "outcome": outcome})
            print(f"{name}: {self.steps[-1]['seconds']} s, {outcome}", flush=True)
            (self.folder / "nccl-lab.json").write_text(packed({"steps": self.steps, "figures": self.figures}))


@dataclass(frozen=True)
class Bench:
    """A lab, the network that was measured there, and its orders: names of hosts, by the order's name."""

    course: Course
    lab: BenchLab
    backend: str
    network: Network
    orders: dict[str, tuple[str, ...]]

    def run(self, *words: str) -> None:
        """Run plink in the lab's folder.

        :raises RuntimeError: when it fails.
        """
        if words[0] == "launch" and "PYTHONPATH" in os.environ:  # where nothing is installed
            words = (words[0], "--env", f"PYTHONPATH={os.environ['PYTHONPATH']}", *words[1:])
        done = self.lab.plink(*words)
        if done.code:
            raise RuntimeError(f"plink {' '.join(words[:3])}: exit code {done.code}: {done.stderr}")

    def cells(self, order: str, op: str, algo: str | None, sizes: Sequence[int], repeats: int) -> list[dict[str, Any]]:
        """Return what is timed of an order, for each size, over all ranks."""
        hosts = self.network.hosts.names
        places = [self.orders[order].index(name) for name in hosts]
        everyone = list(range(len(hosts)))
        pairs = [everyone[k : k + 2] for k in range(0, len(everyone) - 1, 2)]
        groups = pairs if op == "send-recv" else [everyone]
        chosen = _ALGORITHMS.get(algo or "")
        return [
            {"order": order, "op": op, "algo": chosen, "name": algo or op, "size_bytes": size, "repeats": repeats,
             "places": places, "groups": groups}
            for size in sizes
        ]  # fmt: skip

    def time(self, cells: Sequence[dict[str, Any]], seconds: float) -> list[dict[str, Any]]:
        """Return the cells that could be timed, with their seconds and predicted ones, by one launch. Should this
        process be killed, ``launch.json`` and ``launch.jsonl`` of the folder have what was timed."""
        plan, result = self.course.folder / "launch.json", self.course.folder / "launch.jsonl"
        plan.write_text(json.dumps({"seconds": seconds, "cells": cells}))
        result.unlink(missing_ok=True)
        program = (str(_TIMING / "nccl_rank.py"), str(plan), str(result), self.backend)
        try:
            self.run("launch", "--hosts", "hosts.txt", "--order", "given", *self.course.timeout(seconds + 60), *program)
        except RuntimeError:  # what was timed before it failed is kept
            if not result.exists():
                raise
        fabric, rows = fabric_from(self.network), []
        for number, seconds_of in map(json.loads, result.read_text().splitlines()):
            cell = cells[number]
            row = {key: cell[key] for key in ("order", "name", "size_bytes")} | {"seconds": seconds_of}
            if cell["name"] in _ALGORITHMS:
                n = len(cell["places"])
                cost_of = cost_by_model(cell["name"], n, Options(), fabric, cell["size_bytes"], "contention")
                index = {name: k for k, name in enumerate(self.network.hosts.names)}
                hosts = np.array([index[name] for name in self.orders[cell["order"]]], dtype=np.intp)
                row["predicted_s"] = round(float(cost_of(hosts)) / 1e6, 6)
            rows.append(row)
        return rows


def calibrated(bench: Bench, rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the small all-reduces in other orders than those that costs are fitted to, with what is predicted by these
    (``calibrated_s``)."""
    index = {name: k for k, name in enumerate(bench.network.hosts.names)}
    timings = [
        CollectiveTiming(
            row["name"],
            Options(),
            np.array([index[name] for name in bench.orders[row["order"]]], dtype=np.intp),
            row["size_bytes"],
            tuple(row["seconds"]),
        )
        for row in rows
    ]
    fitted = [timing for row, timing in zip(rows, timings, strict=True) if row["order"] in _CALIBRATED_BY]
    links = fabric_from(bench.network)
    fabric = replace(links, library_costs=fit_library_costs(links, fitted, "contention", ""))
    return [
        row | {"calibrated_s": round(float(timing.cost_on(fabric, "contention")(fabric)) / 1e6, 6)}
        for row, timing in zip(rows, timings, strict=True)
        if row["order"] not in _CALIBRATED_BY and row["size_bytes"] <= _SMALL_BYTES
    ]


def main_cells(bench: Bench, sizes: Sequence[int]) -> list[dict[str, Any]]:
    """Return the cells of an even or uneven lab, the most important first: all-reduces of 8 MB in all orders, of less
    in five, other collectives in plink's and the given order, the largest vectors. Those of an order come together, as
    it makes its communicators anew."""
    small, large = sizes[:-1], sizes[-1:]
    cells = []
    for number, order in enumerate(bench.orders):
        for algo in _ALGORITHMS if number < _FIRST_ORDERS else ("nccl-ring", "nccl-tree"):
            cells += bench.cells(order, "all-reduce", algo, small[-1:], 1)
            if number < _FIRST_ORDERS:  # 4 MB, which takes as long as all less together, in two
                cells += bench.cells(order, "all-reduce", algo, small[: -1 if number < 2 else -2], 2)
    for order in ("plink's ring", "given"):
        for op in _OPERATIONS:
            cells += bench.cells(order, op, None, small[::2], 1)
    for algo in _ALGORITHMS:
        cells += bench.cells("plink's ring", "all-reduce", algo, large, 1)
    return cells


def mesh_cells(bench: Bench, size: int) -> list[dict[str, Any]]:
    """Return the traffic of a mesh of four stages with four replicas each (two by two in a small lab): all-reduces of
    the replicas, all-to-alls of the same groups, and what stages send to the next."""
    n = len(bench.network.hosts)
    width = 4 if n >= 16 else 2
    blocks = [list(range(k, k + width)) for k in range(0, n - width + 1, width)]
    # Stages 0 -> 1 and 2 -> 3: a rank sends to that of the same replica.
    stages = [
        [a, b]
        for before, after in zip(blocks[::2], blocks[1::2], strict=False)
        for a, b in zip(before, after, strict=True)
    ]
    kinds = {
        "data-parallel": ("all-reduce", blocks),
        "experts": ("all-to-all", blocks),
        "stages": ("send-recv", stages),
    }
    return [
        cell | {"name": name, "groups": groups}
        for order in ("given", "plink's ring")
        for name, (op, groups) in kinds.items()
        for cell in bench.cells(order, op, None, [size], 2)
    ]


def program_seconds(bench: Bench, order: str, sizes: Sequence[int], *options: str) -> dict[str, float]:
    """Return the median seconds by size of an unmodified program, in an order, with these options of a launch."""
    order_file, result = bench.lab.folder / "order.txt", bench.lab.folder / "program.json"
    order_file.write_text("".join(f"{name}\n" for name in bench.orders[order]))
    program = (str(_TIMING / "nccl_program.py"), str(result), bench.backend, "2", *map(str, sizes))
    result.unlink(missing_ok=True)
    try:
        timeout = bench.course.timeout(120)
        bench.run("launch", "--hosts", "hosts.txt", "--order", str(order_file), *timeout, *options, *program)
    except RuntimeError as error:  # a verdict of --verify-nccl does not undo the times
        if not result.exists():
            raise
        print(error, flush=True)
    return dict(json.loads(result.read_text()))


def _prepared(course: Course, name: str, bench: BenchLab, rack_sizes: Sequence[int], backend: str) -> Bench | None:
    """Probe hosts (so many of each rack), and order them; None when that fails."""
    taken, lines = dict.fromkeys(range(len(rack_sizes)), 0), []
    racks = {place.name: place.rack for place in bench.blueprint.places}
    for line in Path(bench.hosts_file).read_text().splitlines():
        rack = racks.get(line.split()[0]) if line and not line.startswith("#") else None
        if rack is None or taken[rack] < rack_sizes[rack]:
            lines.append(line)
            taken |= {} if rack is None else {rack: taken[rack] + 1}
    (bench.folder / "hosts.txt").write_text("\n".join(lines) + "\n")
    with course.step(f"{name}: probe and order"):
        for words in (
            ("probe", "hosts.txt", "--count", "1000"),
            *(("reorder", "--algo", algo, "--seed", "0", "-o", f"{algo}.order") for algo in _ALGORITHMS),
        ):
            done = bench.plink(*words)
            if done.code:
                raise RuntimeError(f"plink {words[0]}: {done.stderr}")
        network = bench.network(".plink/network.json")
        by_name = {"given": tuple(network.hosts.names)}
        for algo, order in zip(_ALGORITHMS, ("plink's ring", "plink's tree", "plink's"), strict=True):
            by_name[order] = tuple(read_order(bench.folder / f"{algo}.order").hosts)
        rng = random.Random(_SEED)
        for k in range(1, (_DRY_ORDERS if backend == "gloo" else _ORDERS) - len(by_name) + 1):
            by_name[f"random {k}"] = tuple(rng.sample(network.hosts.names, len(network.hosts)))
        return Bench(course, bench, backend, network, by_name)
    return None


def run_lab(
    course: Course, name: str, bench: BenchLab, rack_sizes: Sequence[int], backend: str, seconds: float
) -> None:
    """Run a lab's steps; ``seconds`` is the share of the time for its main launch."""
    is_dry = backend == "gloo"
    prepared = _prepared(course, name, bench, rack_sizes, backend)
    if prepared is None:
        return
    figures: dict[str, Any] = course.figures.setdefault(name, {})
    sizes = _DRY_BYTES if is_dry else _BYTES
    programs = figures.setdefault("programs", {})
    with course.step(f"{name}: orders, algorithms, sizes"):
        share = max(_MIN_STEP_S, min(seconds, course.left_s - _MIN_STEP_S))
        figures["cells"] = prepared.time(main_cells(prepared, sizes), share)
    with course.step(f"{name}: small vectors, calibrated"):
        figures["calibrated"] = calibrated(prepared, [row for row in figures["cells"] if row["name"] in _ALGORITHMS])
    with course.step(f"{name}: a program of NCCL's"):
        verify = () if is_dry else ("--verify-nccl",)
        programs["NCCL, plink's ring order"] = program_seconds(prepared, "plink's ring", sizes[:-1], *verify)
    # Debug lines of every rank, for tests of the parser.
    shutil.make_archive(str(course.folder / f"runs-{name}"), "gztar", bench.folder / ".plink" / "runs")
    with course.step(f"{name}: mesh"):
        share = min(60.0, course.left_s - _MIN_STEP_S / 2)
        figures["mesh"] = prepared.time(mesh_cells(prepared, 250_000 if is_dry else 4_000_000), share)
    for backend_name in ("2lha",) if name == "uneven" else ("ring", "2lha"):
        with course.step(f"{name}: --backend {backend_name}"):
            options = ("--backend", backend_name, *(() if is_dry else ("--env", "PLINK_STAGED=1")))
            programs[f"--backend {backend_name}"] = program_seconds(prepared, "plink's ring", sizes[:-1], *options)


def bars_of(figures: dict[str, Any]) -> list[Bar]:
    """Return the bars of docs/results/nccl.md, for what was measured of them."""
    bars = []
    for name, lab_figures in figures.items():
        for algo in _ALGORITHMS:
            small = [row for row in lab_figures.get("calibrated", []) if row["name"] == algo]
            if small:
                errors = [abs(row["calibrated_s"] / statistics.median(row["seconds"]) - 1) for row in small]
                bars.append(Bar(f"{name}: {algo}: largest error, calibrated, up to 1 MB", max(errors), 0.2))
        rows = [row for row in lab_figures.get("cells", []) if row["size_bytes"] == _RANKING_BYTES]
        for algo, order, gain in (("nccl-ring", "plink's ring", 2.8), ("nccl-tree", "plink's tree", 2.1)):
            times = {
                row["order"]: (row["predicted_s"], statistics.median(row["seconds"]))
                for row in rows
                if row["name"] == algo
            }
            if len(times) > 2:
                predicted, measured = zip(*times.values(), strict=True)
                error = max(abs(a / b - 1) for a, b in times.values())
                bars.append(
                    Bar(
                        f"{name}: {algo}: Spearman of {len(times)} orders",
                        rank_correlation(predicted, measured).spearman,
                        at_least=0.95,
                    )
                )
                bars.append(Bar(f"{name}: {algo}: largest error of a prediction of 8 MB", error, 0.1))
            if name == "even" and {order, "given"} <= set(times):
                bars.append(
                    Bar(f"{name}: {algo}: given over {order}", times["given"][1] / times[order][1], at_least=gain)
                )
    return bars


def tables(document: dict[str, Any]) -> str:
    """Return the tables of a record, in Markdown: seconds measured (predicted)."""
    lines = []
    for name, lab_figures in document["figures"].items():
        cells: dict[str, dict[tuple[str, int], str]] = {}
        for row in lab_figures.get("cells", []) + lab_figures.get("mesh", []):
            predicted = f" ({row['predicted_s']:.3f})" if "predicted_s" in row else ""
            text = f"{statistics.median(row['seconds']):.3f}{predicted}"
            cells.setdefault(row["name"], {})[row["order"], row["size_bytes"]] = text
        for kind, times in cells.items():
            sizes = sorted({size for _, size in times})
            lines += [
                f"\n{name} racks, {kind}:\n",
                f"| order | {' | '.join(map(format_bytes, sizes))} |",
                "|---" * (len(sizes) + 1) + "|",
            ]
            for order in dict.fromkeys(order for order, _ in times):
                lines.append(f"| {order} | {' | '.join(times.get((order, size), '') for size in sizes)} |")
        programs = lab_figures.get("programs", {})
        sizes_of = sorted({size for times in programs.values() for size in times}, key=int)
        if programs:
            lines += [
                f"\n{name} racks, an unmodified program:\n",
                f"| by | {' | '.join(format_bytes(int(size)) for size in sizes_of)} |",
                "|---" * (len(sizes_of) + 1) + "|",
            ]
            lines += [
                f"| {by} | {' | '.join(f'{times[size]:.3f}' for size in sizes_of)} |" for by, times in programs.items()
            ]
    return "\n".join(lines).strip() + "\n"


def _option(name: str, usual: str) -> str:
    return sys.argv[sys.argv.index(name) + 1] if name in sys.argv else usual


def main() -> int:
    """Run and record; the exit code."""
    if "--tables" in sys.argv:
        print(tables(json.loads((results.RECORDS / "nccl-lab.json").read_text())))
        return 0
    backend, seconds = _option("--backend", "nccl"), float(_option("--seconds", "540"))
    is_dry = backend == "gloo"
    course = Course(time.monotonic() + seconds, Path(_option("--folder", "build/nccl-lab")).resolve())
    course.folder.mkdir(parents=True, exist_ok=True)
    # The uneven lab has hosts that no rank runs on.
    labs = (
        {"even": ((2, 2), (2, 2)), "uneven": ((2, 3), (3, 1))}
        if is_dry
        else {"even": ((4, 4), (4, 4, 4, 4)), "uneven": ((4, 7), (7, 5, 3, 1))}
    )
    shares = {"even": 0.4, "uneven": 0.2}
    try:
        for name, ((racks, per_rack), rack_sizes) in labs.items():
            shape = ("--racks", str(racks), "--hosts-per-rack", str(per_rack), "--seed", str(_SEED))
            began = time.monotonic()
            with lab(*shape, *(() if is_dry else ("--gpu",)), suffix=f"-{name[0]}") as bench:
                course.steps.append(
                    {"step": f"{name}: lab up", "seconds": round(time.monotonic() - began, 1), "outcome": "done"}
                )
                run_lab(course, name, bench, rack_sizes, backend, shares[name] * seconds)
    except (TimeoutError, SystemExit) as error:  # the second: a lab that did not come up
        print(f"the benchmark ends early ({error}); what was measured is kept", flush=True)
        course.steps.append({"step": "the rest", "seconds": 0.0, "outcome": str(error)})
    configuration = {"backend": backend, "seconds": seconds, "labs": labs, "seed": _SEED, "steps": course.steps}
    if is_dry:
        return 0 if all(step["outcome"] == "done" for step in course.steps) else 1
    missed = record("nccl-lab", configuration, course.figures, bars_of(course.figures))
    shutil.copy(results.RECORDS / "nccl-lab.json", course.folder / "record.json")
    return missed


if __name__ == "__main__":
    sys.exit(main())
