"""Random courses of joins, warnings and deaths with real processes; docs/results/elastic.md has a hundred of them."""

import os
from pathlib import Path

import pytest

from tests.runners.elastic.live.courses import course


@pytest.mark.parametrize("seed", [6, 16])
def test_nothing_is_lost(tmp_path: Path, seed: int) -> None:
    """Hosts frozen with the controller; five of seven killed at once, and more."""
    assert course(seed, tmp_path)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root (mount namespaces)")
@pytest.mark.parametrize("seed", [502, 504])
def test_nothing_is_lost_across_a_restore_on_hosts_with_private_folders(tmp_path: Path, seed: int) -> None:
    """Reliable hosts are killed, too, with the controller."""
    assert course(seed, tmp_path, reliable=True, private=True)
