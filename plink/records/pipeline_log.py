"""Log of a pipeline's run, ``pipeline.jsonl``: the lines that its ranks report (``plink.pipeline-log/1``)."""

import json
from pathlib import Path

from plink.errors import PlinkError
from plink.model.codec import decode, schema_name
from plink.model.pipeline.rank_report import RankReport

NAME = "pipeline.jsonl"
_BEGIN = f'{{"schema": "{schema_name(RankReport)}"'


def is_report(line: str) -> bool:
    """Return whether a line of a rank's output looks like a report."""
    return line.startswith(_BEGIN)


class PipelineLog:
    """Take the ranks' reports out of a job's output, and keep them. ``latest``: by rank."""

    def __init__(self) -> None:
        self.latest: dict[int, RankReport] = {}
        self.write_error: str | None = None

    @property
    def reports(self) -> list[RankReport]:
        """The latest report of each rank, in rank order."""
        return [self.latest[rank] for rank in sorted(self.latest)]

    def take(self, stream: str, line: str, folder: Path) -> bool:
        """Return whether a line of output is a report; then it is in the folder's log.

        The first error of writing is kept; the run goes on without a log.
        """
        if stream != "out" or not is_report(line):
            return False
        try:
            document = json.loads(line)
            report = decode(RankReport, document, NAME)
            text = json.dumps(document)  # what was printed may have other line ends in it
        except (ValueError, RecursionError, PlinkError):
            return False
        if report.type not in ("timeline", "evaluation"):
            self.latest[report.rank] = report
        if self.write_error is None:
            try:
                with (folder / NAME).open("a") as file:
                    file.write(f"{text}\n")
            except OSError as error:
                self.write_error = f"cannot write {folder / NAME}: {error.strerror}"
        return True
