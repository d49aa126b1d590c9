"""An elastic job that runs, and how it is asked."""

from collections.abc import Callable
from typing import Any

from plink.terminal.elastic_runs import live_job
from plink.terminal.screen import print_json, print_lines


def ask_and_print(name: str, what: str, schema: str | None, lines: Callable[[dict[str, Any]], list[str]]) -> None:
    """A request without parameters: its answer as JSON of a schema, or in lines."""
    from runners.elastic.control_socket import ask

    run, job = live_job(name)
    answer = ask(job["socket"], {"method": what})
    if schema:
        print_json({"schema": schema, "run": run.id, **answer})
    else:
        print_lines(*lines(answer))
