"""Elastic jobs on the lab (Harlap thesis, 4.5.3 to 4.5.5): the three stages beside a traditional parameter server, jobs
of 4 to 16 hosts, hosts that come and go in mid-run, and everything that can be killed.

Words (stages, scaling, elastic, faults) measure these only, without any all but faults; what is kept of the rest stays.
``--full``: all four, and three rounds of 24 iterations instead of two of 12.
"""

import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.elastic_plots import thesis_plots as thesis_plots  # for benchmarks/theses.py
from benchmarks.labs import BenchLab, lab
from benchmarks.record import Bar, record
from plink.model.hosts import Hosts, read_hosts, render_hosts
from plink.model.storage import read_document

ROOT = Path(__file__).parents[1]
_MF = str(ROOT / "examples/elastic_mf.py")
_LAB = ("--racks", "4", "--hosts-per-rack", "4", "--host-rate", "100mbit", "--uplink-rate", "400mbit", "--seed", "5")
_WAITING = str(ROOT / "benchmarks/timing/waiting_app.py")
_FULL = "--full" in sys.argv
_ROUNDS, _CLOCKS = (3, 24) if _FULL else (2, 12)
_SETUPS = {  # reliable hosts, and what else is asked for
    "traditional": (16, ()),
    "stage 1": (1, ("--stage-thresholds", "100:100")),
    "stage 2": (1, ("--stage-thresholds", "1:100")),
    "stage 3": (1, ("--stage-thresholds", "1:14")),
    "stage 1, 2 reliable": (2, ("--stage-thresholds", "100:100")),
    "stage 1, 4 reliable": (4, ("--stage-thresholds", "100:100")),
    "stage 1, 8 reliable": (8, ("--stage-thresholds", "100:100")),
    "stage 2, 8 reliable": (8, ("--stage-thresholds", "0.5:100")),
    "stage 3, 8 reliable": (8, ("--stage-thresholds", "0.2:0.5")),
}
_MAIN = ("traditional", "stage 1", "stage 2", "stage 3")
_SCALES = {  # as in Figure 4.14: hosts, reliable ones, and what else is asked for
    4: (4, ()),
    8: (4, ("--stage-thresholds", "1:100")),
    16: (1, ("--stage-thresholds", "1:14")),
}
_WAIT_S, _SCALE_CLOCKS = 0.1, 8
_SIZES = ("--users", "6000", "--movies", "2000", "--rank", "31", "--count", "100000", "--shards", "48")
_STAGE_3, _STALL, _EVICTION, _SAME, _DETECTED_S = 1.10, 1.10, 1.13, 0.01, 2.0
_FAULT_CLOCKS = 70


