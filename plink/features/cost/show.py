"""Lines of a cost."""

import math
from collections.abc import Iterator
from itertools import groupby

from plink.model.cost import CollectiveCost, CostPart
from plink.model.document import UNSET
from plink.model.network import Network
from plink.model.network_file import format_host_costs
from plink.model.units import format_bytes, format_least_time, format_prediction, format_us

_ROUNDING_US = 1e-2  # what rounded parts may differ by from their sum


def lines(cost: CollectiveCost, network: Network, ordered: bool) -> Iterator[str]:
    """Yield the lines; ``ordered``: by an order, not as the hosts stand."""
    index = {name: host for host, name in enumerate(network.hosts.names)}
    of = f"the order of {cost.order}" if ordered else "hosts as they stand"
    stated = format_prediction(cost.cost_us, cost.interval_us)
    yield f"{cost.algo}, {cost.ranks} ranks, {format_bytes(cost.size_bytes)}, {of}, model {cost.model}: {stated}"
    if cost.least_time_us is not UNSET and cost.least_time_us > 0:
        yield f"  {format_least_time(cost.least_time_us, cost.limited_by or '', cost.cost_us)}"
    for part in cost.parts:
        if len(cost.parts) > 1:
            yield f"  {part.algo}, which counts {part.weight:.0%}: {format_us(part.cost_us)}"
        first, second = part.slowest_pair
        is_measured = cost.smoothed is not UNSET or not math.isnan(network.rtt_us[index[first], index[second]])
        yield f"  slowest pair used: {first} - {second}{'' if is_measured else ' (predicted, not measured)'}"
        yield from _part(part)
    if (drawn := cost.random) is not None:
        yield (
            f"random orders ({drawn.orders}): {format_us(drawn.min_us)} to {format_us(drawn.max_us)}, "
            f"median {format_us(drawn.median_us)}; {drawn.more_expensive:.0%} of them cost more than this one"
        )
    if cost.host_costs is not UNSET and cost.model != "latency":
        yield format_host_costs(cost.host_costs)


def _part(part: CostPart) -> Iterator[str]:
    """Yield the rounds of one algorithm; equal consecutive rounds share a line."""
    if part.busiest_share is not UNSET:
        yield f"  busiest link: {part.busiest_link}, in use {part.busiest_share:.0%} of the time"
    hops_us = math.fsum(each.latency_us for each in part.rounds)
    rounds_us = hops_us + math.fsum(each.transfer_us for each in part.rounds)
    if part.model == "latency" and abs(part.cost_us - hops_us) > _ROUNDING_US:
        chain = "the sum of all hops" if part.cost_us > hops_us else "the longest chain of hops"
        yield f"  the cost is {chain}, not of the rounds:"
    if part.model == "contention" and abs(part.cost_us - rounds_us) > _ROUNDING_US:
        yield "  rounds overlap and do not add up to the cost; each as if alone:"
    first = 1
    for each, equal in groupby(part.rounds):
        last = first + len(list(equal)) - 1
        numbers = f"round {first}" if first == last else f"rounds {first}-{last}"
        transfer = "" if each.busiest == "latency" else f" + {format_us(each.transfer_us)}, {each.busiest}"
        hop = "farthest hop" if part.model == "latency" else "latency"
        yield f"  {numbers}: {format_us(each.latency_us)} {hop}{transfer}"
        first = last + 1
