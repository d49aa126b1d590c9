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

_MOST_TRANSFERS_RANKS = 1024  # a schedule of more ranks is large; its price is known without


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

    from plink.cli.algorithms import fabric_from, groups_in, options_from, options_in, order_from, rank_groups
    from plink.cli.inputs import network_from
    from plink.model.order import read_order
    from solvers.costs.by_name import model_for, pricing_for
    from solvers.ordering.task import with_slots

    size_bytes = parse_bytes(size)
    options_from(set_ or [], [algo])
    network = network_from(network_file)
    fabric = fabric_from(network, denoise)
    found, where = (None if order is None else read_order(order)), str(order)
    ranks = order_from(network, found, where)
    groups = groups_in(found, where, len(ranks)) or rank_groups(fabric, ranks)
    options = options_from([*options_in(found, where, algo), *(set_ or [])], [algo], groups)
    chosen = model_for(model, fabric)
    price = pricing_for(algo, len(ranks), options, fabric, size_bytes, chosen)
    total = price(ranks)
    detail = _detail(algo, options, fabric, ranks, size_bytes, chosen)
    rng = np.random.default_rng(seed)
    hosts, slots = np.unique(ranks), np.bincount(ranks, minlength=len(fabric.names))
    drawn = _priced(price, (with_slots(rng.permutation(hosts), slots) for _ in range(random)))
    document: dict[str, Any] = {
        "schema": "plink.cost/1",
        "algo": algo,
        "model": chosen,
        "size_bytes": size_bytes,
        "ranks": len(ranks),
        "order": "as the hosts stand" if order is None else str(order),
        "hosts": [fabric.names[i] for i in dict.fromkeys(ranks.tolist())],
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


def _detail(
    algo: str, options: Any, fabric: Any, ranks: Any, size_bytes: float, model: str
) -> "list[tuple[float, str, Price]]":
    """(weight, name, price with its rounds) of what the algorithm is made of."""
    from solvers.costs.by_name import parts_of
    from solvers.costs.evaluator import evaluate
    from solvers.schedules.catalogue import schedule_for

    if len(ranks) > _MOST_TRANSFERS_RANKS:
        say(f"more than {_MOST_TRANSFERS_RANKS} ranks: the price alone, without its rounds")
        return []
    return [
        (weight, name, evaluate(schedule_for(name, len(ranks), options), fabric, ranks, size_bytes, model))
        for weight, name in parts_of(algo, size_bytes)
    ]


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