@dataclass
class ElasticRun:
    """One run that is watched. ``at``: what is done when an iteration has begun, once."""

    bench: BenchLab
    hosts: Hosts
    words: tuple[str, ...]
    app: tuple[str, ...]
    at: dict[int, Callable[["ElasticRun"], None]] = field(default_factory=dict)
    program: str = _MF
    log: list[dict[str, Any]] = field(default_factory=list)
    id: str = ""
    failed_at: float | None = None  # when it was first in the log that a host has failed
    process: subprocess.Popen[str] | None = None

    def run(self) -> dict[str, Any]:
        """To its end; the iterations' seconds and what the log has."""
        folder = self.bench.folder
        (folder / "hosts.txt").write_text(render_hosts(self.hosts))
        before = set(folder.glob(".plink/runs/*"))
        self.process = process = subprocess.Popen(
            [sys.executable, "-m", "plink", "elastic", "run", "--env", "OMP_NUM_THREADS=1",
             "--hosts", "hosts.txt", "--timeout", "5m", *self.words, self.program, *self.app],
            cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        while process.poll() is None:
            time.sleep(0.05)
            new = set(folder.glob(".plink/runs/*")) - before
            path = next((run / "elastic.jsonl" for run in new if (run / "elastic.jsonl").exists()), None)
            if path is None:
                continue
            self.id = path.parent.name
            self.log = [json.loads(line) for line in path.read_text().splitlines()[1:] if line.endswith("}")]
            if self.failed_at is None and any(line.get("event") == "failed" for line in self.log):
                self.failed_at = time.monotonic()
            iteration = max((line["iteration"] for line in self.log if line["what"] == "iteration"), default=-1)
            for number in [number for number in self.at if iteration >= number]:
                self.at.pop(number)(self)
        assert process.stderr is not None
        if process.returncode:
            raise SystemExit(f"{self.words} {self.app}: {process.stderr.read()[-2000:]}")
        process.stderr.close()
        self.log = [json.loads(line) for line in path.read_text().splitlines()[1:]]  # type: ignore[union-attr]
        return {"seconds": self.seconds(), "events": [line for line in self.log if line["what"] in _EVENTS]}

    def seconds(self) -> dict[int, float]:
        """By iteration; of one that was done twice, the last."""
        return {line["iteration"]: line["seconds"] for line in self.log if line["what"] == "iteration"}

    def plink(self, *words: str) -> None:
        """A command beside it."""
        done = self.bench.plink(*words)
        if done.code:
            raise SystemExit(done.stderr)

    def child(self, pattern: str) -> int:
        """Return a process that the job itself started on this machine."""
        assert self.process is not None
        for children in Path(f"/proc/{self.process.pid}/task").glob("*/children"):
            for pid in map(int, children.read_text().split()):
                if pattern in Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " "):
                    return pid
        raise SystemExit(f"the job has no {pattern}")

    def pid(self, name: str, pattern: str) -> int:
        """Of a process in a lab host's namespace."""
        for pid in _pids(self.bench, name):
            with contextlib.suppress(OSError):
                if pattern in Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " "):
                    return pid
        raise SystemExit(f"no {pattern} on {name}")


_EVENTS = ("host", "stage", "rolled back", "controller", "checkpoint", "end")


def _pids(bench: BenchLab, name: str) -> list[int]:
    """Everything that runs on a lab host."""
    words = ["ip", "netns", "pids", f"plink.{bench.name}.{name}"]
    return [int(pid) for pid in subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()]


def _tiers(bench: BenchLab, reliable: int, number: int = 16) -> Hosts:
    """Return the lab's hosts as they are given, the first so many reliable."""
    hosts = read_hosts(bench.hosts_file)
    members = tuple(
        replace(host, tier="reliable" if place < reliable else "transient")
        for place, host in enumerate(hosts.members[:number])
    )
    return replace(hosts, members=members)


def _median(seconds: dict[int, float], since: int = 3) -> float:
    return statistics.median(value for number, value in seconds.items() if number >= since)


def _stages(bench: BenchLab) -> dict[str, Any]:
    """Turn and turn about; a short run has those that bars are of twice, the others once."""
    samples: dict[str, list[float]] = {name: [] for name in _SETUPS}
    raw: dict[str, list[dict[int, float]]] = {name: [] for name in _SETUPS}
    for turn in range(_ROUNDS):
        for name in list(_SETUPS)[:: 1 if turn % 2 == 0 else -1]:
            if turn and not _FULL and name not in _MAIN:
                continue
            reliable, words = _SETUPS[name]
            job = ElasticRun(
                bench, _tiers(bench, reliable), (*words, "--max-hosts", "32"),
                ("--clocks", str(_CLOCKS), *_SIZES),
            )  # fmt: skip
            seconds = job.run()["seconds"]
            samples[name].append(_median(seconds))
            raw[name].append(seconds)
            print(name, round(samples[name][-1], 3), flush=True)
    medians = {name: statistics.median(values) for name, values in samples.items()}
    ratios = {name: round(value / medians["traditional"], 3) for name, value in medians.items()}
    return {"seconds": medians, "ratios": ratios, "raw": raw}


