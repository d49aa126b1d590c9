"""docs/results/theses.md: every figure of the theses that is done again, theirs beside ours, from what is recorded.

``python -m benchmarks.theses`` writes page and plots anew from the JSON files, and measures nothing; a benchmark that
is recorded does so by itself. Its module returns its plots by name from ``thesis_plots(figures)``; what
the theses say, and why it differs, stands in theses.toml.
"""

import functools
import importlib
import sys
import textwrap
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import results
from benchmarks.drawing import write
from benchmarks.thesis_plot import ThesisPlot
from plink.model.storage import read_document, write_text


@dataclass(frozen=True)
class Row:
    """A figure of a thesis. ``benchmark``: the module that does it again, ``plot``: by what name it shows it; ``page``:
    where there is more."""

    source: str
    figure: str
    shows: str
    thesis: str
    difference: str
    benchmark: str
    plot: str
    page: str | None = None

    @property
    def json(self) -> str:
        """The file of its raw samples."""
        return f"{self.benchmark.replace('_', '-')}.json"


_TEXTS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text())
ROWS = tuple(Row(**row) for row in _TEXTS["figure"])


def plots_of(benchmark: str) -> dict[str, ThesisPlot]:
    """By plot, what a benchmark has to show of its recorded figures; empty when nothing is recorded."""
    document = _document(benchmark)
    return importlib.import_module(f"benchmarks.{benchmark}").thesis_plots(document["figures"]) if document else {}


def _document(benchmark: str) -> dict[str, Any] | None:
    path = results.RECORDS / f"{benchmark.replace('_', '-')}.json"
    return read_document(path) if path.exists() else None


def page() -> str:
    """The whole page."""
    every = functools.cache(plots_of)
    lines = [_TEXTS["introduction"]]
    first_figures: dict[str, str] = {}  # of each benchmark, whose bars stand below it alone
    for source in dict.fromkeys(row.source for row in ROWS):
        lines += [
            f"\n## {source}\n",
            "| figure | shows | the thesis | ours | why they differ | repeat |",
            "|---" * 6 + "|",
        ]
        rows = [row for row in ROWS if row.source == source]
        for row in rows:
            plot = every(row.benchmark).get(row.plot)
            again = f"`make bench NAME={row.benchmark}`"
            if plot:
                again += f"; [JSON](../../benchmarks/records/{row.json}), [plot](plots/{row.plot}.svg)"
            if row.page:
                again += f", [page]({row.page})"
            ours = plot.ours if plot else "not recorded"
            lines.append(f"| {row.figure} | {row.shows} | {row.thesis} | {ours} | {row.difference} | {again} |")
        for row in rows:
            if plot := every(row.benchmark).get(row.plot):
                document = _document(row.benchmark)
                assert document is not None
                first = first_figures.setdefault(row.benchmark, row.figure)
                bars = missed_bars_text(document["bars"]) if first == row.figure else f"Bars: see {first}."
                lines += [
                    f"\n### {row.figure}: {row.shows}\n",
                    f"{_wrapped(f'![{plot.picture.alt}](plots/{row.plot}.svg)')}\n",
                    measured_with(document, plot.part),
                    f"\n{_wrapped(bars)}",
                    *([f"\n{plot.details}"] if plot.details else []),
                ]
    return "\n".join(lines) + "\n"


def _wrapped(paragraph: str) -> str:
    """Break a paragraph into lines of at most 120 columns."""
    return textwrap.fill(paragraph, 120, break_long_words=False, break_on_hyphens=False)


def measured_with(document: dict[str, Any], part: str | None = None) -> str:
    """Commit, day and machine of what is shown; of its part, where parts were measured by themselves."""
    parts = document.get("parts")
    if part is not None and parts is not None and part not in parts:
        return "An earlier run; of which commit was not kept."
    stamp = document if part is None or parts is None else parts[part]
    machine, words = stamp.get("machine", {}), [f"Commit {stamp['commit']}", stamp["date"]]
    if machine:
        words += [f"{machine['cores']} cores", f"Linux {machine['kernel']}"]
    if "memory_mb" in machine:
        words[3:3] = [machine["cpu"], f"{machine['memory_mb']} MB"]
    return ", ".join(words) + "."


def missed_bars_text(bars: list[dict[str, Any]]) -> str:
    """Which bars of a benchmark were missed, and by how much, or that all were met."""
    missed = [bar for bar in bars if not bar["met"]]
    if not missed:
        return f"Bars: all of this benchmark's {len(bars)} are met." if bars else "This benchmark has no bars."
    each = "; ".join(f"{bar['name']}: **{_number(bar['value'])}**, wanted {_wanted(bar)}" for bar in missed)
    return f"Bars: {len(missed)} of this benchmark's {len(bars)} missed: {each}."


def _number(value: float | None) -> str:
    return "never" if value is None else f"{value:.4g}"


def _wanted(bar: dict[str, Any]) -> str:
    sides = (("at least", bar.get("at_least")), ("at most", bar.get("at_most")))
    return " and ".join(f"{words} {limit:g}" for words, limit in sides if limit is not None)


def refresh(name: str) -> None:
    """Draw anew what this record (``NAME.json``) shows, and write the page; nothing for one that shows none of it."""
    benchmark = name.replace("-", "_")
    if all(row.benchmark != benchmark for row in ROWS):
        return
    folder = results.RESULTS / "plots"
    folder.mkdir(exist_ok=True)
    for name, plot in plots_of(benchmark).items():
        write(plot.picture, folder / f"{name}.svg")
    write_text(results.RESULTS / "theses.md", page())


def main() -> int:
    """Everything anew from what is recorded."""
    for benchmark in dict.fromkeys(row.benchmark for row in ROWS):
        refresh(benchmark)
    return 0


if __name__ == "__main__":
    sys.exit(main())
