"""Tables and lines of recorded runs. Files may be anybody's: keys may be missing, or hold anything."""

import shlex
from collections.abc import Iterator, Sequence
from typing import Any

from plink.model.run import AutotuneReplay
from plink.records.runs import Run
from plink.runtime.pipeline import MODULE
from plink.terminal.screen import show_table

_LAST_LINES = 10
_MAX_SHOWN_SECONDS = 1e15


def print_runs(runs: Sequence[Run]) -> None:
    """Print a line for each run."""
    rows = []
    for run in runs:
        code, seconds = run.document.get("exit_code"), _seconds(run)
        rows.append(
            (
                run.id,
                run.started[:19],
                len(_list(run.document.get("hosts"))),
                run.document.get("order") or "",
                run.document.get("backend") or "",
                "" if seconds is None else f"{seconds:.1f}",
                "-" if code is None else code,
                _command(run),
            )
        )
    show_table(("id", "started (UTC)", "hosts", "order", "backend", "s", "exit", "program"), rows, boxed=True)


def run_lines(run: Run) -> Iterator[str]:
    """Yield the lines that describe a run."""
    yield f"{run.id}, {run.started}: {_command(run)}"
    yield _end(run)
    proof = run.document.get("proof")
    for rank in _list(proof.get("ranks")) if isinstance(proof, dict) else []:
        if isinstance(rank, dict):
            wrong = f"  <- {rank['wrong']}" if rank.get("wrong") else ""
            yield f"  rank {rank.get('rank')}: {rank.get('host')}, found on {rank.get('hostname')}{wrong}"
    failure = run.document.get("failure")
    if isinstance(failure, dict):
        lines = [f"  {line}" for line in _list(failure.get("last_lines"))[-_LAST_LINES:]]
        first = f"rank {failure.get('rank')} on {failure.get('host')} was the first to fail"
        yield str(failure.get("cause") or first)
        yield from (["its last lines:", *lines] if lines else [])
    yield f"logs: {run.document.get('logs')}"


def print_replay(replay: AutotuneReplay) -> None:
    """Print a line for each decision."""
    if not replay.stretches:
        print("the ranks reported nothing: Gloo ran every all-reduce, or the job ended before the tenth")
        return
    rows = []
    for row in replay.stretches:
        at = "" if row.at_s is None else f"{row.at_s:.1f} s"
        load = "" if row.imbalance is None else f"{row.imbalance:.2f}"
        rows.append((at, f"{row.bytes_per_s / 1e6:.3g}", load, row.action, row.reason))
    show_table(("at", "MB/s", "load max/min", "", "why"), rows)


def _list(value: Any) -> list[Any]:
    """Return the value if it is a list, else an empty one."""
    return value if isinstance(value, list) else []


def _seconds(run: Run) -> float | None:
    value = run.document.get("seconds")
    return float(value) if isinstance(value, int | float) and abs(value) < _MAX_SHOWN_SECONDS else None


def _command(run: Run) -> str:
    words = [str(word) for word in (run.document.get("program", "?"), *_list(run.document.get("args")))]
    return shlex.join(words[3:] if words[1:3] == ["-m", MODULE] else words)


def _end(run: Run) -> str:
    code, seconds = run.document.get("exit_code"), _seconds(run)
    hosts = len(_list(run.document.get("hosts")))
    if code is None:
        return f"{hosts} hosts; still running, or plink was killed"
    error = run.document.get("error")  # of a job that never began
    after = "" if seconds is None else f" after {seconds:.1f} s"
    return f"{hosts} hosts; exit code {code}{after}{f': {error}' if isinstance(error, str) else ''}"