def _scaling(bench: BenchLab) -> dict[str, Any]:
    """4, 8 and 16 hosts, whose work is to wait: two cores cannot do the work of 16 hosts (Figure 4.14)."""
    raw: dict[int, dict[int, float]] = {}
    for hosts, (reliable, words) in _SCALES.items():
        job = ElasticRun(
            bench, _tiers(bench, reliable, hosts), (*words, "--max-hosts", "32"),
            ("--clocks", str(_SCALE_CLOCKS), "--wait", str(_WAIT_S)), program=_WAITING,
        )  # fmt: skip
        raw[hosts] = job.run()["seconds"]
        print(hosts, raw[hosts], flush=True)
    seconds = {hosts: _median(times, 2) for hosts, times in raw.items()}
    ideal = {hosts: seconds[4] * 4 / hosts for hosts in seconds}
    return {"seconds": seconds, "ideal": ideal, "raw": raw}


@dataclass(frozen=True)
class _Scenario:
    """12 hosts join 4 and are warned: iterations in all, and those after which it is said. ``wait_s``: the work on a
    shard is to wait for so long, as on hosts with cores of their own, instead of factors of ``rank``."""

    rank: int
    clocks: int
    add: int
    evict: int
    wait_s: float | None = None

    @property
    def program(self) -> str:
        return _MF if self.wait_s is None else _WAITING

    @property
    def app(self) -> tuple[str, ...]:
        clocks = ("--clocks", str(self.clocks))
        if self.wait_s is not None:
            return ("--wait", str(self.wait_s), *clocks)
        return (*_SIZES[:4], "--rank", str(self.rank), *_SIZES[6:], *clocks)


_SHORT, _LONG, _WAITED = _Scenario(31, 50, 10, 34), _Scenario(255, 36, 8, 24), _Scenario(0, 44, 8, 30, wait_s=0.05)
_LONG_ROUNDS = 3 if _FULL else 1
_STALLS = ("worst_while_adding", "worst_afterwards", "eviction")


