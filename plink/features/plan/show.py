"""A plan for people: its cost against others, and its groups with the loads of their masters."""

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
from rich.console import Console

from plink.model.plan import Groups, Plan, PlannedMasters
from plink.model.units import format_bytes, format_least_time, format_us, numbered, significant
from plink.terminal.screen import show_table

_MAX_NAMED_HOSTS = 6
_MAX_GROUPS = 40


def print_plan(job_plan: Plan, on_stderr: bool) -> None:
    """Print the plan: its cost against others, then its groups with the loads of their masters."""
    console = Console(stderr=on_stderr, soft_wrap=True, highlight=False)
    chunks_text = "" if job_plan.chunks is None else f" in {numbered(job_plan.chunks, 'chunk')}"
    groups_text = "" if job_plan.groups is None else f" in {numbered(len(job_plan.groups), 'group')}"
    cost = "" if job_plan.cost_us is None else f": {format_us(job_plan.cost_us)}"
    console.print(
        f"{job_plan.algo}, {job_plan.ranks} ranks{groups_text}, {format_bytes(job_plan.size_bytes)}{chunks_text}, "
        f"model {job_plan.model}{cost}",
        markup=False,
    )
    names = {
        "flat": "flat aggregation",
        "given": "hosts as given",
        "random_groups_median": "median of random groups",
        "masters_by_sizes": "masters by sizes",
        "network_groups": "groups of the network's own links",
    }
    if job_plan.baseline:
        compared = ", ".join(f"{names.get(key, key)} {format_us(value)}" for key, value in job_plan.baseline.items())
        console.print(f"compared with: {compared}", markup=False)
    if job_plan.least_time_us and job_plan.limited_by and job_plan.cost_us is not None:
        console.print(format_least_time(job_plan.least_time_us, job_plan.limited_by, job_plan.cost_us), markup=False)
    if job_plan.groups is not None and job_plan.masters is not None:
        columns = ("group", "hosts", "ranks", "global (share)", "global a rank (share)", "local a rank (share)")
        by = job_plan.masters.weights
        title = f"chunks of masters, {'for the least time' if by == 'least-time' else f'in proportion to {by}'}"
        rows = list(_group_rows(job_plan, job_plan.groups, job_plan.masters))
        show_table(columns, rows, title, boxed=True, on_stderr=on_stderr)


def _group_rows(job_plan: Plan, groups: Groups, masters: PlannedMasters) -> Iterator[Sequence[str]]:
    """Yield a row per group: hosts, chunks mastered globally and per rank, each beside its share."""
    host_of_rank = [host.name for host in job_plan.hosts for _ in range(host.slots)]
    total = sum(masters.group_weights)
    global_counts = np.bincount(masters.global_masters, minlength=job_plan.ranks)
    chunks = len(masters.global_masters)
    for group_number, group in enumerate(groups[:_MAX_GROUPS]):
        members = np.array(group)
        weights = np.array(masters.rank_weights)[members]
        parts = weights / weights.sum()
        local_counts = np.bincount(masters.local_masters[:, group_number], minlength=job_plan.ranks)[members]
        global_chunks, share = int(global_counts[members].sum()), chunks * masters.group_weights[group_number] / total
        hosts = list(dict.fromkeys(host_of_rank[rank] for rank in group))
        names = " ".join(hosts[:_MAX_NAMED_HOSTS]) + (" ..." if len(hosts) > _MAX_NAMED_HOSTS else "")
        yield (
            str(group_number),
            names,
            str(len(group)),
            f"{global_chunks} ({significant(share)})",
            f"{_span(global_counts[members])} ({_span(global_chunks * parts)})",
            f"{_span(local_counts)} ({_span(chunks * parts)})",
        )
    if len(groups) > _MAX_GROUPS:
        yield ("...", *[""] * 5)


def _span(values: npt.NDArray[np.intp] | npt.NDArray[np.float64]) -> str:
    """Return the smallest and the largest value, one number where they agree."""
    low, high = significant(values.min()), significant(values.max())
    return low if low == high else f"{low}-{high}"
