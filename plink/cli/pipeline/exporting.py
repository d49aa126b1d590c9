"""``plink pipeline export``."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from plink.terminal.screen import say


def export(
    plan_file: Annotated[
        Path | None, typer.Argument(metavar="PLAN", help="What `plink pipeline plan` wrote; default that of .plink.")
    ] = None,
    to: Annotated[
        Literal["torch-csv", "torchtitan", "megatron", "deepspeed", "pipedream"],
        typer.Option("--to", help="For which program."),
    ] = "torch-csv",
    profile_file: Annotated[
        Path | None, typer.Option("--profile", metavar="PROFILE", help="The profile; default .plink/profile.json.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Where to write it; default: standard output.")
    ] = None,
) -> None:
    """Write a plan for another program: torch's schedules, torchtitan, Megatron-LM, DeepSpeed, PipeDream.

    torch-csv has the passes of each rank, and pipedream all of its runtime's
    configuration; the others take over which layers form a stage.

    Example: plink pipeline export plan.json --to pipedream -o conf.json
    """
    from plink.api.pipelines import check_profile
    from plink.cli.pipeline.inputs import plan_from, profile_from
    from plink.model.pipeline.exports import FORMATS, NEEDS_PROFILE
    from plink.model.pipeline.profile import ModelProfile
    from plink.model.storage import STANDARD, check_writable, name_of, write_text

    if output is not None:
        check_writable(output)
    plan, path = plan_from(plan_file)
    profile = ModelProfile(plan.minibatch, ())
    if to in NEEDS_PROFILE:
        profile = profile_from(profile_file)
        check_profile(plan, profile, name_of(path))
    exported = FORMATS[to](plan, profile)
    if exported.note:
        say(exported.note)
    if output is None or str(output) == STANDARD:
        print(exported.text, end="")
    else:
        write_text(output, exported.text)
        say(f"{to} -> {output}")
