"""What is handed to the ranks, and what they hand back."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from benchmarks.labs import BenchLab, CommandRun

Names = Sequence[str]
Seconds = npt.NDArray[np.float64]


def write_orders(bench: BenchLab, name: str, orders: Sequence[Names]) -> tuple[str, str]:
    """Write the orders, one a line; (that file, where the result goes). The hosts of a lab share this file system."""
    orders_file, result = bench.folder / f"{name}.orders", bench.folder / f"{name}.seconds"
    orders_file.write_text("".join(" ".join(order) + "\n" for order in orders))
    result.unlink(missing_ok=True)
    return str(orders_file), str(result)


def read_seconds(run: CommandRun, name: str, result: str) -> Seconds:
    """Return what rank 0 wrote, shape (orders, repeats)."""
    if run.code or not Path(result).exists():
        raise SystemExit(f"{name}: exit code {run.code}\n{run.stderr}")
    return np.loadtxt(result, ndmin=2)
