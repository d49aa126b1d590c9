"""What ``plink check`` finds, and whether that is what was asked for.

Imported when the command runs: it needs the solvers.
"""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from plink.cli.junit import Case
from plink.cli.screen import printable, say
from plink.errors import InputError, NoAnswer
from plink.model.trials import Series, read_series
from plink.model.units import format_bytes, format_us
from solvers.checking.agreement import FEWEST, Correlation, calibration, gain_of_best, rank_correlation
from solvers.checking.regression import Tolerance, ranks_worse, slower

_US = 1e6
_FEW = 6


@dataclass(frozen=True)
class Limits:
    """What is asked for: ``least``, Spearman's correlation, None: nothing; ``baseline``: what was found earlier."""

    least: float | None
    baseline: tuple[Series, ...]
    tolerance: Tolerance


def judged(series: Series, limits: Limits, seconds: float = 0.0) -> tuple[dict[str, Any], list[Case]]:
    """One entry of ``checks``, and what was asked for.

    :raises NoAnswer: when a correlation cannot be had. :raises InputError: for times that are none.
    """
    predicted, samples = _figures(series)
    medians = [statistics.median(trial.achieved_s) for trial in series.trials]
    correlation = rank_correlation(predicted, medians)
    entry: dict[str, Any] = {
        "algo": series.algo,
        "model": series.model,
        "size_bytes": series.size_bytes,
        "options": list(series.options),
        **({} if series.ranks is None else {"ranks": series.ranks}),
        **({} if series.groups is None else {"groups": [list(group) for group in series.groups]}),
        "spearman": round(correlation.spearman, 4),
        "interval": None if correlation.low is None else [round(correlation.low, 4), round(correlation.high or 0.0, 4)],
        "orders": correlation.orders,
        "calibration": _calibration(series, predicted, medians),
        "gain": None,
        "runs": [
            {
                "order": trial.order,
                **({"hosts": list(trial.hosts)} if trial.hosts else {}),
                "predicted_us": round(cost, 3),
                "achieved_s": list(trial.achieved_s),
            }
            for trial, cost in zip(series.trials, predicted, strict=True)
        ],
    }
    if samples is not None:
        gain = gain_of_best(predicted, samples)
        interval = None if gain.low is None or gain.high is None else [round(gain.low, 4), round(gain.high, 4)]
        entry["gain"] = {"gain": round(gain.gain, 4), "interval": interval}
    cases = [_spearman(series, correlation, limits.least, seconds)]
    if limits.baseline:
        before = next((one for one in limits.baseline if _collective(one) == _collective(series)), None)
        entry["baseline"], more = _against(series, before, correlation, limits.tolerance)
        cases += more
    return entry, cases


def baseline_from(path: Path) -> tuple[Series, ...]:
    """An earlier check to compare with, looked through before anything is run.

    :raises InputError: when it cannot be read, or nothing can be compared with it.
    """
    found = read_series(path)
    for series in found:
        try:
            _correlation(series)
        except (InputError, NoAnswer) as error:
            raise InputError(f"--max-regression {path}", f"{series.algo or 'runs'} is no baseline: {error}") from None
    return found


def _correlation(series: Series) -> Correlation:
    return rank_correlation(_figures(series)[0], [statistics.median(trial.achieved_s) for trial in series.trials])


def _figures(series: Series) -> tuple[list[float], "np.ndarray[Any, Any] | None"]:
    """(predicted, samples of shape (orders, repetitions)); None where orders were repeated differently often."""
    predicted = []
    for trial in series.trials:
        if trial.predicted_us is None:
            if series.algo is None or series.size_bytes is None or not trial.hosts:  # nothing to price it by
                raise NoAnswer(f"nothing was predicted of order {trial.order}: predicted_us is null in the file")
            raise NoAnswer(f"nothing was predicted of order {trial.order}; give the NETWORK that it was run on")
        if not min(trial.achieved_s) > 0:
            raise InputError(f"order {trial.order}", "a run takes more than 0 seconds")
        predicted.append(trial.predicted_us)
    even = len({len(trial.achieved_s) for trial in series.trials}) == 1
    return predicted, np.array([trial.achieved_s for trial in series.trials]) if even else None


def _calibration(series: Series, predicted: list[float], medians: list[float]) -> dict[str, float] | None:
    """None for a model that tells no times."""
    if series.model == "latency" or min(predicted) <= 0:
        return None
    found = calibration([cost / _US for cost in predicted], medians)
    return {"factor": round(found.factor, 4), "low": round(found.low, 4), "high": round(found.high, 4)}


