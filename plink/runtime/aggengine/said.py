"""What rank 0 says of a group: by what it aggregates which sizes."""

from plink.runtime.aggengine.aggregation import Aggregation
from plink.runtime.aggengine.crossover import NEVER, Sizes


def by_schedules(sizes: Sizes) -> str:
    """Which of those of tensors on GPUs, in words."""
    if sizes.smallest >= NEVER:
        return "not by schedules, which were slower up to 4 MB"
    low = f" from {sizes.smallest} bytes on" if sizes.smallest else ""
    high = f" up to {sizes.largest} bytes" if sizes.largest < NEVER else ""
    return f"by schedules{low}{high}, through the hosts' memory"


def summary(aggregation: Aggregation, sizes: Sizes, ordered_from: int, some: bool) -> str:
    """By what the group aggregates, in a line."""
    smallest = sizes.smallest
    who = f"groups of {aggregation.ranks} ranks" if some else f"{aggregation.ranks} ranks"
    if ordered_from < NEVER and smallest >= ordered_from:
        return f"all-reduces of {who} by gloo, from {ordered_from} bytes on in the plan's order"
    if smallest >= NEVER:
        return f"all-reduces of {who} by gloo, which was faster up to 4 MB"
    parts = [
        entry.algo if entry.up_to_bytes is None else f"{entry.algo} up to {entry.up_to_bytes} bytes"
        for entry in aggregation.classes
        if entry.up_to_bytes is None or entry.up_to_bytes >= smallest
    ]
    below = f"gloo below {smallest} bytes, then " if smallest > 0 else ""
    above = f", gloo above {sizes.largest} bytes" if sizes.largest < ordered_from else ""
    above += f", gloo in the plan's order from {ordered_from} bytes on" if ordered_from < NEVER else ""
    return f"all-reduces of {who} by {below}{', '.join(parts)}{above}"
