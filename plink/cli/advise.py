"""``plink advise``."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from plink.cli.screen import print_json, say
from plink.errors import NoAnswer, PlinkError, UsageError
from plink.model.units import format_bytes, format_us, parse_bytes
from plink.records import workspace

if TYPE_CHECKING:
    from rich.table import Table

    from solvers.advice import Line, Stretch

# The algorithms as such; what libraries run are cases of these.
_ALGORITHMS = (
    "ring", "halving-doubling", "recursive-doubling", "tree", "double-binary-tree", "bcube", "2lha", "flat",
)  # fmt: skip
_SEARCH_S = 5.0
_KICKS = 1000  # a host
_UNLIMITED = 10_000  # characters: as wide as a table likes to be


def advise(
    network_file: Annotated[
        Path | None, typer.Argument(metavar="NETWORK", help="What `plink probe` wrote; default .plink/network.json.")
    ] = None,
    size: Annotated[str, typer.Option(help="A size, or a range of sizes: 1KB..1GB.")] = "1KB..1GB",
    model: Annotated[str, typer.Option(help="alpha-beta, contention, or auto.")] = "auto",
    algos: Annotated[str | None, typer.Option(help="Only these, with commas: ring,2lha.")] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="An option of the algorithms: --set base=4, --set fan-out=3.")
    ] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw times over sizes there (.svg, .png, .pdf).")] = None,
    seed: Annotated[int, typer.Option(min=0, help="For the search for a ring, which takes five seconds at most.")] = 0,
    denoise: Annotated[
        bool,
        typer.Option("--denoise", help="Take round trips as an embedding fits them; `plink embed` says if it helps."),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Say which algorithm, in which order, is the fastest for which size on the measured network.

    Example: plink advise cloud.json --size 1KB..1GB --plot advice.svg
    """
    from plink.api.algorithms import fabric_from, order_from, rank_groups
    from plink.cli.inputs import network_from
    from plink.cli.set_options import options_from
    from solvers.advice import envelope, lines
    from solvers.costs.by_name import model_for

    low, high = _range(size)
    names = tuple(algos.split(",")) if algos else _ALGORITHMS
    _known(names)
    if plot is not None:
        _plottable(plot, network_file or workspace.NETWORK)
    network = network_from(network_file)
    fabric = fabric_from(network, denoise)
    chosen = model_for(model, fabric)
    if model == "latency":
        raise UsageError("--model latency knows no sizes; alpha-beta and contention do")
    if chosen == "latency" and model == "auto":
        chosen = "contention"
        say(f"no rates were measured; capacities are {fabric.capacities}")
    given = order_from(network, None)
    orders = _orders(network, fabric, given, seed)
    found: list[Line] = []
    left_out: dict[str, str] = {}
    unmeasured: NoAnswer | None = None
    for family, order in orders.items():
        options = options_from(set_ or [], names, rank_groups(fabric, order))
        for algo in names:
            try:
                more, missing = lines(fabric, {family: order}, {algo: options}, chosen)
            except NoAnswer as error:  # a pair that this algorithm uses in this order
                more, missing, unmeasured = [], {algo: str(error)}, error
            found += more
            left_out |= missing
    priced = {line.algo for line in found}
    left_out = {algo: why for algo, why in left_out.items() if algo not in priced}
    if not found:
        raise unmeasured or UsageError(f"none of the algorithms fits: {next(iter(left_out.values()))}")
    for algo, why in left_out.items():
        say(f"{algo} is left out: {why}")
    stretches = envelope(found, low, high)
    if plot is not None:
        _draw(found, stretches, low, high, plot)
        say(f"plot -> {plot}")
    if as_json:
        document = _document(network, fabric, chosen, low, high, found, stretches, left_out)
        print_json(document | ({"denoised": True} if denoise else {}))
        return
    _print(found, stretches, low, high, chosen)


def _range(text: str) -> tuple[float, float]:
    low, dots, high = text.partition("..")
    sizes = (parse_bytes(low), parse_bytes(high if dots else low))
    if not 0 < sizes[0] <= sizes[1]:
        raise UsageError(f"--size {text}: give a size of more than 0 bytes, or a range like 1KB..1GB")
    return float(sizes[0]), float(sizes[1])


def _known(names: tuple[str, ...]) -> None:
    from solvers.schedules.catalogue import ALGORITHMS

    for name in names:
        if name not in ALGORITHMS:
            raise UsageError(f"--algos {name}: there are {', '.join(ALGORITHMS)}")


def _orders(network: Any, fabric: Any, given: Any, seed: int) -> dict[str, Any]:
    """Families of orders: as given, groups kept together, and the best ring that a short search finds."""
    import time

    import numpy as np

    from solvers.ordering.progress import SearchBudget
    from solvers.ordering.ring import search_ring

    orders = {"given": given}
    if len(set(fabric.group_of.tolist())) > 1:
        orders["grouped"] = given[np.argsort(fabric.group_of[given], kind="stable")]
    if np.isfinite(fabric.rtt_us).all() and len(set(given.tolist())) == len(given):
        deadline = time.monotonic() + _SEARCH_S
        budget = SearchBudget(_KICKS * len(given), lambda progress: time.monotonic() < deadline, patient=False)
        orders["ring"] = search_ring(fabric.rtt_us, seed, budget).order
    return orders


