"""PyTorch/Gloo's all-reduce."""

from collections.abc import Sequence
from pathlib import Path

from benchmarks.labs import BenchLab
from benchmarks.timing.orders import Names, Seconds, read_seconds, write_orders

_RANK = Path(__file__).parent / "gloo_rank.py"


def measure(bench: BenchLab, orders: Sequence[Names], size_bytes: int, warm_up: int, repeats: int) -> Seconds:
    """Return seconds of an all-reduce of float32, shape (orders, repeats)."""
    orders_file, result = write_orders(bench, "gloo", orders)
    numbers = (str(number) for number in (size_bytes, warm_up, repeats))
    run = bench.plink(
        "launch", "--hosts", bench.hosts_file, "--env", "OMP_NUM_THREADS=1", str(_RANK), orders_file, result, *numbers
    )
    return read_seconds(run, "gloo", result)
