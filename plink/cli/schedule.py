"""``plink schedule``, ``plink schedule verify`` and ``plink schedule count``."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from plink.cli.screen import print_json, say
from plink.errors import PlinkError, UsageError
from plink.model.units import format_bytes, parse_bytes
from plink.records import workspace

if TYPE_CHECKING:
    from plink.model.schedule import Schedule

app = typer.Typer(
    no_args_is_help=True,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
_MOST_LINES = 60
_MOST_WRITTEN = 3_000_000
_MOST_MADE = 50_000_000
# Algorithms whose transfers do not grow with the square of the ranks.
_SPARSE = (
    "halving-doubling", "recursive-doubling", "tree", "double-binary-tree", "nccl-tree", "openmpi-rabenseifner",
    "openmpi-recursive-doubling", "bcube",
)  # fmt: skip
_File = Annotated[Path, typer.Argument(metavar="SCHEDULE", help="A schedule file; - is standard input.")]
_Json = Annotated[bool, typer.Option("--json", help="Print as JSON.")]


@app.callback()
def schedule(
    context: typer.Context,
    algo: Annotated[str | None, typer.Option(help="The algorithm, or what a library runs.")] = None,
    ranks: Annotated[int, typer.Option(min=1, max=1 << 20, help="How many take part.")] = 4,
    collective: Annotated[
        str, typer.Option(help="all-reduce, or a part of it that the algorithm has (reduce-scatter, ...).")
    ] = "all-reduce",
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="An option of the algorithm: --set base=4, --set fan-out=3.")
    ] = None,
    groups: Annotated[
        str | None, typer.Option(help="For 2lha: the ranks of each group, 0,1,2/3,4,5; default: square root of N.")
    ] = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Write plink.schedule/1 there.")] = None,
    as_json: _Json = False,
) -> None:
    """Make a collective's schedule: who sends what to whom in which round.

    Example: plink schedule --algo halving-doubling --ranks 8
    """
    if context.invoked_subcommand is not None:
        return
    if algo is None:
        raise UsageError("--algo is missing: plink schedule --algo ring --ranks 4")
    from plink.cli.set_options import options_from
    from plink.model.storage import STANDARD
    from solvers.schedules.catalogue import ALGORITHMS, schedule_for

    if groups is not None and algo in ALGORITHMS and "groups" not in ALGORITHMS[algo].options:
        raise UsageError(f"--groups {groups}: {algo} takes no groups")
    options = options_from(set_ or [], [algo], _groups(groups, ranks))
    if algo in ALGORITHMS and algo not in _SPARSE and 2 * ranks * ranks * options.pieces > _MOST_MADE:
        raise UsageError(
            f"{algo} among {ranks} ranks has too many transfers to make; prices of orders (`plink cost`) need none"
        )
    workspace.check_output(output, None)
    made = schedule_for(algo, ranks, options, collective)
    if (output is not None or as_json) and len(made) > _MOST_WRITTEN:
        raise UsageError(f"{len(made)} transfers are more than a file should hold; plink makes them when it needs them")
    if output is not None or as_json:
        made.write(output or STANDARD)
        if output is not None and str(output) != STANDARD:
            say(f"{_summary(made)} -> {output}")
            if as_json:
                made.write(STANDARD)
        return
    print(_summary(made))
    _print_rounds(made)


@app.command()
def verify(schedule_file: _File, as_json: _Json = False) -> None:
    """Prove a schedule right (every rank ends with every contribution exactly once), or say which transfer is wrong.

    Example: plink schedule verify mine.json
    """
    from plink.model.schedule_file import read_schedule
    from plink.model.storage import name_of
    from solvers.schedules.verifier import verify as prove

    read = read_schedule(schedule_file)
    errors = prove(read)
    contributing = read.details.get("contributors", list(range(read.ranks)))
    if as_json:
        print_json(
            {"schema": "plink.verification/1", "valid": not errors, "errors": errors, "contributors": contributing}
        )
    else:
        for error in errors:
            print(error)
        if not errors:
            print(f"right: {_summary(read)}")
    if errors:
        raise PlinkError(f"{name_of(schedule_file)} is not a right {read.collective}")


@app.command()
def count(
    schedule_file: _File,
    size: Annotated[str, typer.Option(help="Bytes that are reduced (100MB).")] = "100MB",
    groups: Annotated[str | None, typer.Option(help="Ranks that stand together, 0,1/2,3: bytes between them.")] = None,
    as_json: _Json = False,
) -> None:
    """Count a schedule's rounds and bytes.

    Example: plink schedule count mine.json --size 100MB --groups 0,1/2,3
    """
    import numpy as np

    from plink.model.schedule_file import read_schedule
    from solvers.schedules.counter import count as counted

    read = read_schedule(schedule_file)
    size_bytes = parse_bytes(size)
    if size_bytes <= 0:
        raise UsageError("--size 0: give more than 0 bytes")
    group_of = None
    if groups is not None:
        dealt = _groups(groups, read.ranks)
        group_of = np.zeros(read.ranks, dtype=np.intp)
        for number, members in enumerate(dealt):
            group_of[members] = number
    found = counted(read, size_bytes, group_of)
    if as_json:
        print_json(found.to_json())
        return
    print(f"{found.rounds} rounds, {found.transfers} transfers, {format_bytes(found.bytes_on_wire)} on the wire")
    busiest = int(np.argmax(found.sent_bytes + found.received_bytes))
    print(
        f"busiest rank {busiest}: {format_bytes(found.sent_bytes[busiest])} sent, "
        f"{format_bytes(found.received_bytes[busiest])} received"
    )
    if found.cross_group_bytes is not None:
        print(f"{format_bytes(found.cross_group_bytes)} between groups")


def _groups(text: str | None, ranks: int) -> list[list[int]]:
    """``0,1/2,3`` as lists of ranks, every rank once; without a text neighbours, about the square root of N of them.

    :raises UsageError: for anything else.
    """
    if text is None:
        size = max(1, round(ranks**0.5))
        return [list(range(start, min(ranks, start + size))) for start in range(0, ranks, size)]
    try:
        found = [[int(rank) for rank in part.split(",")] for part in text.split("/")]
    except ValueError:
        raise UsageError(f"--groups {text}: write ranks like 0,1/2,3") from None
    if sorted(rank for group in found for rank in group) != list(range(ranks)):
        raise UsageError(f"--groups {text}: every rank from 0 to {ranks - 1} belongs to exactly one group")
    return found


def _summary(made: "Schedule") -> str:
    contributing = made.details.get("contributors")
    only = "" if contributing is None else f", of which {len(contributing)} contribute"
    return (
        f"{made.algo}, {made.collective}, {made.ranks} ranks{only}: {made.rounds} rounds, {len(made)} transfers of "
        f"{made.chunks} chunks"
    )


def _print_rounds(made: "Schedule") -> None:
    """Every round with its transfers, as far as a person reads."""
    if len(made) > _MOST_LINES * 8:
        say("too many transfers to read; -o FILE writes them")
        return
    for number, part in enumerate(made.round_slices()):
        print(f"round {number}:")
        for m in range(part.start, part.stop):
            print(f"  {_transfer(made, m)}")


def _transfer(made: Any, m: int) -> str:
    first, last = int(made.first[m]), int(made.first[m] + made.count[m]) - 1
    what = f"chunk {first}" if first == last else f"chunks {first}-{last}"
    return f"{made.source[m]} -> {made.target[m]}  {what}{'' if made.copies[m] else ', added'}"
