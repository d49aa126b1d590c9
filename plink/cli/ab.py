"""``plink launch --ab``: the given order and plink's, alternately, and what the second gained."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from plink.cli.figures import figure_from
from plink.cli.launching import Asked, run, tell_failure
from plink.cli.screen import print_json, say
from plink.errors import PlinkError, UsageError
from plink.model.hosts import Hosts
from plink.model.storage import write_document
from plink.records import workspace
from runners.job.job import Job
from runners.job.runner import Runner
from solvers.gain import CONFIDENCE, paired_gain

SCHEMA = "plink.ab/1"
RESULT = workspace.FOLDER / "ab.json"
_KEPT_LINES = 2000


@dataclass(frozen=True)
class Trial:
    """``pairs``: how often each order is run; ``figure``: where it reports how it did, None: how long the job took."""

    pairs: int
    figure: str | None
    higher_is_better: bool


def compare(runner: Runner, job: Job, asked: Asked, given: Hosts, trial: Trial) -> None:
    """Run both orders alternately and print the gain with its interval.

    :param asked: with the hosts in plink's order. :param given: the same hosts as they were given.
    :raises UsageError: when there is nothing to compare. :raises PlinkError: when a run fails or reports no figure.
    """
    if given.names == asked.hosts.names:
        raise UsageError("--ab: plink's order is the given one; there is nothing to compare")
    if trial.figure is not None:
        figure_from(trial.figure)  # refused before anything is run
    orders = {"given": given, "plink": asked.hosts}
    values: dict[str, list[float]] = {which: [] for which in orders}
    runs: list[dict[str, Any]] = []
    for pair in range(trial.pairs):
        # Turn and turn about, so that what drifts with time favours neither.
        for which in list(orders) if pair % 2 == 0 else list(orders)[::-1]:
            run_id, value = _one(runner, job, replace(asked, hosts=orders[which]), which, pair, trial)
            values[which].append(value)
            runs.append({"order": which, "pair": pair, "value": value, "id": run_id})
            say(f"{which:>5}, {pair + 1} of {trial.pairs}: {value:g}")
    document = _document(trial, values, runs)
    workspace.prepare()
    write_document(RESULT, document)
    if asked.as_json:
        print_json(document)
    else:
        _show(document)


def _one(runner: Runner, job: Job, asked: Asked, which: str, pair: int, trial: Trial) -> tuple[str, float]:
    """One run; (its id, its figure)."""
    said: dict[int, list[str]] = {}

    def hear(rank: int | None, stream: str, line: str) -> None:
        if rank is not None and stream == "out":
            lines = said.setdefault(rank, [])
            lines.append(line)
            del lines[:-_KEPT_LINES]

    if asked.log_dir is not None:
        asked = replace(asked, log_dir=asked.log_dir / f"{which}-{pair + 1}")
    result = run(runner, job, asked, {"ab": which}, hear)
    if result.exit_code:
        why = tell_failure(result)
        raise PlinkError(f"--ab: in {which} order {why}; `plink runs show {result.id}` tells more")
    if trial.figure is None:
        return result.id, result.seconds
    read = figure_from(trial.figure)
    for rank in sorted(said):
        if (value := read(said[rank])) is not None:
            if not 0 < value < math.inf:
                raise PlinkError(
                    f"--figure {trial.figure}: the run {result.id} reports {value:g}; gains need more than 0"
                )
            return result.id, value
    raise PlinkError(
        f"--figure {trial.figure}: no rank of the run {result.id} printed one; `plink runs show {result.id}`"
    )


def _document(trial: Trial, values: Mapping[str, list[float]], runs: list[dict[str, Any]]) -> dict[str, Any]:
    found = paired_gain(values["given"], values["plink"], trial.higher_is_better)
    return {
        "schema": SCHEMA,
        "figure": trial.figure,
        "higher_is_better": trial.higher_is_better,
        "pairs": trial.pairs,
        "gain": round(found.gain, 4),
        "interval": None if found.low is None or found.high is None else [round(found.low, 4), round(found.high, 4)],
        "confidence": CONFIDENCE,
        "runs": runs,
    }


def _show(document: dict[str, Any]) -> None:
    import statistics

    for which in ("given", "plink"):
        found = [run["value"] for run in document["runs"] if run["order"] == which]
        print(f"{which:>5} order: median {statistics.median(found):g} of {len(found)}")
    interval = document["interval"]
    if interval is None:
        print(f"gain {document['gain']:.2f} times; one pair of runs says nothing of the spread (--ab 5)")
        return
    low, high = interval
    print(f"gain {document['gain']:.2f} times, {document['confidence']:.0%} between {low:.2f} and {high:.2f}")
    if low <= 1 <= high:
        print(f"that is within the noise of {document['pairs']} pairs: nothing shows that the order matters here")
