"""``plink spot release``."""

from typing import Annotated

import typer

from plink.errors import PartlyDone, UsageError
from plink.terminal.screen import say, say_error


def release(
    run: Annotated[
        str | None, typer.Argument(metavar="RUN", help="The run, the beginning of its id, or `last`.")
    ] = None,
    all_runs: Annotated[bool, typer.Option("--all", help="Every run of this workspace that had instances.")] = False,
) -> None:
    """Release the instances of a run: all that the provider lists with the run's tag.

    Instances without the tag of one of these runs are never touched. A job that runs goes on without them, and its
    driver ends. `plink spot drive` rents again.

    Example: plink spot release last
    """
    from plink.api.spot_release import release_spot
    from plink.api.spot_state import runs_with_instances
    from plink.records import workspace
    from plink.records.runs import run_named

    if (run is None) != all_runs:
        raise UsageError("give one run, or --all")
    folders = (
        runs_with_instances(workspace.RUNS) if run is None else [workspace.RUNS / run_named(workspace.RUNS, run).id]
    )
    failed = []
    for folder in folders:
        try:
            released = release_spot(folder, say)
        except Exception as error:  # whatever is wrong with one run, the others still cost money
            if run is not None:
                raise
            say_error(f"{folder.name}: {error or type(error).__name__}")
            failed.append(folder.name)
            continue
        say(f"{released.run}: {', '.join(released.names) or 'nothing'} released; nothing is held")
    if failed:
        raise PartlyDone(f"not everything is released: {', '.join(failed)}")
    if not folders:
        say("no run of this workspace had instances")