def _spearman(series: Series, correlation: Correlation, least: float | None, seconds: float) -> Case:
    suite = _suite(series)
    text = f"Spearman's rank correlation of {correlation.orders} orders is {correlation.spearman:.3f}"
    if least is None:
        return Case(suite, "spearman", True, text, seconds)
    if correlation.low is None:
        why = f"{text}: too few for --min-spearman {least:g} to be judged by, which takes {FEWEST} or more"
        return Case(suite, "spearman", None, why, seconds)
    if correlation.spearman < least:
        return Case(suite, "spearman", False, f"{text}, below --min-spearman {least:g}", seconds)
    return Case(suite, "spearman", True, f"{text}, --min-spearman {least:g}", seconds)


def _suite(series: Series) -> str:
    return series.algo or "runs"


def _collective(series: Series) -> tuple[object, ...]:
    return series.algo, series.size_bytes, sorted(series.options)


def _against(
    series: Series, before: Series | None, correlation: Correlation, tolerance: Tolerance
) -> tuple[dict[str, float] | None, list[Case]]:
    """The cheapest order's time, and the correlation, against those of the baseline (None: it has no such run): the
    figures, whatever is asked for, and the sentences."""
    suite = _suite(series)
    if before is None:
        why = f"the baseline has no run of {suite} of this size and these options to compare with"
        return None, [Case(suite, "baseline", False, why)]
    then, now = _cheapest(before), _cheapest(series)
    then_s, now_s = statistics.median(then), statistics.median(now)
    fast = slower(then, now, tolerance) is None
    text = f"the cheapest order takes {now_s:.4g} s; {then_s:.4g} s in the baseline"
    hosts = [{name for trial in one.trials for name in trial.hosts} for one in (before, series)]
    if all(hosts) and hosts[0] != hosts[1]:
        text += ", which was run on other hosts"
    text += f": {now_s / then_s:.2f} times"
    if not fast:
        text += f", more than {1 + tolerance.time:.2f}"
    cases = [Case(suite, "time against the baseline", fast, text)]
    earlier = _correlation(before)
    worse = ranks_worse(earlier, correlation.spearman, tolerance)
    text = f"Spearman's rank correlation {correlation.spearman:.3f}; {earlier.spearman:.3f} in the baseline"
    if worse:
        text += ", worse than tolerated"
    cases.append(Case(suite, "spearman against the baseline", not worse, text))
    figures = {"then_s": then_s, "now_s": now_s, "ratio": now_s / then_s, "spearman": earlier.spearman}
    return {name: round(value, 4 if name == "spearman" else 9) for name, value in figures.items()}, cases


def _cheapest(series: Series) -> tuple[float, ...]:
    predicted = _figures(series)[0]
    return series.trials[predicted.index(min(predicted))].achieved_s


def timed(work: Callable[[], Series]) -> tuple[Series, float]:
    """What it gives, and the seconds it took."""
    began = time.monotonic()
    return work(), time.monotonic() - began


def show(entry: dict[str, Any]) -> None:
    """One check for a person."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    what = entry["algo"] or "runs"
    size = "" if entry["size_bytes"] is None else f", {format_bytes(int(entry['size_bytes']))}"
    by = "" if entry["model"] is None else f", model {entry['model']}"
    times = entry["calibration"] is not None
    table = Table("order", "predicted", "measured", *(["ratio"] if times else []))
    # From a file: neither rich nor the terminal obeys what stands in it.
    table.title = escape(printable(f"{what}{size}{by}"))
    for column in table.columns[1:]:
        column.justify = "right"
    for run in entry["runs"]:
        took = statistics.median(run["achieved_s"])
        ratio = [f"{took / run['predicted_us'] * _US:.2f}"] if times else []
        table.add_row(escape(printable(run["order"])), format_us(run["predicted_us"]), format_us(took * _US), *ratio)
    Console(soft_wrap=True).print(table)
    interval = entry["interval"]
    sure = "too few orders for an interval" if interval is None else f"95 %: {interval[0]:.2f} to {interval[1]:.2f}"
    print(f"Spearman's rank correlation: {entry['spearman']:.3f} ({sure}) of {entry['orders']} orders")
    if times:
        found = entry["calibration"]
        print(f"measured times are {found['factor']:.2f} of predicted ({found['low']:.2f} to {found['high']:.2f})")
    if (gain := entry["gain"]) is not None:
        spread = "" if gain["interval"] is None else f" (95 %: {gain['interval'][0]:.2f} to {gain['interval'][1]:.2f})"
        print(f"the order with the lowest cost is {gain['gain']:.2f} times as fast as the median order{spread}")


def say_strange(where: str, strange: Sequence[str]) -> None:
    """Hosts that the truth does not know."""
    if strange:
        named = f"{', '.join(strange[:_FEW])}{', ...' * (len(strange) > _FEW)}"
        say(f"{where} says nothing about {len(strange)} hosts: {named}")
