"""Print results of a command on standard output or into a file, and its progress and messages on standard error."""

import contextlib
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from rich.console import Console, ConsoleDimensions
from rich.table import Column, Table

from plink.errors import printable
from plink.model.document import Document
from plink.model.storage import STANDARD, write_document
from plink.model.units import format_us
from plink.records import workspace

if TYPE_CHECKING:
    from solvers.ordering.problem import SearchProgress

Advance = Callable[[int, int], None]
_MAX_COLUMNS = 100_000  # of what is no terminal


quiet = False  # with -q: results and errors only


def say(text: str) -> None:
    """Print a line on standard error, unless ``-q`` was given."""
    if not quiet:
        say_error(text)


def say_error(text: str) -> None:
    """Print a line on standard error in any case."""
    print(f"plink: {printable(text)}", file=sys.stderr, flush=True)


def print_lines(*lines: str) -> None:
    """Print results on standard output, each on one line whatever the names in it hold."""
    for line in lines:
        print(printable(line))


def say_read(path: Path, measured_at: str = "") -> None:
    """Say which file was read and how old it, or what was measured, is."""
    say(f"read {path} ({workspace.age(path, measured_at)} old)")


def print_json(document: dict[str, Any]) -> None:
    """Print a JSON document on standard output."""
    write_document(STANDARD, document)


def print_result(document: Document, as_json: bool, show: Callable[[], None]) -> None:
    """Print a result as JSON, or have ``show`` print it for people."""
    if as_json:
        print_json(document.to_json())
    else:
        show()


def result_console(**options: Any) -> Console:
    """Return a console as wide as the terminal, also where TERM is ``dumb``: Rich takes such for 80 columns."""
    console = Console(**options)
    if console.is_dumb_terminal:
        console.size = ConsoleDimensions(*shutil.get_terminal_size())
    return console


def show_table(
    columns: Sequence[str],
    rows: Sequence[Sequence[Any]],
    title: str = "",
    boxed: bool = False,
    on_stderr: bool = False,
) -> None:
    """Print rows below their columns, numbers to the right; off a terminal nothing is cut."""
    console = result_console(stderr=on_stderr, highlight=False, markup=False)
    if not console.is_terminal:
        console = Console(stderr=on_stderr, highlight=False, markup=False, width=_MAX_COLUMNS)
    table = Table()
    if title:  # not the table's own, which is filled up with blanks
        console.print(printable(title), style="italic", soft_wrap=True)
    if not boxed:
        table.box, table.pad_edge = None, False
    for number, column in enumerate(columns):
        is_text = any(str(row[number])[:1].isalpha() for row in rows)
        table.add_column(column, justify="left" if is_text else "right")
    for row in rows:
        table.add_row(*(printable(str(cell)) for cell in row))
    console.print(table)


class WritableDocument(Protocol):
    """What has a document and can be written to a file."""

    def to_json(self) -> dict[str, Any]:
        """Return the document."""

    def write(self, path: str | Path) -> None:
        """Write the file."""


def write_result(result: WritableDocument, name: str, default: Path, output: Path | None, as_json: bool) -> bool:
    """Write a result, and return whether it is on standard output; else the caller prints it for people.

    :param name: of what it is, for the line that names the file. :param default: the workspace's file, where neither
        ``output`` nor JSON was asked for.
    """
    if output is None and not as_json:
        workspace.prepare()
        output = default
    is_standard = str(output) == STANDARD
    if output is not None and not is_standard:
        result.write(output)
        say(f"{name} -> {output}")
    if as_json or is_standard:
        print_json(result.to_json())
    return as_json or is_standard


@contextlib.contextmanager
def progress(*titles: str) -> Iterator[dict[str, Advance]]:
    """Show a progress bar for each title, on a terminal only; ``bars[title](done, total)`` moves it."""
    if quiet or not sys.stderr.isatty():
        yield {title: lambda done, total: None for title in titles}
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True, soft_wrap=True), transient=True) as bars:
        tasks = {title: bars.add_task(title, total=None, visible=False) for title in titles}

        def advance(title: str) -> Advance:
            return lambda done, total: bars.update(tasks[title], completed=done, total=total, visible=True)

        yield {title: advance(title) for title in titles}


@contextlib.contextmanager
def status_line(text: str) -> Iterator[Callable[[str], None]]:
    """Show a line with the time that has passed and a text, on a terminal only; the value changes the text."""
    if quiet or not sys.stderr.isatty():
        yield lambda text: None
        return
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    # The text has what is left of the width, and is cut there.
    shortened = TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True, ratio=1))
    columns = (SpinnerColumn(), TimeElapsedColumn(), shortened)
    with Progress(*columns, console=Console(stderr=True, soft_wrap=True), transient=True, expand=True) as status:
        task = status.add_task(printable(text))
        yield lambda text: status.update(task, description=printable(text))


@contextlib.contextmanager
def search_status() -> "Iterator[Callable[[SearchProgress], None]]":
    """Show the status of a search in a line on a terminal: best cost so far, lower bound, gap, and the time."""
    with status_line("searching") as show_text:

        def show(progress: "SearchProgress") -> None:
            text = f"searching: {format_us(progress.cost)}"
            if progress.lower_bound is not None and progress.lower_bound > 0:
                above = max(0.0, progress.cost / progress.lower_bound - 1)
                text += f", bound {format_us(progress.lower_bound)} ({above:.2%} apart)"
            show_text(f"{text}, {progress.moves:,} moves")

        yield show
