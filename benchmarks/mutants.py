"""Do the solvers' tests notice mistakes? A random sample of small ones is made, one at a time, and the tests of that
module are run: ``python -m benchmarks.mutants [--sample N] [--seed S] [--jobs J] [--minutes M]``. With ``--again`` no
sample is drawn: those that survived the recorded one are asked about once more (but for those that a reader judged, and
wrote no test for, which would stand beside them as ``by``), then those that it had no time for, and the record is
brought up to date.

The tests of a module are those that import it; what these overlook is asked of those that import what imports it. A
file of tests that takes longer than a minute of a processor, or fails, with nothing changed is not asked: others who
use the machine make no difference. Tests are not tried twice.
Modules compiled by Numba are left out: each of their mutants would be compiled anew in every test process, which takes
half a minute. A mutant counts as killed when a test fails, or when the tests take four times as long as without it
(and 30 s more).

mutmut and cosmic-ray were looked at and do not fit: both run one command for all mutants, where here each module has
its own tests (all of them take an hour), and mutmut puts a trampoline into every function, which Numba cannot compile.
"""

import argparse
import ast
import json
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue

from benchmarks.fates import KILLED, NOT_ASKED, SURVIVED, Fate, Mutant, read, written
from benchmarks.mutation import mutant, places
from benchmarks.record import Bar, record
from benchmarks.results import RESULTS

ROOT = Path(__file__).parent.parent
_FOLDERS = ("plink", "probes", "solvers", "runners", "tests", "benchmarks")
_BASELINE_S = 60.0  # of a processor: tests that take longer with nothing changed are too slow to be asked so often
_BUSY = 10  # times as long by the clock: others may have the processors, and a test may wait for ever
_AT_LEAST = 0.8  # of the mutants, killed
_PYTEST = (
    *("-m", "pytest", "-x", "-q", "--no-header", "-p", "no:cacheprovider"),
    *("--force-reruns", "0"),  # whatever their markers say: without the plugin the marker is unknown, and an error
    *("-m", "not slow and not lab and not crowd", "--hypothesis-profile=mutants", "--hypothesis-seed=0"),
)


def modules() -> list[str]:
    """The solvers' modules that can be asked about."""
    paths = sorted((ROOT / "solvers").rglob("*.py"))
    return [str(path.relative_to(ROOT)) for path in paths if "njit" not in path.read_text()]


def tests_of(module: str) -> list[list[str]]:
    """Test files that import a module, then the others that import what imports it; the solvers' own where they do."""
    stages: list[list[str]] = []
    wanted = {_dotted(module)}
    for _ in range(2):
        expression = _imports(wanted)
        found = [path for path in _sources("tests") if _has(path, expression)]
        by_way_of = {_dotted(path) for path in found if not Path(path).name.startswith("test_")}
        if by_way_of:
            found += [path for path in _sources("tests") if _has(path, _imports(by_way_of))]
        found = [path for path in dict.fromkeys(found) if Path(path).name.startswith("test_")]
        found = [path for path in found if path.startswith("tests/solvers")] or found
        stages.append([path for path in found if all(path not in stage for stage in stages)])
        wanted = {_dotted(path) for path in _sources("solvers") if _has(path, expression)}
        if not wanted:
            break
    return [stage for stage in stages if stage]


def _has(path: str, expression: re.Pattern[str]) -> bool:
    return expression.search((ROOT / path).read_text()) is not None


def _dotted(path: str) -> str:
    return path.removesuffix(".py").replace("/", ".")


def _imports(names: set[str]) -> re.Pattern[str]:
    """``import a.b``, ``from a.b import``, ``from a import b``."""
    said = []
    for name in names:
        package, _, last = name.rpartition(".")
        said += [re.escape(name) + r"\b(?!\.)", rf"{re.escape(package)} import [^\n]*\b{re.escape(last)}\b"]
    return re.compile(r"^\s*(?:from|import) (?:" + "|".join(said) + ")", re.MULTILINE)


def _sources(folder: str) -> list[str]:
    return sorted(str(path.relative_to(ROOT)) for path in (ROOT / folder).rglob("*.py"))


def sample(number: int, seed: int) -> list[Mutant]:
    """So many mistakes, each place in all modules as likely as any other; none in a module that no test imports."""
    every = [
        Mutant(module, place)
        for module in modules()
        if tests_of(module)
        for place in places(ast.parse((ROOT / module).read_text()))
    ]
    return random.Random(seed).sample(every, min(number, len(every)))


class Copy:
    """A copy of the sources in which mistakes are made."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in _FOLDERS:
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "pyproject.toml", folder)

    def try_out(self, module: str, source: str | None, tests: list[str], limit_s: float) -> tuple[str, float]:
        """(the first test that fails with this source of the module, seconds of a processor); None: its own source."""
        there = self.folder / module
        there.write_text((ROOT / module).read_text() if source is None else source)
        for cached in there.parent.glob(f"__pycache__/{there.stem}.*"):  # of the same second and size it would be used
            cached.unlink()
        before = _used_s()
        limit = max(1, round(limit_s))
        environment = {**os.environ, "PYTHONPATH": str(self.folder), "CI": "1", "OMP_NUM_THREADS": "1"}
        try:
            done = subprocess.run(
                ["sh", "-c", f'ulimit -t {limit}; exec "$@"', "sh", sys.executable, *_PYTEST, *tests],
                cwd=self.folder, env=environment, capture_output=True, text=True, timeout=_BUSY * limit, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return f"no end within {_BUSY * limit} s", limit_s
        finally:
            there.write_text((ROOT / module).read_text())
        failed = re.search(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
        if done.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
            return f"no end within {limit} s of a processor", limit_s
        why = "" if done.returncode == 0 else failed[1] if failed else f"exit code {done.returncode}"
        return why, _used_s() - before


def _used_s() -> float:
    """Of processors, by tests that have ended; with several jobs also by what ran beside: limits are the wider then."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


