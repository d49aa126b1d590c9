"""Fixtures of the lab tests."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.lab.jobs import Running


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Running]]:
    """Start plink commands in the test's folder; those still running at its end are killed."""
    begun: list[Running] = []

    def run(*words: str, **more: str) -> Running:
        begun.append(Running(tmp_path, *words, **more))
        return begun[-1]

    yield run
    for running in begun:
        running.close()
