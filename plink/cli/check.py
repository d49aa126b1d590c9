"""``plink check``."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from plink.cli.job_options import JobOptions, option, takes
from plink.errors import UsageError

_MEASURE_PANEL, _ACCEPTANCE_PANEL, _RESULTS_PANEL = "Run orders on the hosts", "What is asked for", "Results"
_ALGO, _SIZE, _ORDERS, _REPEATS, _TIMEOUT_S = "gloo", "16MB", 10, 3, 1800.0


@takes(
    "env", "python", "interface", "timeout", "accept_new_host_keys", "dry_run", "as_json",
)  # fmt: skip
def check(
    options: JobOptions,
    network_file: Annotated[
        Path | None, typer.Argument(metavar="NETWORK", help="What `plink probe` wrote; default .plink/network.json.")
    ] = None,
    measure: Annotated[
        bool, typer.Option("--measure", help="Run orders on the hosts, and compare with what the model says.")
    ] = False,
    results: Annotated[
        Path | None,
        typer.Option(help="Judge orders that were run before, without hosts; with NETWORK they are priced anew."),
    ] = None,
    truth: Annotated[
        Path | None, typer.Option(help="Where the hosts really are: plink.truth/1, groups, or a topology file.")
    ] = None,
    algo: Annotated[list[str] | None, option(
        _MEASURE_PANEL, "gloo (PyTorch's own), openmpi-... (mpirun with mpi4py) or any algorithm, by plink's backend; several if "
        "repeated (gloo).")] = None,
    size: Annotated[str | None, option(_MEASURE_PANEL, "Bytes that are reduced (16MB).")] = None,
    model: Annotated[str | None, option(
        _MEASURE_PANEL, "latency, alpha-beta, contention, or auto; also of NETWORK --results, else priced as then.")] = None,
    set_: Annotated[list[str] | None, option(_MEASURE_PANEL, "An option of the algorithm: --set base=4.", "--set")] = None,
    orders: Annotated[
        int | None, option(_MEASURE_PANEL, "How many, at even steps of the cost (10).", min=2, max=100)] = None,
    repeats: Annotated[int | None, option(_MEASURE_PANEL, "Timed all-reduces of each order (3).", min=1, max=100)] = None,
    seed: Annotated[
        int | None, option(_MEASURE_PANEL, "Of the orders, and of the embedding of --truth (0).", min=0, max=2**63 - 1)] = None,
    min_spearman: Annotated[float | None, option(
        _ACCEPTANCE_PANEL, "Exit code 1 below this rank correlation, such as 0.9; 4 where orders are too few to tell.")] = None,
    max_regression: Annotated[Path | None, option(
        _ACCEPTANCE_PANEL, "Exit code 1 when this is worse than that earlier check.", metavar="BASELINE")] = None,
    tolerance: Annotated[float | None, option(
        _ACCEPTANCE_PANEL, "With BASELINE: share by which the cheapest order may take longer (0.1).", min=0, max=10)] = None,
    min_paia: Annotated[float | None, option(
        _ACCEPTANCE_PANEL, "With --truth: exit code 1 when less than this share of triplets is right, such as 0.9.")] = None,
    output: Annotated[Path | None, option(
        _RESULTS_PANEL, "Where --measure leaves what it found, - for standard output; default .plink/check.json.",
        "-o", "--output")] = None,
    junit: Annotated[Path | None, option(_RESULTS_PANEL, "Also write it as JUnit XML, for CI.")] = None,
) -> None:  # fmt: skip
    """Say whether the cost model ranks orders as the clock does, and whether measured distances are right.

    --measure runs one collective by orders from the cheapest to the dearest,
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
    from plink.model.units import parse_bytes
    from solvers.checking.agreement import FEWEST
    from solvers.checking.regression import Tolerance

    _check_combination(measure, results, truth, min_spearman, max_regression, min_paia, output)
    measure_options = {
        "--algo": algo, "--size": size, "--set": set_, "--orders": orders, "--repeats": repeats,
        "--dry-run": options.dry_run or None, "--python": options.python, "--env": options.env,
        "--interface": options.interface, "--timeout": options.timeout,
        "--accept-new-host-keys": options.accept_new_host_keys or None,
        **({} if network_file is not None and results is not None else {"--model": model}),
        **({} if truth is not None else {"--seed": seed}),
    }  # fmt: skip
    acceptance_options = {
        "--truth": truth, "--min-spearman": min_spearman, "--max-regression": max_regression, "--junit": junit,
        "-o": output,
    }  # fmt: skip
    if not measure:
        _refuse_set(measure_options, "--measure", "nothing is run here" + ("; NETWORK prices the runs anew, by --model too"
                      if results is not None and model is not None else ""))  # fmt: skip
    if max_regression is None:
        _refuse_set({"--tolerance": tolerance}, "--max-regression", "there is nothing else to tolerate")
    if options.dry_run:
        _refuse_set(acceptance_options, "what is run", "--dry-run finds nothing that could be judged or kept")
    if measure and max_regression is not None and max_regression.resolve() == target_of(output).resolve():
        raise UsageError(f"--max-regression {max_regression}: --measure leaves there what it finds, so that a worse "
                         "result would be the next baseline; give another file with -o")  # fmt: skip
    if measure and min_spearman is not None and (orders or _ORDERS) < FEWEST:
        raise UsageError(f"--orders {orders}: {FEWEST} at least, for --min-spearman to be judged by")
    algorithms = tuple(dict.fromkeys(algo or [_ALGO]))
    for name in algorithms:
        check_runnable(name)
    config = BenchmarkConfig(
        parse_bytes(_SIZE if size is None else size), "auto" if model is None else model, orders or _ORDERS,
        repeats or _REPEATS, seed or 0, tuple(set_ or ()), options.environment, options.python,
        options.interface, options.timeout_s or _TIMEOUT_S,
    )  # fmt: skip
    if config.size_bytes < 4:
        raise UsageError(f"--size {size}: an element has 4 bytes")
    limits = AcceptanceLimits(min_spearman, (), Tolerance() if tolerance is None else Tolerance(time=tolerance))
    run(
        CheckRequest(
            network_file, measure, results, truth, min_paia, algorithms, config, model, limits, max_regression,
            options.dry_run, output, junit, options.as_json, options.accept_new_host_keys,
        )
    )  # fmt: skip


def _check_combination(
    measure: bool, results: Path | None, truth: Path | None, min_spearman: float | None, max_regression: Path | None,
    min_paia: float | None, output: Path | None,
) -> None:  # fmt: skip
    """:raises UsageError: for options that ask for nothing, or do not go together."""
    if not measure and results is None and truth is None:
        raise UsageError("--measure runs orders on the hosts, --results FILE judges recorded runs, --truth FILE tells "
                         "where hosts are: give one of them (docs/ci.md)")  # fmt: skip
    if measure and results is not None:
        raise UsageError("--measure runs orders anew, --results judges recorded ones; give one of the two")
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
    """:raises UsageError: naming those of the options that were typed (not None), which would change nothing."""
    typed = [name for name, value in options.items() if value is not None]
    if typed:
        raise UsageError(f"{', '.join(typed)} {'goes' if len(typed) == 1 else 'go'} with {required}: {reason}")
