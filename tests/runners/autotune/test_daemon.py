"""What rank 0 tells becomes decisions, schedules that sum up right, and a log from which all can be decided again."""

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from plink.errors import InputError
from plink.runtime.allreduce.aggregation import from_bytes
from runners.autotune.daemon import NAME, Daemon, TuningLog, read_log, schedule_for, stretch_from
from solvers.autotune.trajectory import AutotuneSettings, TuningTrajectory, decide
from solvers.schedules.verifier import verify
from tests.solvers.ranks_on_paper import CHUNK, GROUPS, RATE, equal_assignment, seen

NODES = [f"node-{rank}" for rank in range(16)]


class Job:
    """Stretches as rank 0 would tell them, on a network on paper; what is answered is at work in the next one."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / NAME
        self.assignment = equal_assignment(GROUPS, 64)
        self.printed: list[str] = []
        self.daemon = Daemon(
            self.assignment,
            TuningLog(self.path, self.assignment, AutotuneSettings(), NODES),
            self.printed.append,
            clock=lambda: 5.0,
        )
        self.epoch = 0

    def stretch(self, rates: Any) -> list[str]:
        """One; the answers."""
        observed, seconds = seen(self.assignment, rates)
        rows = [
            [int(i), int(j), observed.sent_bytes[i, j], observed.sent_bytes[i, j] / observed.bytes_per_s[i, j], 1e-4]
            for i, j in zip(*np.nonzero(observed.sent_bytes), strict=True)
        ]
        messages = {"epoch": self.epoch, "jobs": 1, "bytes": int(64 * CHUNK), "seconds": seconds, "seen": rows}
        answers = self.daemon.answer_line(json.dumps(messages))
        if answers:
            self.epoch = json.loads(answers[-1])["epoch"]
            self.assignment = self.daemon._trajectory.assignment
        return answers


def tuned(folder: Path) -> tuple[Job, list[str]]:
    """A job in which rank 6 falls to a quarter of its rate: (the job, all answers)."""
    job = Job(folder)
    rates = np.full(16, RATE)
    answers = [answer for _ in range(8) for answer in job.stretch(rates)]
    assert answers == []
    rates[6] /= 4
    answers = [answer for _ in range(20) for answer in job.stretch(rates)]
    job.daemon.close()
    return job, answers


def test_a_slow_rank_gets_less_to_do(tmp_path: Path) -> None:
    """Every answer is a schedule that sums up right, with its number; the last one gives rank 6 the least."""
    job, answers = tuned(tmp_path)
    assert len(answers) >= 2
    for number, answer in enumerate(map(json.loads, answers), 1):
        assert answer["epoch"] == number
        schedule = from_bytes(base64.b64decode(answer["plan"])).classes[0].schedule
        assert schedule is not None
        assert verify(schedule) == []
    load = np.bincount(schedule.source, schedule.count, 16)
    assert load.argmin() == 6
    assert len(schedule) == len(schedule_for(job.assignment))
    assert job.printed[0].startswith("autotune: throughput went from ")


def test_log_replays_the_same_decisions(tmp_path: Path) -> None:
    job, _ = tuned(tmp_path)
    assignment, settings, lines = read_log(job.path)
    assert settings == AutotuneSettings()
    course, actions = TuningTrajectory(assignment), []
    for line, stretch in lines:
        course, decision = decide(course, stretch, settings)
        assert (line["action"], line["reason"], line["at_s"]) == (decision.action, decision.reason, 0.0)
        if decision.assignment is not None:
            assert line["local_masters"] == decision.assignment.local_masters.tolist()
        actions.append(decision.action)
    assert len(actions) == 28
    assert {"watch", "quicktune", "finetune"} <= set(actions)


@pytest.mark.parametrize(
    "text",
    ["", "[]", "no JSON", '{"epoch": 0, "jobs": 1, "bytes": 5, "seconds": 0, "seen": []}',
     '{"epoch": 0, "jobs": 1, "bytes": 5, "seconds": NaN, "seen": []}',
     '{"epoch": 0, "jobs": 1, "bytes": 5, "seconds": 1, "seen": [[0, 99, 1, 1, 1]]}',
     '{"epoch": 0, "jobs": 1, "bytes": 5, "seconds": 1, "seen": [[0, 1, 1e999, 1, 1]]}',
     '{"epoch": 0, "jobs": 1, "bytes": 5, "seconds": 1, "seen": [[0, 1]]}'],
)  # fmt: skip
def test_unknown_report_is_reported_once_and_ignored(text: str, tmp_path: Path) -> None:
    job = Job(tmp_path)
    assert [job.daemon.answer_line(text) for _ in range(3)] == [[], [], []]
    assert len(job.printed) == 1
    assert job.printed[0].startswith("autotune: ")
    job.daemon.close()
    assert len(job.path.read_text().splitlines()) == 1


def test_coarse_clock_gives_no_result() -> None:
    """Short messages: the kernel counts in its ticks."""
    stretch = stretch_from({"epoch": 0, "jobs": 1, "bytes": 5, "seconds": 1, "seen": [[0, 1, 80, 0.0, 0.1]]}, 2, "x")
    assert not stretch.observed.sent_bytes.any()
    assert np.isnan(stretch.observed.bytes_per_s).all()
    with pytest.raises(InputError):
        stretch_from({}, 2, "x")


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda lines: [], ":1: not the first line of an Autotune log"),
        (lambda lines: ['{"schema": "plink.autotune/1"}'], ":1: settings: expected an object, got null"),
        (
            lambda lines: [lines[0].replace('"groups": [[0', '"groups": [[1')],
            ":1: groups: every rank from 0 up belongs to exactly one group",
        ),
        (lambda lines: [lines[0], "no JSON"], ":2: no JSON object"),
        (lambda lines: [lines[0], "{}"], ":2: epoch: is missing"),
    ],
)
def test_a_log_that_is_none(change: Any, expected: str, tmp_path: Path) -> None:
    job, _ = tuned(tmp_path)
    lines = job.path.read_text().splitlines()
    job.path.write_text("".join(f"{line}\n" for line in change(lines)))
    with pytest.raises(InputError) as error:
        list(read_log(job.path)[2])
    assert expected in str(error.value)


def test_a_last_line_that_was_not_finished_is_passed_over(tmp_path: Path) -> None:
    """The launcher was killed while it wrote."""
    job, _ = tuned(tmp_path)
    job.path.write_text(job.path.read_text()[:-20])
    assert len(list(read_log(job.path)[2])) == 27


def test_a_log_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No such file"):
        read_log(tmp_path / "none")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\n")
    with pytest.raises(InputError, match="not a text file"):
        read_log(tmp_path / "binary")
