"""``plink schedule``, ``plink schedule verify`` and ``plink schedule count``."""

from pathlib import Path
from typing import Annotated

import typer

import plink
from plink.errors import PlinkError, UsageError
from plink.features.schedule.request import CountRequest, ScheduleRequest
from plink.features.schedule.run import group_of_ranks
from plink.features.schedule.show import count_lines, rounds, summary
from plink.model.schedule_file import ScheduleVerification
from plink.model.storage import STANDARD, name_of
from plink.records import workspace
from plink.terminal.options import Json, takes
from plink.terminal.screen import print_lines, print_result, say
from solvers.schedules.counter import count as count_transfers
from solvers.schedules.verifier import contributors_of
from solvers.schedules.verifier import verify as find_errors

app = typer.Typer(
    no_args_is_help=True, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]}
)
_MAX_SHOWN_TRANSFERS, _MAX_WRITTEN_TRANSFERS = 480, 3_000_000
_File = Annotated[Path, typer.Argument(metavar="SCHEDULE", help="A schedule file; - is standard input.")]


@app.callback()
@takes(ScheduleRequest)
def schedule(
    request: ScheduleRequest,
    context: typer.Context,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Write plink.schedule/1 there.")] = None,
    as_json: Json = False,
) -> None:
    """Make a collective's schedule: which rank sends what to which rank in which round.

    Example: plink schedule --algo halving-doubling --ranks 8
    """
    if context.invoked_subcommand is not None:
        return
    workspace.check_output(output, None)
    built = plink.schedule(request)
    if output is None and not as_json:
        print_lines(summary(built))
        if len(built) > _MAX_SHOWN_TRANSFERS:
            say("too many transfers to read; -o FILE writes them")
        else:
            print_lines(*rounds(built))
        return
    if len(built) > _MAX_WRITTEN_TRANSFERS:
        raise UsageError(
            f"{len(built)} transfers are more than a file should hold; plink generates them when it needs them"
        )
    built.write(output or STANDARD)
    if output is not None and str(output) != STANDARD:
        say(f"{summary(built)} -> {output}")
        if as_json:
            built.write(STANDARD)


@app.command()
def verify(schedule_file: _File, as_json: Json = False) -> None:
    """Verify a schedule (every rank ends with every contribution exactly once), or name the wrong transfer.

    Example: plink schedule verify mine.json
    """
    loaded = plink.read_schedule(schedule_file)
    errors, contributors = tuple(find_errors(loaded)), tuple(contributors_of(loaded).tolist())
    result = ScheduleVerification(valid=not errors, errors=errors, contributors=contributors)
    print_result(result, as_json, lambda: print_lines(*(errors or [f"correct: {summary(loaded)}"])))
    if errors:
        raise PlinkError(f"{name_of(schedule_file)} is not a correct {loaded.collective}")


@app.command()
@takes(CountRequest)
def count(request: CountRequest, schedule_file: _File, as_json: Json = False) -> None:
    """Count a schedule's rounds and bytes.

    Example: plink schedule count mine.json --size 100MB --groups 0,1/2,3
    """
    loaded, groups = plink.read_schedule(schedule_file), request.groups
    group_of = None if groups is None else group_of_ranks(groups, loaded.ranks)
    result = count_transfers(loaded, request.size_bytes, group_of)
    print_result(result, as_json, lambda: print_lines(*count_lines(result)))