def _sizes(low: float, high: float) -> list[float]:
    """Round figures from low to high: 1, 4, 16, ... times the first."""
    number = math.floor(math.log(high / low, 4) + 1e-9) + 1
    sizes = [low * 4**k for k in range(number)]
    return sizes if math.isclose(sizes[-1], high) else [*sizes, high]


def _best(found: "list[Line]", size: float, algo: str | None = None) -> "Line":
    return min((line for line in found if algo in (None, line.algo)), key=lambda line: line.at(size))


def _print(found: "list[Line]", stretches: "list[Stretch]", low: float, high: float, model: str) -> None:
    """A table that fits: where a terminal is too narrow for all algorithms, only those that are the fastest somewhere
    have a column, or none but the fastest of each size."""
    from rich.console import Console

    algorithms = list(dict.fromkeys(line.algo for line in found))
    console, sizes = Console(), _sizes(low, high)
    if not console.is_terminal:  # a program or a file has no width
        console = Console(width=30 + 22 * len(algorithms))
    best = {_best(found, size).algo for size in sizes}
    for shown in (algorithms, [algo for algo in algorithms if algo in best], []):
        table = _table(found, sizes, shown, model)
        if console.measure(table, options=console.options.update(width=_UNLIMITED)).maximum <= console.width:
            break
    console.print(table)
    if left := [algo for algo in algorithms if algo not in shown]:
        why = "nowhere the fastest" if shown else "too many for this width"
        print(f"without a column ({why}): {', '.join(left)}; a wider terminal and --json have all")
    for stretch in stretches:
        line = stretch.line
        print(
            f"{format_bytes(stretch.from_bytes)} to {format_bytes(stretch.to_bytes)}: {line.algo}, "
            f"order {line.family} ({format_us(line.start_us)} + {format_us(line.us_per_byte * 1e6)} a MB)"
        )


def _table(found: "list[Line]", sizes: list[float], shown: list[str], model: str) -> "Table":
    """A row a size: what each of these algorithms takes, or if there are none what the fastest one does."""
    from rich.table import Table

    table = Table(title=f"by model {model}, each algorithm in the best of the orders tried", title_justify="left")
    for name in ("size", *(shown or ["time"])):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("take", no_wrap=True)
    for size in sizes:
        best = _best(found, size)
        cells = []
        for algo in shown or [best.algo]:
            text = format_us(_best(found, size, algo).at(size))
            cells.append(f"[bold]{text}[/bold]" if algo == best.algo else text)
        table.add_row(format_bytes(size), *cells, f"{best.algo}, order {best.family}")
    return table


def _document(
    network: Any, fabric: Any, model: str, low: float, high: float,
    found: "list[Line]", stretches: "list[Stretch]", left_out: dict[str, str],
) -> dict[str, Any]:  # fmt: skip
    def line(line: "Line") -> dict[str, Any]:
        return {
            "algo": line.algo,
            "order": line.family,
            "start_us": round(line.start_us, 3),
            "us_per_mb": round(line.us_per_byte * 1e6, 3),
        }

    return {
        "schema": "plink.advice/1",
        "model": model,
        "capacities": fabric.capacities,
        "network": network.fingerprint(),
        "best": [{"from_bytes": round(s.from_bytes), "to_bytes": round(s.to_bytes)} | line(s.line) for s in stretches],
        "lines": [line(one) for one in found],
        "sizes": [
            {"size_bytes": round(size)} | line(best) | {"time_us": round(best.at(size), 3)}
            for size in _sizes(low, high)
            for best in [_best(found, size)]
        ],
        "left_out": left_out,
    }


def _plottable(path: Path, network_file: Path) -> None:
    if path.suffix not in (".svg", ".png", ".pdf"):
        raise UsageError(f"--plot {path}: name a file ending in .svg, .png or .pdf")
    if not path.parent.is_dir():
        raise UsageError(f"--plot {path}: its folder is missing")
    if path.is_dir():
        raise UsageError(f"--plot {path}: is a folder; name a file in it")
    workspace.check_output(path, None, (network_file,))


def _draw(found: "list[Line]", stretches: "list[Stretch]", low: float, high: float, path: Path) -> None:
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt
    import numpy as np

    high = max(high, low * 1.01)
    sizes = np.geomspace(low, high, 200)
    figure, axes = plt.subplots(figsize=(8, 5), layout="constrained")
    for k, algo in enumerate(dict.fromkeys(line.algo for line in found)):
        times = [_best(found, size, algo).at(size) / 1e3 for size in sizes]
        # Some algorithms cost the same: the dashes of one let the other be seen.
        axes.plot(sizes, times, label=algo, linewidth=1.5, linestyle=("-", "--", "-.", ":")[k % 4])
    axes.plot(
        sizes, [_best(found, size).at(size) / 1e3 for size in sizes], color="black", linewidth=3, alpha=0.25,
        label="best",
    )  # fmt: skip
    for stretch in stretches[1:]:
        axes.axvline(stretch.from_bytes, color="grey", linewidth=0.8, linestyle=":")
    axes.set(
        xscale="log", yscale="log", xlabel="bytes", ylabel="milliseconds", title="each in the best of the orders tried"
    )
    axes.legend(fontsize="small")
    try:
        figure.savefig(path)
    except OSError as error:
        raise PlinkError(f"cannot write {path}: {error.strerror}") from None
    plt.close(figure)
