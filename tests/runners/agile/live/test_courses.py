"""Random courses of joins, warnings and deaths with real processes; docs/results/agileml.md has a hundred of them."""

from pathlib import Path

import pytest

from tests.runners.agile.live.courses import course


@pytest.mark.parametrize("seed", [6, 16])
def test_nothing_is_lost(tmp_path: Path, seed: int) -> None:
    """Hosts frozen with the controller; five of seven killed at once, and more."""
    assert course(seed, tmp_path)