def _elastic(bench: BenchLab) -> dict[str, Any]:
    """4 hosts; 12 more, which are warned later (Figure 4.15). With iterations of under a second, beside an undisturbed
    job; with such of some seconds, as the thesis has them; and with work that leaves the cores to what plink does."""
    factors = bench.folder / "factors"
    calm = ElasticRun(
        bench, _tiers(bench, 1, 4), ("--max-hosts", "32"), (*_SHORT.app, "--save", f"{factors}-0.npz")
    ).run()
    result = _come_and_go(bench, _SHORT, "--save", f"{factors}-1.npz")
    undisturbed, disturbed = np.load(f"{factors}-0.npz"), np.load(f"{factors}-1.npz")
    rounds = sorted((_come_and_go(bench, _LONG) for _ in range(_LONG_ROUNDS)), key=lambda run: float(run["eviction"]))
    return {
        **result, "undisturbed": calm["seconds"],
        "largest_difference": float(max(abs(undisturbed[key] - disturbed[key]).max() for key in ("users", "movies"))),
        "long": rounds[len(rounds) // 2], "waiting": _come_and_go(bench, _WAITED),
        "each": [{key: run[key] for key in _STALLS} for run in rounds],
    }  # fmt: skip


def _come_and_go(bench: BenchLab, scenario: _Scenario, *more: str) -> dict[str, Any]:
    every = _tiers(bench, 1)
    (bench.folder / "more.txt").write_text(render_hosts(replace(every, members=every.members[4:])))
    names = [host.name for host in every.members[4:]]
    job = ElasticRun(
        bench, _tiers(bench, 1, 4), ("--max-hosts", "32"), (*scenario.app, *more), program=scenario.program,
        at={
            scenario.add: lambda job: job.plink("elastic", "add", "last", "--hosts", "more.txt"),
            scenario.evict: lambda job: job.plink("elastic", "evict", "last", *names, "--in", "60s"),
        },
    )  # fmt: skip
    summary = job.run()
    seconds = summary["seconds"]
    lines = [line for line in job.log if line["what"] == "iteration" and line["iteration"] >= 3]
    took_over = next(line["iteration"] for line in lines if line["workers"] == len(every))
    # Until two iterations after the last of them was gone: what they served moves when their workers have ended.
    ends = [line for line in job.log if line["what"] == "host" and line["event"] in ("left", "failed")]
    gone = next((line["iteration"] for line in lines if line["at"] >= ends[-1]["at"]), scenario.clocks)
    failed = [line["host"] for line in ends if line["event"] == "failed"]
    if failed or took_over + 6 > scenario.evict - 4 or gone + 5 > scenario.clocks:
        raise SystemExit(
            f"{failed} failed, all had begun at iteration {took_over}, all were gone at {gone}: {scenario}"
        )
    usual = statistics.median(seconds[number] for number in range(3, scenario.add + 1))
    adding = [seconds[number] for number in range(scenario.add + 1, took_over + 1)]
    afterwards = [seconds[number] for number in range(took_over + 1, took_over + 6)]
    large = statistics.median(seconds[number] for number in range(scenario.evict - 4, scenario.evict))
    after = statistics.median(seconds[number] for number in range(gone + 3, scenario.clocks - 1))
    worst = max((seconds[number], number) for number in range(scenario.evict, gone + 3))
    return {
        "seconds": seconds, "events": summary["events"], "took_over": took_over, "left": gone, "usual_s": usual,
        "worst_while_adding": round(max(adding, default=usual) / usual, 3),
        "worst_afterwards": round(max(afterwards) / large, 3),
        "afterwards_beside_before": round(max(afterwards) / usual, 3), "with_16_s": large,
        "after_s": after, "eviction_s": worst[0], "eviction_iteration": worst[1],
        "eviction": round(worst[0] / max(large, after), 3),
        "rolled_back": sum(line["what"] == "rolled back" for line in job.log),
    }  # fmt: skip


def _faults(bench: BenchLab) -> dict[str, Any]:
    """Return one run for each; its last objective beside the undisturbed one, when the loss was found, what was
    redone."""
    hosts = _tiers(bench, 1, 8)
    names = hosts.names
    words = ("--max-hosts", "16", "--checkpoint", str(bench.folder / "checkpoints"), "--checkpoint-every", "2s")
    app = (*_SIZES, "--clocks", str(_FAULT_CLOCKS))

    def several(*some: str) -> Callable[[ElasticRun], None]:
        def kill(job: ElasticRun) -> None:
            pids = [job.pid(name, "elastic.node") for name in some]
            for pid in pids:
                os.kill(pid, signal.SIGKILL)

        return kill

    def frozen(name: str) -> Callable[[ElasticRun], None]:
        def freeze(job: ElasticRun) -> None:
            pids = _pids(bench, name)
            for pid in pids:
                os.kill(pid, signal.SIGSTOP)
            threading.Timer(10, thaw, [pids]).start()

        def thaw(pids: list[int]) -> None:
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)

        return freeze

    def rack(name: str) -> str:
        return f"rack{bench.racks[bench.names.index(name)]}"

    def cut(*words: str) -> Callable[[ElasticRun], None]:
        def does(job: ElasticRun) -> None:
            job.plink("lab", "cut", *words, "--name", bench.name)
            threading.Timer(10, lambda: job.plink("lab", "heal", "--name", bench.name)).start()

        return does

    def controller(job: ElasticRun) -> None:
        os.kill(job.child("runners.elastic.controller"), signal.SIGKILL)

    other = next(rack(name) for name in names if rack(name) != rack(names[0]))
    # With 7 transient hosts the first four of them serve.
    faults: dict[str, Callable[[ElasticRun], None] | None] = {
        "undisturbed": None, "an ActivePS": several(names[1]), "half of the transient hosts": several(*names[1:5]),
        "all transient hosts": several(*names[1:]), "a worker": several(names[7]), "the controller": controller,
        "the reliable host": several(names[0]), "a host frozen for 10 s": frozen(names[2]),
        "a rack cut off for 10 s": cut(rack(names[1])),
        "two racks cut off from each other for 10 s": cut(rack(names[0]), "--from", other),
    }  # fmt: skip
    rows: dict[str, Any] = {}
    for name, does in faults.items():
        began = [0.0]

        def fault(
            job: ElasticRun, does: Callable[[ElasticRun], None] | None = does, began: list[float] = began
        ) -> None:
            assert does
            does(job)
            began[0] = time.monotonic()

        job = ElasticRun(bench, hosts, words, app, at={20: fault} if does else {})
        summary = job.run()
        iterations = [line for line in job.log if line["what"] == "iteration"]
        objectives = [line["objective"] for line in iterations if line["objective"]]
        rows[name] = {
            "found_s": None if job.failed_at is None else round(job.failed_at - began[0], 2),
            "twice": len(iterations) - len({line["iteration"] for line in iterations}),
            "objective": objectives[-1], "seconds": round(job.log[-1]["seconds"], 1),
            "redone": [line["redone"] for line in job.log if line["what"] == "rolled back"],
            "lost": [line["why"] for line in job.log if line["what"] == "host" and line["event"] == "failed"],
            "events": summary["events"],
        }  # fmt: skip
        rows[name]["off"] = abs(objectives[-1] / rows["undisturbed"]["objective"] - 1)
        print(name, {key: value for key, value in rows[name].items() if key != "events"}, flush=True)
    return rows


