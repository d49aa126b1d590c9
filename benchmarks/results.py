"""Where what benchmarks measured is kept: pages and plots, and the records behind them."""

from pathlib import Path

RESULTS = Path(__file__).parent.parent / "docs" / "results"
RECORDS = Path(__file__).parent / "records"
