"""``plink cost``."""

import contextlib
import itertools
import math
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from plink.cli.screen import print_json, print_lines, say
from plink.errors import InputError, NoAnswer
from plink.model.units import format_bytes, format_prediction, format_us, parse_bytes

if TYPE_CHECKING:
    from solvers.costs.evaluator import CostBreakdown

_RANDOM_ORDERS_S = 10.0  # where one takes milliseconds or more


def cost(
    network_file: Annotated[
        Path | None, typer.Argument(metavar="NETWORK", help="What `plink probe` wrote; default .plink/network.json.")
    ] = None,
    algo: Annotated[str, typer.Option(help="The collective's algorithm, or a library's own (gloo, nccl, ...).")] = (
        "ring"
    ),
    size: Annotated[str, typer.Option(help="Bytes to reduce (100MB).")] = "100MB",
    model: Annotated[str, typer.Option(help="Cost model.")] = "auto",
    order: Annotated[
        Path | None, typer.Option(help="An order, or one host name per line; default: the file's order of hosts.")
    ] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="An option of the algorithm: --set base=4, --set fan-out=3.")
    ] = None,
    random: Annotated[
        int | None,
        typer.Option(min=0, max=100_000, help="Random orders to compare with; default 201, fewer if large."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Draws the random orders.")] = 0,
    smooth_latencies: Annotated[
        bool,
        typer.Option(
            "--smooth-latencies", help="Smooth round trips by an embedding; `plink embed` shows whether it helps."
        ),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Show what a collective costs on the measured network, by round and bottleneck.

    Example: plink cost cloud.json --algo ring --size 100MB --order order.json
    """
    import numpy as np

    from plink.api.algorithms import options_of
    from plink.api.costing import CostRequest
    from plink.api.costing import cost as cost_of
    from plink.cli.inputs import network_from
    from plink.cli.set_options import parse_set_options
    from plink.model.order import read_order
    from plink.records import workspace
    from plink.report.words import host_costs
    from solvers.costs.by_name import SIMULATED
    from solvers.ordering.problem import number_of_random_orders, random_orders

    size_bytes, options = parse_bytes(size), parse_set_options(set_ or [])
    options_of(options, [algo])
    network = network_from(network_file)
    request = CostRequest(algo, size_bytes, model, options, str(order), smooth_latencies)
    result = cost_of(network, None if order is None else read_order(order), request)
    ranks, fabric, model_name, total, detail = result.order, result.fabric, result.model, result.cost_us, result.parts
    if random is None:
        random = number_of_random_orders(getattr(result.cost_of, "transfers", 0))
    orders_at_random = random_orders(np.unique(ranks), np.bincount(ranks, minlength=len(fabric.names)), seed)
    limit_s = _RANDOM_ORDERS_S if model_name in ("contention", SIMULATED) else None
    random_costs = _costs_of_measured(result.cost_of, itertools.islice(orders_at_random, random), random, limit_s)
    document: dict[str, Any] = {
        "schema": "plink.cost/1",
        "algo": algo,
        "model": model_name,
        "size_bytes": size_bytes,
        "ranks": len(ranks),
        "order": "as the hosts stand" if order is None else str(order),
        "hosts": result.hosts,
        "cost_us": round(total, 3),
        "interval_us": result.interval_us,
        "capacities": fabric.capacities,
        **({} if network.host_costs is None else {"host_costs": network.host_costs}),
        "network": network.fingerprint(),
        **({"smoothed": True} if smooth_latencies else {}),
        "random": None
        if not len(random_costs)
        else {
            "orders": len(random_costs),
            "seed": seed,
            "min_us": round(float(random_costs.min()), 3),
            "median_us": round(float(np.median(random_costs)), 3),
            "max_us": round(float(random_costs.max()), 3),
            "more_expensive": round(float((random_costs > total).mean()), 4),
        },
        "parts": [{"algo": name, "weight": round(weight, 4), **part.to_json()} for weight, name, part in detail],
    }
    if as_json:
        print_json(document)
        return
    stated = format_prediction(total, result.interval_us)
    of = "hosts as they stand" if order is None else f"the order of {order}"
    print(f"{algo}, {len(ranks)} ranks, {format_bytes(size_bytes)}, {of}, model {model_name}: {stated}")
    if order is None and workspace.ORDER.is_file():
        with contextlib.suppress(InputError):  # whoever uses it is told what is wrong with it
            if read_order(workspace.ORDER).network == network.fingerprint():
                say(f"`plink launch` would take {workspace.ORDER}, another order: --order {workspace.ORDER} prices it")
    for weight, name, part in detail:
        _explain(name if len(detail) > 1 else "", weight, part)
    if len(random_costs):
        sample = document["random"]
        print(
            f"random orders ({sample['orders']}): {format_us(sample['min_us'])} to {format_us(sample['max_us'])}, "
            f"median {format_us(sample['median_us'])}; {sample['more_expensive']:.0%} of them cost more than this one"
        )
    if network.host_costs is not None and model_name != "latency":
        print(host_costs(network.host_costs))
    if model_name in ("contention", SIMULATED) and not fabric.measured:
        say(f"shared capacities were not measured; they are {fabric.capacities}")


def _costs_of_measured(cost_function: Any, orders: Any, number: int, limit_s: float | None) -> Any:
    """Return the costs of those orders that use measured pairs only, of as many as the time allows."""
    import numpy as np

    costs, order_count, started = [], 0, time.monotonic()
    for order in orders:
        if limit_s is not None and time.monotonic() > started + limit_s:
            say(f"{order_count} of {number} random orders were priced in {limit_s:g} s")
            break
        order_count += 1
        with contextlib.suppress(NoAnswer):
            costs.append(cost_function(order))
    if len(costs) < order_count:
        say(f"{order_count - len(costs)} of {order_count} random orders use pairs that were not measured: left out")
    return np.array(costs)


def _explain(name: str, weight: float, breakdown: "CostBreakdown") -> None:
    """Print the rounds of one cost; equal consecutive rounds share a line."""
    if name:
        print(f"  {name}, which counts {weight:.0%}: {format_us(breakdown.cost_us)}")
    print(f"  slowest pair used: {breakdown.slowest[0]} - {breakdown.slowest[1]}")
    if breakdown.bottleneck is not None:
        link, share = breakdown.bottleneck
        print_lines(f"  busiest link: {link}, in use {share:.0%} of the time")
    if breakdown.model == "latency" and breakdown.cost_us != breakdown.latency_us.sum():
        chain = "the sum of all hops" if breakdown.cost_us > breakdown.latency_us.sum() else "the longest chain of hops"
        print(f"  the cost is {chain}, not of the rounds:")
    if breakdown.model == "contention" and not math.isclose(breakdown.cost_us, breakdown.sum_of_rounds_us):
        print("  rounds overlap and do not add up to the cost; each as if alone:")
    rows = list(zip(breakdown.latency_us.tolist(), breakdown.transfer_us.tolist(), breakdown.busiest, strict=True))
    start = 0
    for end in range(1, len(rows) + 1):
        if end == len(rows) or rows[end] != rows[start]:
            latency, transfer, busiest = rows[start]
            rounds_text = f"round {start + 1}" if end - start == 1 else f"rounds {start + 1}-{end}"
            transfer_text = "" if busiest == "latency" else f" + {format_us(transfer)}, {busiest}"
            farthest = "farthest hop" if breakdown.model == "latency" else "latency"
            print_lines(f"  {rounds_text}: {format_us(latency)} {farthest}{transfer_text}")
            start = end