def _brief(figures: dict[str, Any]) -> dict[str, Any]:
    """Without what is long."""
    return {
        key: _brief(value) if isinstance(value, dict) else value
        for key, value in figures.items()
        if key not in ("raw", "seconds", "events", "undisturbed")
    }


def main() -> int:
    """Run and record; the exit code."""
    path = ROOT / "benchmarks/records/elastic.json"
    parts = {"stages": _stages, "scaling": _scaling, "elastic": _elastic, "faults": _faults}
    words = [word for word in sys.argv[1:] if not word.startswith("--")]
    # What a short run leaves out is kept as it was recorded.
    figures: dict[str, Any] = read_document(path)["figures"] if path.exists() and (words or not _FULL) else {}
    wanted = words or (list(parts) if _FULL else ["stages", "scaling", "elastic"])
    for name in wanted:
        with lab(*_LAB) as bench:
            figures[name] = parts[name](bench)
        print(name, _brief(figures[name]))
    settings = {
        "lab": _LAB, "sizes": _SIZES, "clocks": _CLOCKS, "rounds": _ROUNDS,
        "elastic": [asdict(course) for course in (_SHORT, _LONG, _WAITED)],
        "elastic_rounds": _LONG_ROUNDS,
    }  # fmt: skip
    return record("elastic", settings, figures, _bars(figures), wanted)


def _bars(figures: dict[str, Any]) -> list[Bar]:
    bars = []
    if ratios := figures.get("stages", {}).get("ratios"):
        bars.append(Bar("stage 3: an iteration beside the traditional server's", ratios["stage 3"], at_most=_STAGE_3))
    if elastic := figures.get("elastic"):
        for of, some in (("8 MB", elastic.get("long")), ("1 MB", elastic)):
            if some:
                bars += [
                    Bar(
                        f"{of}: the longest iteration while hosts are added", some["worst_while_adding"], at_most=_STALL
                    ),
                    Bar(f"{of}: the longest of the five after they began", some["worst_afterwards"], at_most=_STALL),
                    Bar(f"{of}: the longest at the eviction by its neighbours", some["eviction"], at_most=_EVICTION),
                    Bar(f"{of}: roll-backs", some["rolled_back"], at_most=0),
                ]
        if waiting := elastic.get("waiting"):
            bars += [
                Bar(f"waiting: {name}", waiting[key], at_most=most)
                for name, key, most in (
                    ("the longest iteration while hosts are added", "worst_while_adding", _STALL),
                    ("the longest of the five after, beside those before", "afterwards_beside_before", _STALL),
                    ("the longest at the eviction by its neighbours", "eviction", _EVICTION),
                )
            ]
        bars += [
            Bar("the largest difference from the undisturbed parameters", elastic["largest_difference"], at_most=1e-4),
        ]
    for name, row in figures.get("faults", {}).items():
        bars.append(Bar(f"{name}: the objective's distance from the undisturbed one", row["off"], at_most=_SAME))
        if row.get("found_s") is not None:
            bars.append(Bar(f"{name}: seconds until it was noticed", row["found_s"], at_most=_DETECTED_S))
        if "twice" in row:
            most = sum(row["redone"]) + 1
            bars.append(Bar(f"{name}: iterations done twice ({most - 1} by roll-backs)", row["twice"], at_most=most))
    return bars


if __name__ == "__main__":
    sys.exit(main())
