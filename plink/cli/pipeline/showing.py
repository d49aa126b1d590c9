"""``plink pipeline show`` and ``plink pipeline verify``."""

from pathlib import Path
from typing import Annotated

import typer

from plink.errors import InputError
from plink.terminal.screen import print_json, print_lines

_Plan = Annotated[
    Path | None, typer.Argument(metavar="PLAN", help="What `plink pipeline plan` wrote; default .plink/pipeline.json.")
]
_Json = Annotated[bool, typer.Option("--json", help="Print as JSON.")]


def show(plan_file: _Plan = None, as_json: _Json = False) -> None:
    """Show a plan: stages, hosts, delays, what limits it, and the first actions of each rank.

    Example: plink pipeline show pipeline.json
    """
    from plink.cli.pipeline.inputs import plan_from
    from plink.cli.pipeline.report import plan_lines, timeline_lines

    plan, _ = plan_from(plan_file)
    if as_json:
        print_json(plan.to_json())
    else:
        print_lines(*plan_lines(plan), *timeline_lines(plan))


def verify(
    plan_file: _Plan = None,
    profile_file: Annotated[
        Path | None, typer.Option("--profile", help="Also check that the plan is of this profile.")
    ] = None,
    minibatches: Annotated[
        int | None,
        typer.Option(min=1, max=100_000, help="Of a job; default: any number, if a proof is known; else two cycles."),
    ] = None,
    as_json: _Json = False,
) -> None:
    """Prove a plan, or name the first thing that is wrong with it.

    Every rank ends; every minibatch passes each stage once each way, on the
    replica that its neighbours send to; every pass uses the version that the
    plan says.

    Example: plink pipeline verify pipeline.json
    """
    from plink.api.pipelines import check_profile, prove_pipeline
    from plink.cli.pipeline.inputs import plan_from
    from plink.model.pipeline.profile_file import read_profile
    from plink.model.storage import name_of

    plan, path = plan_from(plan_file)
    if profile_file is not None:
        check_profile(plan, read_profile(profile_file), name_of(path))
    errors, count = prove_pipeline(plan, minibatches)
    if as_json:
        print_json(
            {
                "schema": "plink.pipeline-verification/1",
                "valid": not errors,
                "errors": errors,
                "minibatches": count,
            }
        )
    elif not errors:
        proven = "any number of" if count is None else str(count)
        print_lines(f"correct: {plan.label}, {plan.kind}, {plan.ranks} ranks, proven for {proven} minibatches")
    else:
        print_lines(*errors)
    if errors:
        raise InputError(name_of(path), "its actions are not correct")
