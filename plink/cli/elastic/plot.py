"""``plink elastic plot``."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from plink.errors import PlinkError, UsageError
from plink.terminal.screen import say

_PICTURE = Path("elastic.svg")


class Over(StrEnum):
    """What lies to the right."""

    ITERATIONS = "iterations"
    SECONDS = "seconds"


def plot(
    run: Annotated[str, typer.Argument(metavar="RUN", help="The run's id, the beginning of it, `last`, or a log.")],
    output: Annotated[
        Path, typer.Option("-o", "--output", help="The picture, .svg or .png; - is SVG on standard output.")
    ] = _PICTURE,
    over: Annotated[Over, typer.Option(help="What lies to the right.")] = Over.ITERATIONS,
) -> None:
    """Draw how long each iteration of an elastic run took, with its stages and what happened to its hosts.

    Iterations that a roll-back undid, and those done again, have marks of their own. Works on a run under way.

    Example: plink elastic plot last -o run.png
    """
    from plink.model.storage import STANDARD, check_writable, write_bytes, write_text
    from plink.report.canvas import as_png, as_svg
    from plink.report.colours import PAPER
    from plink.report.iterations import iterations
    from plink.terminal.elastic_runs import history_from

    kind = ".svg" if str(output) == STANDARD else output.suffix.lower()
    if kind not in (".svg", ".png"):
        raise UsageError(f"-o {output}: a picture's name ends in .svg or .png")
    check_writable(output)
    history = history_from(run)
    if not history.steps:
        raise PlinkError(f"{run}: no iteration was done yet, so there is nothing to draw")
    picture = iterations(history, PAPER, over is Over.SECONDS)
    if kind == ".png":
        write_bytes(output, as_png(picture))
    else:
        write_text(output, as_svg(picture))
    if str(output) != STANDARD:
        say(f"{len(history.completed)} iterations -> {output}")
