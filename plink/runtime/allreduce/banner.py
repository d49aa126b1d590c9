"""Startup banner of a group: which algorithm all-reduces of which size use, printed by rank 0."""

from plink.model.units import format_bytes
from plink.runtime.allreduce.aggregation import Aggregation
from plink.runtime.allreduce.algorithm_selection import NEVER, SizeRange


def staging_banner(sizes: SizeRange) -> str:
    """Return which all-reduces of tensors on GPUs use schedules."""
    if sizes.min_bytes >= NEVER:
        return "not by schedules (slower up to 4 MB)"
    low = f" from {format_bytes(sizes.min_bytes)} on" if sizes.min_bytes else ""
    high = f" up to {format_bytes(sizes.max_bytes)}" if sizes.max_bytes < NEVER else ""
    return f"by schedules{low}{high}, through the hosts' memory"


def startup_banner(aggregation: Aggregation, sizes: SizeRange, delegation_min_bytes: int, is_subgroup: bool) -> str:
    """Return which algorithms the group uses for which sizes, in one line."""
    min_bytes = sizes.min_bytes
    label = f"groups of {aggregation.ranks} ranks" if is_subgroup else f"{aggregation.ranks} ranks"
    if delegation_min_bytes < NEVER and min_bytes >= delegation_min_bytes:
        return f"all-reduces of {label} by gloo, from {format_bytes(delegation_min_bytes)} on in the plan's order"
    if min_bytes >= NEVER:
        return f"all-reduces of {label} by gloo, faster at all sizes timed (up to {16 if aggregation.hubs else 4} MB)"
    algorithms = [
        entry.algo if entry.up_to_bytes is None else f"{entry.algo} up to {format_bytes(entry.up_to_bytes)}"
        for entry in aggregation.classes
        if entry.up_to_bytes is None or entry.up_to_bytes >= min_bytes
    ]
    below = f"gloo below {format_bytes(min_bytes)}, then " if min_bytes > 0 else ""
    above = f", gloo above {format_bytes(sizes.max_bytes)}" if sizes.max_bytes < delegation_min_bytes else ""
    if delegation_min_bytes < NEVER:
        above += f", gloo in the plan's order from {format_bytes(delegation_min_bytes)} on"
    return f"all-reduces of {label} by {below}{', '.join(algorithms)}{above}"
