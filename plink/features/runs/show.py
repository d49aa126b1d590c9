"""Tables and lines of recorded runs. Files may be anybody's: keys may be missing, or hold anything."""

import shlex
from collections.abc import Iterator, Sequence
from typing import Any

from plink.errors import printable
from plink.model.run import AutotuneReplay
from plink.model.units import numbered
from plink.records.runs import Run
from plink.runtime.pipeline import MODULE
from plink.terminal.screen import result_console, show_table
from runners.autotune.daemon import NAME as LOG_NAME
from runners.job.placement import process_name

_LAST_LINES = 10
_STATES = {
    "running": "running",
    "killed": "plink was killed, or could not record the end",
    "unknown": "running, or plink was killed",
}
_MAX_SHOWN_SECONDS = 1e15
_MIN_PROGRAM_CHARS = 20
_FIRST_HIDDEN = ("hosts", "s", "started (UTC)", "backend", "order", "exit")  # on a narrow terminal


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
                run.state if code is None else code,
                _command(run),
            )
        )
    columns = ("id", "started (UTC)", "hosts", "order", "backend", "s", "exit", "program")
    hidden = _hidden(columns, rows)
    shown = [number for number, column in enumerate(columns) if column not in hidden]
    show_table([columns[number] for number in shown], [[row[number] for number in shown] for row in rows], boxed=True)
    if hidden:
        print(f"without a column: {', '.join(hidden)}; a wider terminal and --json have all")


def _hidden(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> Sequence[str]:
    """Return the columns without which the ids fit on the terminal; a program may be broken into lines."""
    console = result_console()
    widths = {
        column: max([len(column), *(len(printable(str(row[number]))) for row in rows)])
        for number, column in enumerate(columns)
    }
    widths["program"] = min(widths["program"], _MIN_PROGRAM_CHARS)
    count = 0
    while console.is_terminal and count < len(_FIRST_HIDDEN):
        remaining = [width for column, width in widths.items() if column not in _FIRST_HIDDEN[:count]]
        if sum(remaining) + 3 * len(remaining) + 1 <= console.width:
            break
        count += 1
    return _FIRST_HIDDEN[:count]


def run_lines(run: Run) -> Iterator[str]:
    """Yield the lines that describe a run."""
    yield f"{run.id}, {run.started}: {_command(run)}"
    yield _end(run)
    how = [f"{key} {value}" for key in ("order", "backend") if isinstance(value := run.document.get(key), str)]
    if (run.folder / LOG_NAME).is_file():
        how.append(f"autotuned: `plink runs replay {run.id}` shows decisions")
    if how:
        yield "; ".join(how)
    proof = run.document.get("proof")
    for rank in _list(proof.get("ranks")) if isinstance(proof, dict) else []:
        if isinstance(rank, dict):
            wrong = f"  <- {rank['wrong']}" if rank.get("wrong") else ""
            process = process_name(rank.get("rank", 0), rank.get("hub"))
            yield f"  {process}: {rank.get('host')}, found on {rank.get('hostname')}{wrong}"
    failure = run.document.get("failure")
    if isinstance(failure, dict):
        lines = [f"  {line}" for line in _list(failure.get("last_lines"))[-_LAST_LINES:]]
        process = process_name(failure.get("rank", 0), failure.get("hub"))
        first = f"{process} on {failure.get('host')} was the first to fail"
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
    hosts = numbered(len(_list(run.document.get("hosts"))), "host")
    if code is None:
        return f"{hosts}; {_STATES[run.state]}"
    error = run.document.get("error")  # of a job that never began
    after = "" if seconds is None else f" after {seconds:.1f} s"
    return f"{hosts}; exit code {code}{after}{f': {error}' if isinstance(error, str) else ''}"
