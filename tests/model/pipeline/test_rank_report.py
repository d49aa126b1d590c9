"""Reports of a pipeline's ranks: their table, and the log that a launcher keeps."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from plink.model.codec import decode
from plink.model.pipeline.rank_report import RankReport, table_of_reports
from plink.records.pipeline_log import PipelineLog


def report(rank: int, stage: int, replica: int, **keys: Any) -> dict[str, Any]:
    return {
        "schema": "plink.pipeline-log/1", "type": "end", "plan": "abc", "rank": rank, "host": f"node-{rank}",
        "stage": stage, "replica": replica, "at_s": 10.0, "minibatches": 50, "minibatch_s": 0.1, "forward_s": 0.03,
        "backward_s": 0.06, "update_s": 0.001, "sent_bytes": 1000, "received_bytes": 1000, "versions": 2, **keys,
    }  # fmt: skip


def decoded(reports: list[dict[str, Any]]) -> list[RankReport]:
    return [decode(RankReport, entry, "log") for entry in reports]


def test_table_has_a_row_for_each_stage() -> None:
    reports = [
        report(0, 0, 0, wait_backward_s=1.0), report(1, 0, 1, wait_backward_s=3.0, wait_reduce_s=2.0),
        report(2, 1, 0, minibatches=100, loss=0.5),
    ]  # fmt: skip
    head, columns, first, last = table_of_reports(decoded(reports), 0.09)
    assert head == "pipeline 2-1, 100 minibatches in 10 s: 100 ms a minibatch (predicted 90 ms), loss 0.5"
    assert columns.split()[:4] == ["stage", "hosts", "forward", "backward"]
    assert first.split() == [
        "0",
        "node-[0-1]",
        "30",
        "ms",
        "60",
        "ms",
        "1",
        "ms",
        "70%",
        "gradient",
        "20%,",
        "all-reduce",
        "10%",
        "2",
        "kB",
        "2",
    ]
    assert last.split() == ["1", "node-2", "30", "ms", "60", "ms", "1", "ms", "100%", "-", "1", "kB", "2"]
    assert table_of_reports([]) == []


@pytest.mark.parametrize(
    ("begin", "checkpoints", "expected"),
    [(0, (90, 80), ["90", "10"]), (20, (90, 90), ["90", "30"]), (0, (0, 0), ["100"]), (0, None, None)],
)
def test_table_says_how_old_the_latest_checkpoint_is(
    begin: int, checkpoints: tuple[int, int] | None, expected: list[str] | None
) -> None:
    """It is the latest that some rank knows of. 100 minibatches were trained since the beginning."""
    reports = [
        report(
            rank, rank, 0, minibatches=100, begin=begin, **({"checkpoint": checkpoints[rank]} if checkpoints else {})
        )
        for rank in range(2)
    ]
    lines = table_of_reports(decoded(reports))[4:]
    assert [re.findall(r"\b\d+\b(?! s)", line) for line in lines] == ([] if expected is None else [expected])


def test_log_takes_reports_and_nothing_else(tmp_path: Path) -> None:
    log = PipelineLog()
    first, second = json.dumps(report(1, 0, 0, type="progress")), json.dumps(report(1, 0, 0))
    assert log.take("out", first, tmp_path)
    assert log.take("out", second, tmp_path)
    assert log.take("out", json.dumps(report(0, 1, 0)).replace(", ", ",\r").replace(",\r", ", ", 1), tmp_path)
    for stream, line in (("err", first), ("out", "hello"), ("out", first[:-10]), ("out", json.dumps({"schema": "x"}))):
        assert not log.take(stream, line, tmp_path)
    assert [entry.rank for entry in log.reports] == [0, 1]
    assert log.reports[1].type == "end"
    assert len((tmp_path / "pipeline.jsonl").read_text().splitlines()) == 3


def test_log_that_cannot_be_written_stops_nothing(tmp_path: Path) -> None:
    log = PipelineLog()
    assert log.take("out", json.dumps(report(0, 0, 0)), tmp_path / "none")
    assert log.write_error is not None
    assert len(log.reports) == 1
