"""``plink cost``."""

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from plink.cli.screen import print_json, say
from plink.errors import NoAnswer
from plink.model.units import format_bytes, format_us, parse_bytes

if TYPE_CHECKING:
    from solvers.costs.evaluator import Price


def cost(
    network_file: Annotated[
        Path | None, typer.Argument(metavar="NETWORK", help="What `plink probe` wrote; default .plink/network.json.")
    ] = None,
    algo: Annotated[str, typer.Option(help="The collective's algorithm, or what a library runs (gloo, nccl, ...).")] = (
        "ring"
    ),
    size: Annotated[str, typer.Option(help="Bytes that are reduced (100MB).")] = "100MB",
    model: Annotated[str, typer.Option(help="latency, alpha-beta, contention, or auto.")] = "auto",
    order: Annotated[
        Path | None, typer.Option(help="An order, or one name a line; default: as the hosts stand in the file.")
    ] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="An option of the algorithm: --set base=4, --set fan-out=3.")
    ] = None,
    random: Annotated[int, typer.Option(min=0, max=100_000, help="Random orders to compare with.")] = 200,
    seed: Annotated[int, typer.Option(min=0, help="Draws the random orders.")] = 0,
    denoise: Annotated[
        bool,
        typer.Option("--denoise", help="Take round trips as an embedding fits them; `plink embed` says if it helps."),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Say what a collective costs on the measured network, and what that is made of.

    Example: plink cost cloud.json --algo ring --size 100MB --order order.json
    """
    import numpy as np

    from plink.api.algorithms import options_of
    from plink.api.costing import CostRequest
    from plink.api.costing import cost as cost_of
    from plink.cli.inputs import network_from
    from plink.cli.set_options import parse_set_options
    from plink.model.order import read_order
    from solvers.ordering.problem import expand_slots

    size_bytes, options = parse_bytes(size), parse_set_options(set_ or [])
    options_of(options, [algo])
    network = network_from(network_file)
    asked = CostRequest(algo, size_bytes, model, options, str(order), denoise)
    found = cost_of(network, None if order is None else read_order(order), asked)
    ranks, fabric, chosen, total, detail = found.order, found.fabric, found.model, found.cost_us, found.parts
    rng = np.random.default_rng(seed)
    hosts, slots = np.unique(ranks), np.bincount(ranks, minlength=len(fabric.names))
    drawn = _priced(found.price, (expand_slots(rng.permutation(hosts), slots) for _ in range(random)))
    document: dict[str, Any] = {
        "schema": "plink.cost/1",
        "algo": algo,
        "model": chosen,
        "size_bytes": size_bytes,
        "ranks": len(ranks),
        "order": "as the hosts stand" if order is None else str(order),
        "hosts": found.hosts,
        "cost_us": round(total, 3),
        "capacities": fabric.capacities,
        "network": network.fingerprint(),
        **({"denoised": True} if denoise else {}),
        "random": None
        if not len(drawn)
        else {
            "orders": len(drawn),
            "seed": seed,
            "min_us": round(float(drawn.min()), 3),
            "median_us": round(float(np.median(drawn)), 3),
            "max_us": round(float(drawn.max()), 3),
            "dearer": round(float((drawn > total).mean()), 4),
        },
        "parts": [{"algo": name, "weight": round(weight, 4), **part.to_json()} for weight, name, part in detail],
    }
    if as_json:
        print_json(document)
        return
    print(f"{algo}, {len(ranks)} ranks, {format_bytes(size_bytes)}, model {chosen}: {format_us(total)}")
    for weight, name, part in detail:
        _explain(name if len(detail) > 1 else "", weight, part)
    if len(drawn):
        others = document["random"]
        print(
            f"random orders ({len(drawn)}): {format_us(others['min_us'])} to {format_us(others['max_us'])}, median "
            f"{format_us(others['median_us'])}; {others['dearer']:.0%} of them are dearer than this one"
        )
    if chosen == "contention" and not fabric.measured:
        say(f"what groups share was not measured; it is {fabric.capacities}")


def _priced(price: Any, orders: Any) -> Any:
    """The prices of those orders that have one: where pairs were not measured, some use them."""
    import numpy as np

    found, drawn = [], 0
    for order in orders:
        drawn += 1
        with contextlib.suppress(NoAnswer):
            found.append(price(order))
    if len(found) < drawn:
        say(f"{drawn - len(found)} of {drawn} random orders use pairs that were not measured: left out")
    return np.array(found)


def _explain(name: str, weight: float, price: "Price") -> None:
    """The rounds of one price, equal ones that follow each other on one line."""
    if name:
        print(f"  {name}, which counts {weight:.0%}: {format_us(price.cost_us)}")
    print(f"  slowest pair used: {price.slowest[0]} - {price.slowest[1]}")
    if price.model == "latency" and price.cost_us != price.latency_us.sum():
        how = "the sum of all hops" if price.cost_us > price.latency_us.sum() else "the longest chain of hops"
        print(f"  the price is {how}, not of the rounds:")
    rows = list(zip(price.latency_us.tolist(), price.transfer_us.tolist(), price.busiest, strict=True))
    start = 0
    for end in range(1, len(rows) + 1):
        if end == len(rows) or rows[end] != rows[start]:
            latency, transfer, busiest = rows[start]
            which = f"round {start + 1}" if end - start == 1 else f"rounds {start + 1}-{end}"
            by = "" if busiest == "latency" else f" + {format_us(transfer)}, {busiest}"
            farthest = "farthest hop" if price.model == "latency" else "latency"
            print(f"  {which}: {format_us(latency)} {farthest}{by}")
            start = end
