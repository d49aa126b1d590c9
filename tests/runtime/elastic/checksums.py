"""Checksums of what whole jobs of the example programs learn, for comparing two versions on one machine:
``python -m tests.runtime.elastic.checksums`` prints one line a job."""

import hashlib
from collections.abc import Callable
from typing import Any

import numpy as np

from plink.elastic import App, TrainingResult, train
from tests.runtime.elastic.test_apps import classes, factors, topics

PROGRAMS: dict[str, Callable[[int], App[Any]]] = {"factors": factors, "classes": classes, "topics": topics}
WORKERS = 1, 3


def learn(program: str, workers: int) -> TrainingResult:
    """Ten clocks, bulk synchronous."""
    return train(PROGRAMS[program](10), workers=workers, servers=2)


def checksum(trained: TrainingResult, kinds: str = "if") -> str:
    """SHA-256 of all tables of integers (i), floats (f) or both, and of the objectives with the floats."""
    digest = hashlib.sha256()
    for _, values in sorted(trained.tables.items()):
        if values.dtype.kind in kinds:
            digest.update(np.ascontiguousarray(values))
    if "f" in kinds:
        digest.update(np.array(trained.objectives))
    return digest.hexdigest()


if __name__ == "__main__":
    for name in PROGRAMS:
        for workers in WORKERS:
            print(f"{name} {workers} {checksum(learn(name, workers))}")
