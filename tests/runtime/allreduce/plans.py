"""Plans in files, as ranks are started with them."""

import json
from pathlib import Path

from benchmarks.aggregation_file import aggregation_to_json
from plink.model.schedule import Schedule
from plink.runtime.allreduce.aggregation import Aggregation, SizeClass
from solvers.schedules.catalogue import Options, schedule_for


def two_levels(ranks: int) -> Schedule:
    """Group the even ranks, and the odd ones."""
    return schedule_for("2lha", ranks, Options(groups=[list(range(0, ranks, 2)), list(range(1, ranks, 2))]))


def write_plan(folder: Path, aggregation: Aggregation) -> str:
    """Write an aggregation; returns the path."""
    path = folder / "plan.json"
    path.write_text(json.dumps(aggregation_to_json(aggregation)))
    return str(path)


def plan_of(folder: Path, schedule: Schedule, *, flat_below: int = 0, smallest_bytes: int | None = 0) -> str:
    """Write a plan that uses a schedule at every size, or flat aggregation up to so many bytes; returns the path."""
    classes = (SizeClass(None, schedule.algo, schedule),)
    if flat_below:
        classes = (SizeClass(flat_below, "flat", schedule_for("flat", schedule.ranks)), *classes)
    return write_plan(folder, Aggregation(classes, smallest_bytes=smallest_bytes))
