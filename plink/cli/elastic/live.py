"""An elastic job that runs, and how it is asked."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from plink.errors import UsageError
from plink.records import workspace
from plink.terminal.screen import print_json, print_lines

if TYPE_CHECKING:
    from plink.documents.elastic_job import ElasticJobDocument
    from plink.records.runs import Run

RunId = Annotated[str, typer.Argument(metavar="RUN", help="The run, the beginning of its id, or `last`.")]


def ask_and_print(name: str, what: str, schema: str | None, lines: Callable[[dict[str, Any]], list[str]]) -> None:
    """A request without parameters: its answer as JSON of a schema, or in lines."""
    from runners.elastic.control_socket import ask

    run, job = live_job(name)
    answer = ask(job["socket"], {"method": what})
    if schema:
        print_json({"schema": schema, "run": run.id, **answer})
    else:
        print_lines(*lines(answer))


def live_job(name: str) -> "tuple[Run, ElasticJobDocument]":
    """The run, and where its supervisor listens. :raises UsageError: no such run, or it is of another kind."""
    from plink.documents.codec import decode
    from plink.documents.elastic_job import ElasticJobDocument
    from plink.model.storage import read_document
    from plink.records.elastic_log import SOCKET
    from plink.records.runs import run_named

    run = run_named(workspace.RUNS, name)
    path = workspace.RUNS / run.id / SOCKET
    if not path.is_file():
        raise UsageError(f"{run.id} is no elastic job (`plink elastic run`)")
    return run, decode(ElasticJobDocument, read_document(path), str(path))
