"""Table 4.1 of the PLink thesis: rounds, bytes on the wire and bytes between racks, formulas against counts.

An all-reduce of S bytes among NC hosts, N in each of C racks, ranks in the order of racks. Every schedule is made,
verified (each rank ends with each contribution once) and counted; sizes are in S. What the tests hold of each
difference is in ``tests/solvers/schedules/test_table_4_1.py``.
"""

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.record import Bar, record
from benchmarks.thesis_plot import ThesisPlot
from solvers.schedules.catalogue import Options, schedule_for
from solvers.schedules.counter import count
from solvers.schedules.verifier import verify

_HOSTS = (8, 16, 32, 64, 128, 256, 512)
_RACKS = 4
_VERIFIED_TO = 128  # the verifier holds what every rank has of every chunk: hosts to the third power

Columns = tuple[float, float, float]  # rounds, bytes on the wire, bytes between racks


@dataclass(frozen=True)
class FormulaRow:
    """A row of the table: its formulas of N hosts in each of C racks, and what plink's schedule of it is called."""

    name: str
    algo: str
    formula: Callable[[int, int], Columns]


LINES = (
    FormulaRow("PS, sharded", "ps", lambda n, c: (2, 2 * (n * c - 1), 2 * n * (c - 1))),
    FormulaRow(
        "halving doubling", "halving-doubling",
        lambda n, c: (2 * math.log2(n * c), 2 * n * c, 2 * c * (n - 1) / n),
    ),
    FormulaRow("ring, chunked", "ring", lambda n, c: (2 * n * c - 1, 2 * n * c - 1, 2 * c - 1)),
    FormulaRow(
        "tree, fan-out C", "tree",
        lambda n, c: (2 * (math.log(n, c) + 1), 2 * c * (c * n - 1) / (c - 1), 2 * c * (n - 1) / (c - 1)),
    ),
    FormulaRow("2-level hierarchical", "2lha", lambda n, c: (4, 2 * (n * c - 1), 2 * (c - 1))),
)  # fmt: skip
_COLUMNS = ("rounds", "wire", "between_racks")


def counted(algo: str, n: int, c: int) -> dict[str, Any]:
    """Return the three columns of a schedule, and whether the verifier passed it (None: too large for it)."""
    racks = [list(range(n * rack, n * rack + n)) for rack in range(c)]
    schedule = schedule_for(algo, n * c, Options(groups=racks, fan_out=c))
    counts = count(schedule, 1.0, np.repeat(np.arange(c), n))
    verified = not verify(schedule) if n * c <= _VERIFIED_TO else None
    return {
        "rounds": counts.rounds,
        "wire": round(counts.bytes_on_wire, 9),
        "between_racks": round(counts.cross_group_bytes or 0.0, 9),
        "verified": verified,
    }


def rows_of(line: FormulaRow) -> list[dict[str, Any]]:
    """Return one for each number of hosts."""
    rows = []
    for hosts in _HOSTS:
        n = hosts // _RACKS
        thesis_values = dict(zip(_COLUMNS, (round(value, 9) for value in line.formula(n, _RACKS)), strict=True))
        rows.append({"hosts": hosts, "thesis": thesis_values, "counted": counted(line.algo, n, _RACKS)})
    return rows


def exact(rows: list[dict[str, Any]], column: str) -> bool:
    """Return whether formula and count agree at every size."""
    return all(math.isclose(row["thesis"][column], row["counted"][column], abs_tol=1e-6) for row in rows)


def thesis_plots(figures: dict[str, Any]) -> dict[str, ThesisPlot]:
    """For docs/results/theses.md."""
    from benchmarks.drawing import curves

    lines = figures["lines"]
    same = [name for name, rows in lines.items() if all(exact(rows, column) for column in _COLUMNS)]
    cells = sum(exact(rows, column) for rows in lines.values() for column in _COLUMNS)
    off = max(
        abs(row["counted"]["wire"] / row["thesis"]["wire"] - 1)
        for name, rows in lines.items() if name != "tree, fan-out C" for row in rows
    )  # fmt: skip
    text = (
        f"{cells} of 15 formulas exactly, for {_HOSTS[0]} to {_HOSTS[-1]} hosts in {_RACKS} racks; all three of "
        f"{' and '.join(same)}; bytes on the wire of all but the tree within {100 * off:.1f} %"
    )
    series = {
        name: ([row["hosts"] for row in rows], [row["counted"]["between_racks"] for row in rows])
        for name, rows in lines.items()
    }
    picture = curves(
        "table-4-1", "Bytes between racks, counted", f"an all-reduce of S bytes, {_RACKS} racks; in S", series, "hosts",
        "bytes between racks / S", "xy", xticks={hosts: str(hosts) for hosts in _HOSTS},
    )  # fmt: skip
    return {"table-4-1": ThesisPlot(text, picture, details(lines))}


def details(lines: dict[str, list[dict[str, Any]]]) -> str:
    """Return the thesis's table at the smallest and the largest number of hosts: formula / count."""
    ends, names = (_HOSTS[0], _HOSTS[-1]), ("rounds", "bytes / S", "between racks / S")
    heading = " | ".join(f"{name}, {hosts} hosts" for hosts in ends for name in names)
    rows = [f"| | {heading} |", "|---" * 7 + "|"]
    for name, counts in lines.items():
        cells = [
            f"{row['thesis'][column]:.5g} / {row['counted'][column]:.5g}"
            for row in (counts[0], counts[-1]) for column in _COLUMNS
        ]  # fmt: skip
        rows.append(f"| {name} | " + " | ".join(cells) + " |")
    return "Formula / count:\n\n" + "\n".join(rows)


def main() -> int:
    """Run and record; the exit code."""
    lines = {line.name: rows_of(line) for line in LINES}
    bars = [
        Bar(
            f"{name}: columns that are the thesis's", sum(exact(lines[name], column) for column in _COLUMNS), at_least=3
        )
        for name in ("PS, sharded", "2-level hierarchical")
    ]
    refused = sum(row["counted"]["verified"] is False for rows in lines.values() for row in rows)
    bars.append(Bar("schedules that the verifier refuses", refused, at_most=0))
    configuration = {"hosts": _HOSTS, "racks": _RACKS, "verified_to": _VERIFIED_TO}
    return record("table-4-1", configuration, {"lines": lines}, bars)


if __name__ == "__main__":
    sys.exit(main())
