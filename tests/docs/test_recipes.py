"""The recipes of docs/recipes.md, followed to the letter in a copy of the source."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.docs.pages import ROOT, blocks

_PAGE = ROOT / "docs" / "recipes.md"
_PACKAGES = ("plink", "probes", "runners", "solvers")


_SPEND = """
from runners.elastic.controller import decode, encode
from solvers.elastic.expensive import PriceRose
from tests.runners.elastic.simulated_job import SimulatedJob

job = SimulatedJob(1, "rttt", clocks=80)
for host, price in ((2, 0.4), (3, 0.9)):
    job.later(2.0, lambda event=PriceRose(host, price, 0.5): job._tell(event))
assert decode(encode(PriceRose(3, 0.9, 0.5))) == PriceRose(3, 0.9, 0.5)
job.run()
warned = [line for line in job.log if "'event': 'warned'" in line]
prices = [line for line in job.log if "costs 0." in line]
print(job.ended, len(warned), "it costs 0.9 an hour" in warned[0], len(prices))
"""
_TRAIN = """
from tests.runtime.elastic.small_app import Means
from plink.model.consistency import parse_rule
from plink.elastic import StoppingCriterion, train

rule = parse_rule("tenth")
trained = train(Means(stop=StoppingCriterion(clocks=21)), workers=2, rule=rule)
print(type(rule).__name__, trained.finished.clock)
"""


def copy_source(to: Path) -> None:
    """Copy all packages."""
    for package in _PACKAGES:
        shutil.copytree(ROOT / package, to / package, ignore=shutil.ignore_patterns("__pycache__"))


def code() -> list[str]:
    """Return the page's Python blocks: a generator and its entry, an event, its case and its name, a rule."""
    return ["\n".join(block.lines) + "\n" for block in blocks(_PAGE) if block.language == "python"]


def insert(path: Path, *pieces: tuple[str, str]) -> None:
    """Put each text before the first line that begins so."""
    for before, text in pieces:
        head, tail = path.read_text().split(f"\n{before}", 1)
        path.write_text(f"{head}\n{text}{before}{tail}")


def run(folder: Path, text: str) -> str:
    """Run a program with the packages of a folder, and this checkout's tests and examples; return its output."""
    done = subprocess.run(
        [sys.executable, "-c", text], cwd=folder, env={**os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{ROOT}"},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_event_of_the_recipe_drains_a_host(tmp_path: Path) -> None:
    copy_source(tmp_path)
    _, _, module, case, name, _ = code()
    elastic = tmp_path / "solvers" / "elastic"
    (elastic / "expensive.py").write_text(module)
    insert(elastic / "step.py", ("    failures,", "    expensive,\n"), ("        case _:", case))
    with_import = ("from solvers.elastic import", "from solvers.elastic import expensive\n")
    insert(tmp_path / "runners" / "elastic" / "controller.py", with_import, ('    "note":', name))
    assert run(tmp_path, _SPEND) == "(0, '') 1 True 3\n"


def test_rule_of_the_recipe_trains(tmp_path: Path) -> None:
    copy_source(tmp_path)
    (tmp_path / "plink" / "model" / "rules" / "tenth.py").write_text(code()[-1])
    assert run(tmp_path, _TRAIN).split()[-2:] == ["Tenth", "22"]


def test_collective_of_the_recipe_is_verified_and_ordered(tmp_path: Path) -> None:
    copy_source(tmp_path)
    generator, entry, *_ = code()
    (tmp_path / "solvers" / "schedules" / "star.py").write_text(generator)
    catalogue = tmp_path / "solvers" / "schedules" / "catalogue.py"
    text = catalogue.read_text().replace(
        "from solvers.schedules.trees", "from solvers.schedules.star import star_reduce\nfrom solvers.schedules.trees"
    )
    head, tail = text.rsplit("    )\n}", 1)
    catalogue.write_text(f"{head}        {entry.rstrip()},\n    )\n}}{tail}")

    network = {"schema": "plink.network/1", "hosts": [{"name": name} for name in "abc"]}
    rows = [[0, 5, 9], [5, 0, 5], [9, 5, 0]]
    (tmp_path / "n.json").write_text(str(network | {"latency_us": rows}).replace("'", '"'))
    for words in (
        ("schedule", "--algo", "star", "--ranks", "5", "-o", "star.json"),
        ("schedule", "verify", "star.json"),
        ("cost", "n.json", "--algo", "star"),
        ("reorder", "n.json", "--algo", "star", "--model", "latency", "--format", "hosts"),
    ):
        done = subprocess.run(
            [sys.executable, "-m", "plink", *words],
            cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(tmp_path)},
            capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
    assert done.stdout.split()[0] == "b"  # the one in the middle
