"""``plink advise``."""

import io
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

import plink
from plink.errors import UsageError
from plink.features.advise.request import FORMS, TUNERS, AdviseRequest, BalanceRequest
from plink.features.advise.show_balance import PRICING, recorded_step, show_balance
from plink.model.network import Network
from plink.model.request import parse_option
from plink.model.storage import write_bytes
from plink.model.units import format_bytes, format_us, parse_bytes, parse_duration
from plink.records import workspace
from plink.terminal.inputs import last_order, network_from
from plink.terminal.options import JobHosts, Json, NetworkFile, takes
from plink.terminal.screen import print_json, print_lines, result_console, say, status_line

if TYPE_CHECKING:
    from rich.table import Table

    from plink.features.advise.run import Advice
    from solvers.advice import CostLine

_MAX_TABLE_CHARS = 10_000  # characters: as wide as a table likes to be
_STEP = "Does a training step hide its exchange?"


@takes(AdviseRequest)
def advise(
    request: AdviseRequest,
    network_file: NetworkFile = None,
    hosts_file: JobHosts = None,
    size: Annotated[
        str | None, typer.Option(metavar="SIZE", help="A message size, or a range of sizes; default 1KB..1GB.")
    ] = None,
    algos: Annotated[
        str | None, typer.Option(metavar="NAME,...", help="Only these algorithms, such as ring,2lha.")
    ] = None,
    plot: Annotated[Path | None, typer.Option(help="Plot times over sizes to this file (.svg, .png, .pdf).")] = None,
    tuner: Annotated[
        str | None,
        typer.Option(
            "--format",
            help="Print a file for NCCL's tuner instead: ring or tree for a size, in the last order found here.",
        ),
    ] = None,
    parameters: Annotated[
        str | None, typer.Option(help="Bytes that a training step all-reduces: is it hidden?", rich_help_panel=_STEP)
    ] = None,
    step: Annotated[
        str | None, typer.Option(help="How long a step computes, like 350ms.", rich_help_panel=_STEP)
    ] = None,
    run: Annotated[
        str | None,
        typer.Option(help="Bytes and seconds of a step as this run had them: an id, or last.", rich_help_panel=_STEP),
    ] = None,
    overlap: Annotated[
        float | None,
        typer.Option(help="Share of the step that may hide the exchange; default 1.", rich_help_panel=_STEP),
    ] = None,
    prices: Annotated[
        Path | None,
        typer.Option(help="Prices of parts (TOML), where nothing is rented for price=.", rich_help_panel=_STEP),
    ] = None,
    max_network_age: Annotated[
        str, typer.Option(help="Warn of a network that is older.", rich_help_panel=_STEP)
    ] = "24h",
    as_json: Json = False,
) -> None:
    """Recommend the fastest algorithm and rank order for each message size on the measured network.

    With --parameters and --step: what a training step needs of each link in each form of its exchange, and what of it
    the step hides.

    Example: plink advise cloud.json --size 1KB..1GB --plot advice.svg
    """
    if tuner is not None:
        if tuner not in TUNERS:
            raise UsageError(f"--format {tuner}: choose one of {', '.join(TUNERS)}")
        if size or algos or plot or parameters or step or run or as_json:
            raise UsageError("--format has its own sizes and algorithms; omit the other options")
        _print_tuner(tuner, network_from(network_file, hosts_file))
        return
    if size is not None:
        low, high = _range(size)
        request = replace(request, min_bytes=low, max_bytes=high)
    if algos:
        request = replace(request, algorithms=tuple(algos.split(",")))
    if plot is not None:
        _check_plot_path(plot, network_file or workspace.NETWORK)
    if run is not None:
        size_bytes, step_s = recorded_step(run)
        parameters, step = parameters or f"{size_bytes}", step or f"{step_s:.6f}"
    if parameters is not None or step is not None:
        if parameters is None or step is None or size is not None or plot is not None:
            raise UsageError("--parameters and --step go together, and without --size and --plot")
        request = request if algos else replace(request, algorithms=FORMS)
        if overlap is None:
            say("--overlap 1: all of the step may hide the exchange; a backward pass is about two thirds of a step")
        share = 1.0 if overlap is None else overlap
        size_bytes, step_s = (
            parse_option("--parameters", parse_bytes, parameters),
            parse_option("--step", parse_duration, step),
        )
        max_age_s = parse_option("--max-network-age", parse_duration, max_network_age)
        balance_request = BalanceRequest(size_bytes, step_s, share, advise=request)
        network = network_from(network_file, hosts_file)
        show_balance(balance_request, network, network_file or workspace.NETWORK, prices, max_age_s, as_json)
        return
    if overlap is not None or prices is not None:
        raise UsageError(f"--{'prices' if overlap is None else 'overlap'} goes with --parameters and --step, or --run")
    network = network_from(network_file, hosts_file)
    with status_line(PRICING):
        advice = plink.advise(network, request)
    for algo, reason in advice.left_out.items():
        say(f"{algo} is left out: {reason}")
    if plot is not None:
        _plot(advice, plot)
        say(f"plot -> {plot}")
    if as_json:
        print_json(advice.stated().to_json())
    else:
        _print(advice)


