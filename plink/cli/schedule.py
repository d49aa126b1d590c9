"""``plink schedule``, ``plink schedule verify`` and ``plink schedule count``."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from plink.errors import PlinkError, UsageError
from plink.model.units import format_bytes, parse_bytes
from plink.records import workspace
from plink.terminal.screen import print_json, print_lines, say

if TYPE_CHECKING:
    from plink.model.schedule import Schedule

app = typer.Typer(
    no_args_is_help=True,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
_MAX_LINES = 60
_MAX_WRITTEN_TRANSFERS = 3_000_000
_MAX_BUILT_TRANSFERS = 50_000_000
# Algorithms whose transfers do not grow with the square of the ranks.
_LOG_ALGORITHMS = (
    "halving-doubling", "recursive-doubling", "tree", "double-binary-tree", "nccl-tree", "openmpi-rabenseifner",
    "openmpi-recursive-doubling", "bcube",
)  # fmt: skip
_File = Annotated[Path, typer.Argument(metavar="SCHEDULE", help="A schedule file; - is standard input.")]
_Json = Annotated[bool, typer.Option("--json", help="Print as JSON.")]


@app.callback()
def schedule(
    context: typer.Context,
    algo: Annotated[str | None, typer.Option(help="The algorithm, or a library's own.")] = None,
    ranks: Annotated[int, typer.Option(min=1, max=1 << 20, help="Number of ranks.")] = 4,
    collective: Annotated[
        str, typer.Option(help="all-reduce, or a part of it, if the algorithm has it.")
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
    """Make a collective's schedule: which rank sends what to which rank in which round.

    Example: plink schedule --algo halving-doubling --ranks 8
    """
    if context.invoked_subcommand is not None:
        return
    if algo is None:
        raise UsageError("--algo is missing: plink schedule --algo ring --ranks 4")
    from plink.api.algorithms import options_of
    from plink.model.request import parse_settings
    from plink.model.storage import STANDARD
    from solvers.schedules.catalogue import ALGORITHMS, RING_SEGMENTS, schedule_for

    if groups is not None and algo in ALGORITHMS and "groups" not in ALGORITHMS[algo].options:
        raise UsageError(f"--groups {groups}: {algo} takes no groups")
    options = options_of(parse_settings(set_ or []), [algo], _groups(groups, ranks))
    is_log = algo in _LOG_ALGORITHMS
    most_transfers = 2 * ranks * (options.segments_or(1) if is_log else ranks * options.segments_or(RING_SEGMENTS))
    if algo in ALGORITHMS and most_transfers > _MAX_BUILT_TRANSFERS:
        raise UsageError(f"{algo} among {ranks} ranks has too many transfers to make; `plink cost` needs none")
    workspace.check_output(output, None)
    built = schedule_for(algo, ranks, options, collective)
    if (output is not None or as_json) and len(built) > _MAX_WRITTEN_TRANSFERS:
        raise UsageError(
            f"{len(built)} transfers are more than a file should hold; plink generates them when it needs them"
        )
    if output is not None or as_json:
        built.write(output or STANDARD)
        if output is not None and str(output) != STANDARD:
            say(f"{_summary(built)} -> {output}")
            if as_json:
                built.write(STANDARD)
        return
    print_lines(_summary(built))
    _print_rounds(built)


@app.command()
def verify(schedule_file: _File, as_json: _Json = False) -> None:
    """Verify a schedule (every rank ends with every contribution exactly once), or name the wrong transfer.

    Example: plink schedule verify mine.json
    """
    from plink.model.schedule_file import read_schedule
    from plink.model.storage import name_of
    from solvers.schedules.verifier import verify as prove

    loaded = read_schedule(schedule_file)
    errors = prove(loaded)
    contributing = loaded.details.get("contributors", list(range(loaded.ranks)))
    if as_json:
        print_json(
            {"schema": "plink.verification/1", "valid": not errors, "errors": errors, "contributors": contributing}
        )
    else:
        print_lines(*(errors or [f"correct: {_summary(loaded)}"]))
    if errors:
        raise PlinkError(f"{name_of(schedule_file)} is not a correct {loaded.collective}")


@app.command()
def count(
    schedule_file: _File,
    size: Annotated[str, typer.Option(help="Bytes to reduce (100MB).")] = "100MB",
    groups: Annotated[
        str | None, typer.Option(help="Groups of ranks, 0,1/2,3: also count bytes between groups.")
    ] = None,
    as_json: _Json = False,
) -> None:
    """Count a schedule's rounds and bytes.

    Example: plink schedule count mine.json --size 100MB --groups 0,1/2,3
    """
    import numpy as np

    from plink.model.schedule_file import read_schedule
    from solvers.schedules.counter import count as count_schedule

    loaded = read_schedule(schedule_file)
    size_bytes = parse_bytes(size)
    if size_bytes <= 0:
        raise UsageError("--size 0: give more than 0 bytes")
    group_of = None
    if groups is not None:
        groups_of_ranks = _groups(groups, loaded.ranks)
        group_of = np.zeros(loaded.ranks, dtype=np.intp)
        for group_number, members in enumerate(groups_of_ranks):
            group_of[members] = group_number
    counts = count_schedule(loaded, size_bytes, group_of)
    if as_json:
        print_json(counts.to_json())
        return
    print(f"{counts.rounds} rounds, {counts.transfers} transfers, {format_bytes(counts.bytes_on_wire)} on the wire")
    busiest = int(np.argmax(counts.sent_bytes + counts.received_bytes))
    print(
        f"busiest rank {busiest}: {format_bytes(counts.sent_bytes[busiest])} sent, "
        f"{format_bytes(counts.received_bytes[busiest])} received"
    )
    if counts.cross_group_bytes is not None:
        print(f"{format_bytes(counts.cross_group_bytes)} between groups")


def _groups(text: str | None, ranks: int) -> list[list[int]]:
    """Parse ``0,1/2,3`` as lists of ranks, each rank once; without a text return neighbours, about the square root of
    N of them.

    :raises UsageError: for anything else.
    """
    if text is None:
        size = max(1, round(ranks**0.5))
        return [list(range(start, min(ranks, start + size))) for start in range(0, ranks, size)]
    try:
        groups = [[int(rank) for rank in part.split(",")] for part in text.split("/")]
    except ValueError:
        raise UsageError(f"--groups {text}: write ranks like 0,1/2,3") from None
    if sorted(rank for group in groups for rank in group) != list(range(ranks)):
        raise UsageError(f"--groups {text}: every rank from 0 to {ranks - 1} belongs to exactly one group")
    return groups


def _summary(built: "Schedule") -> str:
    contributors = built.details.get("contributors")
    contributors_text = "" if contributors is None else f", of which {len(contributors)} contribute"
    return (
        f"{built.algo}, {built.collective}, {built.ranks} ranks{contributors_text}: {built.rounds} rounds, "
        f"{len(built)} transfers of {built.chunks} chunks"
    )


def _print_rounds(built: "Schedule") -> None:
    """Print every round with its transfers, unless there are too many to read."""
    if len(built) > _MAX_LINES * 8:
        say("too many transfers to read; -o FILE writes them")
        return
    for round_number, part in enumerate(built.round_slices()):
        print(f"round {round_number}:")
        for transfer in range(part.start, part.stop):
            print(f"  {_transfer(built, transfer)}")


def _transfer(built: Any, transfer: int) -> str:
    first, last = int(built.first[transfer]), int(built.first[transfer] + built.count[transfer]) - 1
    chunks_text = f"chunk {first}" if first == last else f"chunks {first}-{last}"
    operation = "" if built.copies[transfer] else ", added"
    return f"{built.source[transfer]} -> {built.target[transfer]}  {chunks_text}{operation}"
