"""What a person sees of an elastic job: a live view on a terminal, lines elsewhere."""

import statistics
import sys
import time
from typing import TYPE_CHECKING, Any

from plink.cli.elastic.cost import cost_so_far
from plink.cli.screen import printable, say
from plink.model.units import format_bytes, format_duration, format_time
from plink.records.iteration_values import IterationValues

if TYPE_CHECKING:
    from rich.live import Live

    from runners.agile.hub import Ended

_EVERY_S = 1.0  # lines about iterations, where there is no live view
_TOLD = ("stage", "rolled back", "controller", "checkpoint")


class Screen:
    """:param width: of the numbers of hosts."""

    def __init__(self, width: int, as_json: bool) -> None:
        self._width, self._as_json = width, as_json
        self._live: Live | None = None
        self._events: list[str] = []
        self._seconds = IterationValues()
        self._objective: float | None = None
        self._stage: int | None = None
        self._said_at = 0.0

    def began(self, hosts: int) -> None:
        """All nodes are where they were asked to be."""
        if hosts == 1:
            say("the host is where it was asked to be; it makes the program")
        else:
            say(f"{hosts} hosts are where they were asked to be; they make the program")

    def line(self, number: int | None, stream: str, line: str) -> None:
        """A line that a host's node printed; above the live view where it would be written across that."""
        file = sys.stdout if stream == "out" and not self._as_json else sys.stderr
        mark = "-" * self._width if number is None else f"{number:>{self._width}}"
        if (live := self._live) is not None and file.isatty():
            from rich.text import Text

            live.console.print(Text(f"[{mark}] ") + Text.from_ansi(line), soft_wrap=True)
            return
        file.buffer.write(f"[{mark}] {line}\n".encode("utf-8", "surrogateescape"))
        file.flush()

    def log(self, line: dict[str, Any]) -> None:
        """A line of the run's log."""
        if line["what"] == "iteration":
            self._iteration(line)
            return
        if (said := _said(line)) is None:
            return
        text = printable(said)
        self._events = [*self._events[-7:], f"{line['at']:8.1f} s  {text}"]
        if self._live is None:
            say(text)

    def status(self, status: dict[str, Any]) -> None:
        """How the job stands, every second; shown on a terminal."""
        if not sys.stderr.isatty():
            return
        from rich.console import Console
        from rich.live import Live

        if self._live is None:
            self._live = Live(console=Console(stderr=True), refresh_per_second=2, transient=True)
            self._live.start()
        self._live.update(view(status, self._events))

    def close(self) -> None:
        """No live view any more."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def summary(self) -> dict[str, Any]:
        """For programs."""
        return {
            "iterations": len(self._seconds),
            "iteration_s": statistics.median(self._seconds.values) if self._seconds else None,
            "objective": self._objective,
        }

    def last_word(self, ended: "Ended", run_id: str) -> None:
        """What it came to."""
        if not ended.code:
            objective = "" if self._objective is None else f", objective {self._objective:.6g}"
            each = f", {format_time(statistics.median(self._seconds.values))} each" if self._seconds else ""
            say(f"{len(self._seconds)} iterations in {format_duration(ended.seconds)}{each}{objective}")
        say(f"`plink elastic plot {run_id}` draws what happened")

    def _iteration(self, line: dict[str, Any]) -> None:
        self._seconds.add(line["iteration"], line["seconds"])
        if line["objective"] is not None:
            self._objective = line["objective"]
        if self._live is None and time.monotonic() - self._said_at >= _EVERY_S:
            self._said_at = time.monotonic()
            objective = "" if line["objective"] is None else f", objective {line['objective']:.6g}"
            say(
                f"iteration {line['iteration']}: {format_time(line['seconds'])}{objective}, stage {line['stage']}, "
                f"{line['workers']} workers"
            )


def _said(line: dict[str, Any]) -> str | None:
    """What is worth a person's while."""
    match line["what"]:
        case "host":
            seconds = "" if line["seconds"] is None else f" ({line['seconds']:g} s)"
            return f"{line['host']} {line['event']}{seconds}: {line['why']}"
        case "stage":
            return f"stage {line['stage']}: {line['why']}"
        case "rolled back":
            return f"rolled back to clock {line['clock']}: {line['redone']} clocks are done again"
        case "controller":
            return f"the controller {line['event']}" if line["event"] != "started" else None
        case "checkpoint":
            return f"checkpoint of clock {line['clock']}: {format_bytes(line['bytes'])}"
        case _:
            return None


def view(status: dict[str, Any], events: list[str]) -> Any:
    """Stage, hosts by role, iteration, objective, cost, notices and bytes, as a rich table."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    if status["stage"] is None:
        return Text("hosts get ready")
    seconds = "" if status["iteration_s"] is None else f"  {format_time(status['iteration_s'])} an iteration"
    objective = "" if status["objective"] is None else f"  objective {status['objective']:.6g}"
    title = Text(
        f"stage {status['stage']}  iteration {max(0, status['iteration'] + 1)}  clock {status['begun']}"
        f"{seconds}{objective}"
    )
    if cost := cost_so_far(status):
        title.append(f"  cost {cost}")
    if waits := status.get("waits"):
        title.append(f"  waits for {', '.join(waits['hosts'])} since {waits['seconds']:.0f} s")
    table = Table(box=None, pad_edge=False)
    for name in ("host", "tier", "serves", "backs up", "pieces", "sent", "received", ""):
        table.add_column(name, justify="left" if name in ("host", "tier", "") else "right")
    for host in status["hosts"]:
        state = "" if host["state"] == "there" else host["state"]
        table.add_row(
            host["name"], host["tier"], _count(host["serves"]), _count(host["backs"]), str(host["pieces"] or ""),
            format_bytes(host["sent"]), format_bytes(host["received"]), state,
        )  # fmt: skip
    return Group(title, table, *(Text(event, style="dim") for event in events))


def _count(numbers: list[int]) -> str:
    return str(len(numbers)) if numbers else ""
