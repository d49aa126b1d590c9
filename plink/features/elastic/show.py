"""Lines of an elastic job: how it stands, what it did and cost."""

import logging
import sys
from collections.abc import Sequence
from typing import Any, Self

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from plink.errors import printable
from plink.features.spot.rented import show_rented
from plink.model.document import UNSET
from plink.model.elastic.status import CurrentCost, ElasticStatus
from plink.model.elastic.summary import (
    ElasticResult,
    ElasticSummary,
    ReplicationSummary,
    RuleHint,
    TotalCost,
    UpdatesSummary,
)
from plink.model.units import format_bytes, format_duration, format_time, numbered, significant
from plink.records.elastic_history import help_sentence, work_sentence, work_shares
from plink.terminal.screen import print_lines, say, say_error, show_table
from runners.elastic.rule_replay import rule_in_use


def format_cost(cost: CurrentCost | TotalCost) -> str:
    """Return the total cost, and the cost per iteration once there is one; at least one host has a price."""
    each = "" if cost.per_iteration is None else f", {significant(cost.per_iteration)} an iteration"
    return f"{significant(cost.total or 0.0, 4)}{each}"


def cost_so_far(status: ElasticStatus) -> str | None:
    """Return the cost so far of a running job; None where no host has a price."""
    cost = status.cost
    if not cost:
        return None
    left_out = len(cost.without_price)
    missing = "" if not left_out else "the one host that has" if left_out == 1 else f"the {left_out} hosts that have"
    return format_cost(cost) + (f" (without {missing} no price)" if missing else "")


def replication_lines(replication: ReplicationSummary) -> list[str]:
    """What a person is told of pushes to replicas, if there were any."""
    if not replication.rounds:
        return []
    line = f"replicas: {format_bytes(replication.bytes)} in {replication.rounds:,} rounds"
    if replication.bound:
        now = "" if replication.distance is UNSET else f"distance {significant(replication.distance, 4)}, "
        line += f"; {now}largest {significant(replication.largest_distance, 4)} (--divergence {replication.bound})"
    return [line]


def status_lines(status: ElasticStatus) -> list[str]:
    """Return lines of text on the job's status."""
    if status.stage is None:
        return ["hosts get ready"]
    seconds = "" if status.iteration_s is None else f", the last took {format_time(status.iteration_s)}"
    objective = "" if status.objective is None else f", objective {status.objective:.6g}"
    lines = [
        f"stage {status.stage}, {numbered(status.iteration + 1, 'iteration')}{seconds}{objective}",
        f"clock {status.begun}; safe up to clock {status.consistent}"
        + ("" if status.checkpoint is None else f", on disk up to clock {status.checkpoint}"),
    ]
    if status.spot is UNSET and (cost := cost_so_far(status)):
        lines.append(f"cost so far: {cost}")
    work = status.work
    shares = work_shares(work)
    if sentence := work_sentence(work, status.iteration):
        lines.append(sentence)
    if sentence := help_sentence(status.moved, status.help):
        lines.append(f"iteration {status.iteration}: {sentence}")
    if updates := status.updates:
        lines.append(updates_sentence(updates))
    lines += replication_lines(status.replication)
    if waits := status.waits:
        lines.append(f"clock {waits.clock} waits for {', '.join(waits.hosts)} since {waits.seconds:.0f} s")
    width = max(len(host.name) for host in status.hosts)
    for host in status.hosts:
        doing = [
            f"{len(numbers)} {what}"
            for numbers, what in ((host.serves, "partitions"), (host.replicas, "replicas"))
            if numbers
        ]
        doing += [f"{host.shards} shards"] if host.shards else []
        doing += [f"waited {shares.by_host[host.name]:.0%}"] if shares and host.name in shares.by_host else []
        state = "" if host.state == "there" else f", {host.state}"
        traffic = f"{format_bytes(host.sent)} sent, {format_bytes(host.received)} received"
        lines.append(f"{host.name:{width}}  {host.tier:9}  {', '.join(doing) or 'nothing'}{state}  ({traffic})")
    return lines


def updates_sentence(updates: UpdatesSummary) -> str:
    """What a person is told of the updates of asynchronous workers."""
    applied, dropped, planned = updates.applied, updates.dropped + updates.unsent, updates.planned
    share = dropped / (applied + dropped)
    text = f"updates (one a step and partition): {applied:,} applied, {dropped:,} dropped ({share:.1%})"
    text += f", {updates.unsent:,} of these before they were sent" if updates.unsent else ""
    if planned:
        text += f"; {planned:,} transfers took {updates.lateness:.2f} times their plan"
        text += f", {updates.grouped:,} of them for several workers" if updates.grouped else ""
    if not applied:
        return text
    shares = ", ".join(
        "-".join(map(str, sorted({row.least, row.most}))) + f": {row.updates / applied:.0%}"
        for row in updates.delays
        if row.updates
    )
    return f"{text}; delay {updates.mean_delay:.1f}, at most {updates.largest_delay} ({shares})"


