"""Where what benchmarks measured is kept."""

from pathlib import Path

RESULTS = Path(__file__).parent.parent / "docs" / "results"
