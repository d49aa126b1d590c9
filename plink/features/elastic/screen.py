"""What a person sees of an elastic job: a live view on a terminal, lines elsewhere."""

import logging
import sys
from typing import Self

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from plink.errors import printable
from plink.features.elastic.show import cost_so_far
from plink.model.elastic.status import ElasticStatus
from plink.model.elastic.summary import ElasticResult
from plink.model.units import format_bytes, format_duration, format_time
from plink.records.work_shares import help_sentence, work_sentence, work_shares
from plink.terminal.screen import say, say_error

_log = logging.getLogger("plink.elastic")


class Screen(logging.Handler):
    """What the job's logger notes goes into the live view while there is one, else to standard error.

    :param width: of the numbers of hosts.
    """

    def __init__(self, width: int, as_json: bool) -> None:
        super().__init__()
        self._width, self._as_json = width, as_json
        self._live: Live | None = None
        self._events: list[str] = []

    def __enter__(self) -> Self:
        _log.addHandler(self)
        _log.propagate = False
        return self

    def __exit__(self, *error: object) -> None:
        _log.removeHandler(self)
        _log.propagate = True
        if self._live is not None:
            self._live.stop()
            self._live = None

    def emit(self, record: logging.LogRecord) -> None:
        """Show one note."""
        text, entry = printable(record.getMessage()), getattr(record, "entry", None)
        if entry is not None and entry.what != "iteration":
            self._events = [*self._events[-7:], f"{entry.at:8.1f} s  {text}"]
        if record.levelno >= logging.WARNING:
            say_error(text)
        elif self._live is None:
            say(text)

    def note(self, text: str) -> None:
        """Show what the driver of rented instances says, as an event."""
        if self._live is None:
            say(text)
        else:
            self._events = [*self._events[-7:], printable(text)]

    def line(self, number: int | None, stream: str, line: str) -> None:
        """A line that a host's node printed; above the live view where it would be written across that."""
        file = sys.stdout if stream == "out" and not self._as_json else sys.stderr
        mark = "-" * self._width if number is None else f"{number:>{self._width}}"
        if (live := self._live) is not None and file.isatty():
            live.console.print(Text(f"[{mark}] ") + Text.from_ansi(line), soft_wrap=True)
            return
        file.buffer.write(f"[{mark}] {line}\n".encode("utf-8", "surrogateescape"))
        file.flush()

    def status(self, status: ElasticStatus) -> None:
        """How the job stands, every second; shown on a terminal."""
        if not sys.stderr.isatty():
            return
        if self._live is None:
            self._live = Live(console=Console(stderr=True), refresh_per_second=2, transient=True)
            self._live.start()
        self._live.update(view(status, self._events))

    def last_word(self, result: ElasticResult) -> None:
        """What it came to."""
        if not result.exit_code:
            objective = "" if result.objective is None else f", objective {result.objective:.6g}"
            each = "" if result.iteration_s is None else f", {format_time(result.iteration_s)} each"
            reason = f": {result.why}" if result.why else ""
            say(f"{result.iterations} iterations in {format_duration(result.seconds)}{each}{objective}{reason}")
        say(f"`plink elastic plot {result.id}` draws what happened")


def view(status: ElasticStatus, events: list[str]) -> Group | Text:
    """Stage, hosts by role, iteration, objective, cost, notices and bytes, as a rich table."""
    if status.stage is None:
        return Text("hosts get ready")
    seconds = "" if status.iteration_s is None else f"  {format_time(status.iteration_s)} an iteration"
    objective = "" if status.objective is None else f"  objective {status.objective:.6g}"
    title = Text(
        f"stage {status.stage}  iteration {max(0, status.iteration + 1)}  clock {status.begun}{seconds}{objective}"
    )
    if cost := cost_so_far(status):
        title.append(f"  cost {cost}")
    work = status.work
    if sentence := work_sentence(work, status.iteration):
        title.append(f"\n{sentence}")
    if sentence := help_sentence(status.moved, status.help):
        title.append(f"\niteration {status.iteration}: {sentence}")
    if waits := status.waits:
        title.append(f"  waits for {', '.join(waits.hosts)} since {waits.seconds:.0f} s")
    table = Table(box=None, pad_edge=False)
    shares = work_shares(work)
    waited = {} if shares is None else {host: f"{share:.0%}" for host, share in shares.by_host.items()}
    for name in ("host", "tier", "serves", "backs up", "shards", "waited", "sent", "received", ""):
        table.add_column(name, justify="left" if name in ("host", "tier", "") else "right")
    for host in status.hosts:
        state = "" if host.state == "there" else host.state
        roles = _count(host.serves), _count(host.replicas), str(host.shards or ""), waited.get(host.name, "")
        table.add_row(host.name, host.tier, *roles, format_bytes(host.sent), format_bytes(host.received), state)
    return Group(title, table, *(Text(event, style="dim") for event in events))


def _count(numbers: tuple[int, ...]) -> str:
    return str(len(numbers)) if numbers else ""