def show_summary(document: ElasticSummary) -> None:
    print_lines(*_sentences(document))
    measured = ("computed", "waited", "steps") if document.waited is not None else ()
    rows = []
    for row in document.hosts:
        held, *times = (
            "" if seconds is None else f"{seconds:,.1f} s" for seconds in (row.held_s, row.computed_s, row.waited_s)
        )
        work = [*times, "" if row.steps is None else f"{row.steps:,}"] if measured else []
        sizes = ("" if size is None else format_bytes(size) for size in (row.sent_bytes, row.received_bytes))
        price = "" if row.price is None else f"{row.price:g}"
        rows.append((row.host, row.tier or "", held, *work, *sizes, price))
    if rows:
        show_table(("host", "tier", "held", *measured, "sent", "received", "price/h"), rows)
    if document.spot is not UNSET:
        show_rented(document.spot)
    print_lines(*(f"{each[0]['at']:9,.1f} s  {_line(each)}" for each in _together(document.events)))


def _sentences(document: ElasticSummary) -> list[str]:
    end, lost = document.end, document.lost
    how = (
        "it still runs, or was cut off" if end is None else f"exit code {end.code}" + (f" ({end.why})" * bool(end.why))
    )
    lines = [f"{numbered(document.iterations, 'iteration')} in {document.seconds:,.1f} s; {how}"]
    if lost:
        lines.append(f"lost to roll-backs: {numbered(lost, 'iteration')}")
    if document.objective is not None:
        lines.append(f"objective: {document.objective:.6g}")
    lines += [
        f"stage {row.stage}: {numbered(row.iterations, 'iteration')}, median {row.median_s:.4g} s"
        for row in document.stages
    ]
    if document.waited is not None:
        rule = rule_in_use(document.rule or "not known", document.shares, rebalance=document.rebalance)
        lines.append(f"rule {rule}: workers waited {document.waited:.0%} of their time")
    if document.updates is not None:
        lines.append(updates_sentence(document.updates))
    if line := help_sentence(document.moved, document.help):
        lines.append(line)
    lines += replication_lines(document.replication)
    if document.hint is not None:
        lines.append(hint_line(document.hint))
    if document.spot is not UNSET:
        return lines
    cost = document.cost
    if cost.total is not None:
        lines.append(f"cost: {format_cost(cost)}")
    if cost.without_price:
        left_out = ", ".join(cost.without_price[:5]) + ("..." if len(cost.without_price) > 5 else "")
        lines.append(f"without a price (price=X in the hosts file), so not in the cost: {left_out}")
    return lines


def hint_line(hint: RuleHint) -> str:
    """Return a hint as a line of text."""
    exact = "exact as bsp" if hint.rule.startswith("bsp") else "parameters are read older than under bsp"
    return (
        f"hint: --rule {hint.rule} would have saved about {hint.saved:.0%} ({exact}). This replays the run's own "
        "step times as if messages cost nothing; docs/stragglers.md has more"
    )


def _together(events: Sequence[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Hosts of one tier that came, or went, one after the other within a second are one line."""
    groups: list[list[dict[str, Any]]] = []
    for event in events:
        alike = groups and event["what"] == "host" and all(groups[-1][0].get(k) == event[k] for k in ("event", "tier"))
        if alike and event["at"] - groups[-1][-1]["at"] < 1:
            groups[-1].append(event)
        else:
            groups.append([event])
    return groups


def _line(together: list[dict[str, Any]]) -> str:
    event = together[0]
    reasons = {each.get("why") for each in together}
    reason = f": {event['why']}" if event.get("why") and len(reasons) == 1 else ""
    if len(together) > 1:
        named = ", ".join(member["host"] for member in together[:3]) + ("..." if len(together) > 3 else "")
        return f"{len(together)} {event['tier']} hosts {event['event']} ({named}){reason}"
    if event["what"] == "host":
        left = f", {event['seconds']:.0f} s left" if event["event"] == "warned" and "seconds" in event else ""
        return f"{event['host']} ({event['tier']}) {event['event']}{left}{reason}"
    if event["what"] == "controller":
        return f"controller {event['event']}{reason}"
    return f"rolled back to clock {event['clock']}, {event['redone']} to be done again"


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
        if entry is not None and entry.what not in ("iteration", "objective"):
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
            median = "" if result.iteration_s is None else f", median {format_time(result.iteration_s)}"
            reason = f": {result.why}" if result.why else ""
            done = numbered(result.iterations, "iteration")
            say(f"{done} in {format_duration(result.seconds)}{median}{objective}{reason}")
        say(f"`plink elastic plot {result.id}` draws what happened")


def view(status: ElasticStatus, events: list[str]) -> Group | Text:
    """Stage, hosts by role, iteration, objective, cost, notices and bytes, as a rich table."""
    if status.stage is None:
        return Text("hosts get ready")
    seconds = "" if status.iteration_s is None else f"  last iteration {format_time(status.iteration_s)}"
    objective = "" if status.objective is None else f"  objective {status.objective:.6g}"
    title = Text(f"stage {status.stage}  iteration {status.iteration + 1}  clock {status.begun}{seconds}{objective}")
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