class Asked:
    """Mutants put to the tests of their modules, in one copy, until it is too late (of the monotonic clock)."""

    def __init__(self, copy: Copy, until: float) -> None:
        self._copy, self._until = copy, until
        self.baselines: dict[str, tuple[str, float]] = {}  # of a test file: why it cannot be asked, seconds

    def fates(self, module: str, wanted: Sequence[Fate]) -> list[Fate]:
        """What becomes of the mutants of one module."""
        files = [path for stage in tests_of(module) for path in _nearest(stage, module)]
        return [self._fate(module, one, files) for one in wanted]

    def _fate(self, module: str, one: Fate, files: Sequence[str]) -> Fate:
        source = mutant(ast.parse((ROOT / module).read_text()), one.mutant.place)
        found = replace(one, what=NOT_ASKED, by="no file of tests that can be asked")
        for path in [*([one.by] if one.what == SURVIVED and one.by else []), *files]:
            if time.monotonic() > self._until:
                return one if one.what == SURVIVED else replace(one, by="the time was over")
            if path not in self.baselines:
                self.baselines[path] = self._copy.try_out(module, None, [path], _BASELINE_S)
            cannot, seconds = self.baselines[path]
            if cannot:
                continue
            why, _ = self._copy.try_out(module, source, [path], 4 * seconds + 30)
            if why:
                found = replace(one, what=KILLED, by=why, judgement="")
                break
            found = replace(one, what=SURVIVED, by="")
        print(f"{found.what} {module}:{one.mutant.place.line} {one.mutant.place.what} {found.by}", flush=True)
        return found


def _nearest(files: Sequence[str], module: str) -> list[str]:
    """The file that bears the module's name first."""
    return sorted(files, key=lambda path: Path(module).stem not in path)


def asked(wanted: Sequence[Fate], jobs: int, until: float) -> tuple[list[Fate], list[str]]:
    """What becomes of each: first of those that survived, then of modules that few files test; and which files could
    not be asked, with the reason."""
    some: SimpleQueue[Asked] = SimpleQueue()
    kept: list[Asked] = []

    def ask(module: str) -> list[Fate]:
        one = some.get()
        try:
            return one.fates(module, [fate for fate in wanted if fate.mutant.module == module])
        finally:
            some.put(one)

    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(jobs) as pool:
        for k in range(jobs):
            kept.append(Asked(Copy(Path(folder) / str(k)), until))
            some.put(kept[-1])
        survived = {fate.mutant.module for fate in wanted if fate.what == SURVIVED}
        order = sorted(
            {fate.mutant.module for fate in wanted},
            key=lambda module: (module not in survived, sum(map(len, tests_of(module))), module),
        )
        found = [fate for told in pool.map(ask, order) for fate in told]
    cannot = {f"{path}: {why}" for one in kept for path, (why, _) in one.baselines.items() if why}
    return found, sorted(cannot)


def main() -> int:
    """Writes docs/results/mutants.json; exit code 1 when too few were killed."""
    parser = argparse.ArgumentParser(description=__doc__)
    for option, default in (("--sample", 80), ("--seed", 10), ("--jobs", 2), ("--minutes", 60)):
        parser.add_argument(option, type=int, default=default)
    parser.add_argument("--again", action="store_true")
    given = parser.parse_args()
    until = time.monotonic() + 60 * given.minutes
    gone: list[str] = []
    if given.again:
        recorded = json.loads((RESULTS / "mutants.json").read_text())
        configuration = recorded["configuration"]
        known, gone = read(recorded["figures"]["sample"], ROOT)
    else:
        configuration = {"sample": given.sample, "seed": given.seed, "modules": len(modules())}
        known = [Fate(one) for one in sample(given.sample, given.seed)]
    found, cannot = asked([fate for fate in known if fate.open], given.jobs, until)
    fates = [*(fate for fate in known if not fate.open), *found]
    fates.sort(key=lambda fate: (fate.mutant.module, fate.mutant.place.line))
    count = {what: sum(fate.what == what for fate in fates) for what in (KILLED, SURVIVED, NOT_ASKED)}
    figures = {
        "mutants": count[KILLED] + count[SURVIVED],
        "killed": count[KILLED],
        "equivalent": sum(fate.what == SURVIVED and fate.equivalent for fate in fates),
        "not_asked": count[NOT_ASKED],
        "no_longer_there": gone,
        "tests_not_asked": cannot,
        "sample": written(fates, ROOT),
    }
    bars = [Bar("share of mutants killed", count[KILLED] / max(1, figures["mutants"]), at_least=_AT_LEAST)]
    return record("mutants", configuration, figures, bars)


if __name__ == "__main__":
    sys.exit(main())
