"""``plink check``."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from plink.errors import UsageError
from plink.features.launch.request import JobRequest
from plink.terminal.options import takes

_MEASURE_PANEL, _ACCEPTANCE_PANEL, _RESULTS_PANEL = "Benchmark on the hosts", "Acceptance limits", "Results"
_ALGO, _SIZE, _ORDERS, _REPEATS, _TIMEOUT_S = "gloo", "16MB", 10, 3, 1800.0


def option(panel: str, text: str, *names: str, **more: Any) -> Any:
    """Return an option under that heading of the help."""
    return typer.Option(*names, rich_help_panel=panel, help=text, **more)


@takes(JobRequest, only="env python interface timeout_s accept_new_host_keys dry_run as_json")
def check(
    options: JobRequest,
    network_file: Annotated[
        Path | None, typer.Argument(metavar="NETWORK", help="What `plink probe` wrote; default .plink/network.json.")
    ] = None,
    measure: Annotated[
        bool, typer.Option("--measure", help="Run orders on the hosts and compare with predictions.")
    ] = False,
    results: Annotated[
        Path | None,
        typer.Option(help="Evaluate recorded runs, without hosts; with NETWORK their costs are computed again."),
    ] = None,
    truth: Annotated[
        Path | None, typer.Option(help="True locations of the hosts: plink.truth/1, groups, or a topology file.")
    ] = None,
    algo: Annotated[list[str] | None, option(
        _MEASURE_PANEL, "gloo (PyTorch's own), openmpi-... (mpirun with mpi4py) or any algorithm, by plink's backend; "
        "repeat for several; default: gloo.", metavar="[gloo|ring|...]")] = None,
    size: Annotated[str | None, option(_MEASURE_PANEL, "Bytes to reduce (16MB).")] = None,
    model: Annotated[str | None, option(
        _MEASURE_PANEL, "Cost model; with NETWORK --results too. Default: auto, or that of the recorded runs.")] = None,
    set_: Annotated[
        list[str] | None, option(_MEASURE_PANEL, "An option of the algorithm: --set base=4.", "--set")] = None,
    orders: Annotated[
        int | None, option(_MEASURE_PANEL, "Number of orders, at even steps of the cost (10).", min=2, max=100)] = None,
    repeats: Annotated[
        int | None, option(_MEASURE_PANEL, "Timed all-reduces of each order (3).", min=1, max=100)] = None,
    calibrate: Annotated[bool, option(
        _MEASURE_PANEL, "Also time smaller sizes, and write what hosts take for each message and byte into NETWORK; "
        "with --results from recorded runs of four sizes or more.", "--calibrate")] = False,
    seed: Annotated[
        int | None,
        option(_MEASURE_PANEL, "Of the orders, and of the embedding of --truth (0).", min=0, max=2**63 - 1)] = None,
    min_spearman: Annotated[float | None, option(
        _ACCEPTANCE_PANEL, "Exit code 1 below this rank correlation, such as 0.9; 4 with too few orders.")] = None,
    max_regression: Annotated[Path | None, option(
        _ACCEPTANCE_PANEL, "Exit code 1 when this is worse than that earlier check.", metavar="BASELINE")] = None,
    tolerance: Annotated[float | None, option(
        _ACCEPTANCE_PANEL, "With BASELINE: share by which the cheapest order may take longer (0.1).",
        min=0, max=10)] = None,
    min_paia: Annotated[float | None, option(
        _ACCEPTANCE_PANEL, "With --truth: exit code 1 below this share of correct triplets, such as 0.9.")] = None,
    output: Annotated[Path | None, option(
        _RESULTS_PANEL, "File for the result of --measure, - for standard output; default .plink/check.json.",
        "-o", "--output")] = None,
    junit: Annotated[Path | None, option(_RESULTS_PANEL, "Also write it as JUnit XML, for CI.")] = None,
) -> None:  # fmt: skip
    """Validate the cost model against measured times, and measured distances against true locations.

    --measure runs one collective in orders from the cheapest to the costliest,
    each algorithm's job for 30 minutes at most, and compares: Spearman's rank
    correlation, predicted against measured times, what the best order gains.
    --truth compares measured distances with where hosts are (PAIA: of
    triplets a, b; c the share in which the nearer of a and b was measured to
    be nearer; 0.5 is chance). docs/ci.md has workflows for GitHub and GitLab.

    Example: plink check cloud.json --measure --algo gloo --min-spearman 0.9 --junit check.xml
    """
    from plink.cli.acceptance import AcceptanceLimits
    from plink.cli.check_run import CheckRequest, run, target_of
    from plink.cli.order_benchmark import BenchmarkConfig, check_runnable
    from plink.model.storage import STANDARD
    from plink.model.units import parse_bytes
    from solvers.checking.agreement import MIN_ORDERS
    from solvers.checking.regression import Tolerance

    _check_combination(measure, results, truth, min_spearman, max_regression, min_paia, output)
    if calibrate and network_file is not None and str(network_file) == STANDARD:
        raise UsageError("--calibrate writes into the network file, and standard input is none; name a file")
    if calibrate and not measure and (network_file is None or results is None):
        raise UsageError("--calibrate goes with --measure, or with NETWORK and --results")
    measure_options = {
        "--algo": algo, "--size": size, "--set": set_, "--orders": orders, "--repeats": repeats,
        "--dry-run": options.dry_run or None, "--python": options.python, "--env": options.env or None,
        "--interface": options.interface, "--timeout": options.timeout_s,
        "--accept-new-host-keys": options.accept_new_host_keys or None,
        **({} if network_file is not None and results is not None else {"--model": model}),
        **({} if truth is not None else {"--seed": seed}),
    }  # fmt: skip
    acceptance_options = {
        "--truth": truth, "--min-spearman": min_spearman, "--max-regression": max_regression, "--junit": junit,
        "-o": output,
    }  # fmt: skip
    if not measure:
        hint = (
            "; add NETWORK to compute the costs again by --model" if results is not None and model is not None else ""
        )
        _refuse_set(measure_options, "--measure", f"nothing is run here{hint}")
    if max_regression is None:
        _refuse_set({"--tolerance": tolerance}, "--max-regression", "the tolerance is relative to that baseline")
    if options.dry_run:
        _refuse_set(acceptance_options, "what is run", "--dry-run measures nothing")
    if measure and max_regression is not None and max_regression.resolve() == target_of(output).resolve():
        raise UsageError(f"--max-regression {max_regression}: --measure would overwrite it, and a worse "
                         "result would become the baseline; give another file with -o")  # fmt: skip
    if measure and min_spearman is not None and (orders or _ORDERS) < MIN_ORDERS:
        raise UsageError(f"--orders {orders}: {MIN_ORDERS} at least are needed for --min-spearman")
    algorithms = tuple(dict.fromkeys(algo or [_ALGO]))
    for name in algorithms:
        check_runnable(name)
    config = BenchmarkConfig(
        parse_bytes(_SIZE if size is None else size), "auto" if model is None else model, orders or _ORDERS,
        repeats or _REPEATS, seed or 0, tuple(set_ or ()), dict(options.env), options.python,
        options.interface, options.timeout_s or _TIMEOUT_S,
    )  # fmt: skip
    if config.size_bytes < 4:
        raise UsageError(f"--size {size}: an element has 4 bytes")
    limits = AcceptanceLimits(min_spearman, (), Tolerance() if tolerance is None else Tolerance(time=tolerance))
    run(
        CheckRequest(
            network_file, measure, results, truth, min_paia, algorithms, config, model, limits, max_regression,
            options.dry_run, output, junit, options.as_json, options.accept_new_host_keys, calibrate,
        )
    )  # fmt: skip


def _check_combination(
    measure: bool, results: Path | None, truth: Path | None, min_spearman: float | None, max_regression: Path | None,
    min_paia: float | None, output: Path | None,
) -> None:  # fmt: skip
    """Refuse options that ask for nothing, or that exclude each other.

    :raises UsageError: for options that ask for nothing, or do not go together.
    """
    if not measure and results is None and truth is None:
        raise UsageError("--measure runs orders on the hosts, --results FILE evaluates recorded runs, --truth FILE has "
                         "the true locations of hosts: give one of them (docs/ci.md)")  # fmt: skip
    if measure and results is not None:
        raise UsageError("--measure runs orders, --results evaluates recorded ones; give one of the two")
    if min_paia is not None and truth is None:
        raise UsageError("--min-paia goes with --truth")
    if min_paia is not None and not 0 <= min_paia <= 1:
        raise UsageError(f"--min-paia {min_paia:g}: give a share, 0 to 1")
    if min_spearman is not None and not -1 <= min_spearman <= 1:
        raise UsageError(f"--min-spearman {min_spearman:g}: give a correlation, -1 to 1")
    if (min_spearman is not None or max_regression is not None) and not measure and results is None:
        raise UsageError("--min-spearman and --max-regression go with --measure or --results")
    if output is not None and not measure:
        raise UsageError("-o goes with --measure; --json prints what was found")


def _refuse_set(options: Mapping[str, object], required: str, reason: str) -> None:
    """Refuse those of these options that were typed (not None), because they would have no effect.

    :raises UsageError: naming those of the options that were typed (not None), which would change nothing.
    """
    typed = [name for name, value in options.items() if value is not None]
    if typed:
        raise UsageError(f"{', '.join(typed)} {'goes' if len(typed) == 1 else 'go'} with {required}: {reason}")