def _print_tuner(kind: str, network: Network) -> None:
    """Print a tuner's file, and say which order it is for."""
    from plink.features.advise.tuner import tuner_lines

    order = last_order(network)
    if order is None:
        say("no order was found here: ranks as the network lists the hosts")
    rows = plink.tuner_rows(network, order)
    for row in rows:
        say(f"{row.algorithm} from {format_bytes(row.min_bytes)}: {row.gain:.2f} times as fast as the other, or more")
    if not rows:
        say("ring and tree differ by less than 5 %, or NCCL takes the faster one: its own choice stays")
    print_lines(*tuner_lines(kind, network, rows))


def _range(text: str) -> tuple[float, float]:
    low, dots, high = text.partition("..")
    return float(parse_option("--size", parse_bytes, low)), float(
        parse_option("--size", parse_bytes, high if dots else low)
    )


def _print(advice: "Advice") -> None:
    """Print a table that fits. On a narrow terminal only the algorithms that are fastest somewhere have a column, or
    only the fastest of each size."""
    algorithms = list(dict.fromkeys(line.algo for line in advice.lines))
    console = result_console()
    if not console.is_terminal:  # a program or a file has no width
        console = Console(width=_MAX_TABLE_CHARS)
    best = {advice.best(size).algo for size in advice.sizes}
    for shown in (algorithms, [algo for algo in algorithms if algo in best], []):
        table = _table(advice, shown)
        if console.measure(table, options=console.options.update(width=_MAX_TABLE_CHARS)).maximum <= console.width:
            break
    console.print(table)
    if hidden := [algo for algo in algorithms if algo not in shown]:
        reason = "nowhere the fastest" if shown else "too many for this width"
        print(f"without a column ({reason}): {', '.join(hidden)}; a wider terminal and --json have all")
    if advice.least is not None:
        least = advice.least
        print(f"least possible: {format_us(least.us_per_byte * 1e6)} a MB ({least.limited_by})")
    for stretch in advice.stretches:
        line, ends = stretch.line, dict.fromkeys((stretch.from_bytes, stretch.to_bytes))
        print(
            f"{' to '.join(map(format_bytes, ends))}: {line.algo}, order {line.family} "
            f"({' to '.join(format_us(line.at(size)) for size in ends)})"
        )
    if any(stretch.line.family != next(iter(advice.orders)) for stretch in advice.stretches):
        print("--json has hosts of each order, for `plink launch --order FILE` a line each; `reorder` has others")


def _table(advice: "Advice", shown: list[str]) -> "Table":
    """Return a table with a row per size: the time of each of these algorithms, or of the fastest one."""
    has_interval = any(advice.interval_us(advice.best(size), size) is not None for size in advice.sizes)
    interval = "; last: 90 % of a library's times" if has_interval else ""
    table = Table(
        title=f"by model {advice.model}, each algorithm in the best order of {', '.join(advice.orders)}{interval}",
        title_justify="left",
    )
    for name in ("size", *(shown or ["time"])):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("take", no_wrap=True)
    for size in advice.sizes:
        best = advice.best(size)
        cells = []
        for algo in shown or [best.algo]:
            line = advice.best(size, algo)
            text = "~" * line.is_by_rounds(size) + format_us(line.at(size))
            cells.append(f"[bold]{text}[/bold]" if algo == best.algo else text)
        table.add_row(format_bytes(size), *cells, f"{best.algo}, order {best.family}{_spread(advice, best, size)}")
    return table


def _spread(advice: "Advice", line: "CostLine", size_bytes: float) -> str:
    """Return the interval of a time, for the end of a row."""
    interval = advice.interval_us(line, size_bytes)
    return "" if interval is None else ": {} to {}".format(*map(format_us, interval))


def _check_plot_path(path: Path, network_file: Path) -> None:
    if path.suffix not in (".svg", ".png", ".pdf"):
        raise UsageError(f"--plot {path}: name a file ending in .svg, .png or .pdf")
    if not path.parent.is_dir():
        raise UsageError(f"--plot {path}: its folder is missing")
    if path.is_dir():
        raise UsageError(f"--plot {path}: is a folder; name a file in it")
    workspace.check_output(path, None, (network_file,))


def _plot(advice: "Advice", path: Path) -> None:
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt
    import numpy as np

    low, high = advice.request.min_bytes, advice.request.max_bytes
    sizes = np.geomspace(low, max(high, low * 1.01), 200)
    figure, axes = plt.subplots(figsize=(8, 5), layout="constrained")
    for k, algo in enumerate(dict.fromkeys(line.algo for line in advice.lines)):
        times = [advice.best(size, algo).at(size) / 1e3 for size in sizes]
        # Some algorithms cost the same: the dashes of one let the other be seen.
        axes.plot(sizes, times, label=algo, linewidth=1.5, linestyle=("-", "--", "-.", ":")[k % 4])
    axes.plot(
        sizes,
        [advice.best(size).at(size) / 1e3 for size in sizes],
        color="black",
        linewidth=3,
        alpha=0.25,
        label="best",
    )
    for stretch in advice.stretches[1:]:
        axes.axvline(stretch.from_bytes, color="grey", linewidth=0.8, linestyle=":")
    axes.set(
        xscale="log", yscale="log", xlabel="bytes", ylabel="milliseconds", title="each in the best of the orders tried"
    )
    axes.legend(fontsize="small")
    data = io.BytesIO()
    figure.savefig(data, format=path.suffix[1:])
    plt.close(figure)
    write_bytes(path, data.getvalue())
