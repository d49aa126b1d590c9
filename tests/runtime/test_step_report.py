"""A training step as all-reduces show it: bytes, seconds, and what tells nothing."""

import pytest

from plink.runtime.step_report import StepCounter, step_of_line

Calls = list[tuple[float, int]]  # seconds since the one before, bytes


def reported(calls: Calls, monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    now, counter = 0.0, StepCounter()
    monkeypatch.setattr("plink.runtime.step_report.time.perf_counter", lambda: now)
    for wait, size in calls:
        now += wait
        counter.add(size)
    return step_of_line(counter.report() or "")


@pytest.mark.parametrize(
    ("step", "size_bytes", "seconds"),
    [
        ([(0.3, 25_000_000)], 25_000_000, 0.3),
        ([(0.2, 1_000_000), (0.05, 25_000_000), (0.05, 25_000_000), (0.1, 9_000_000)], 60_000_000, 0.4),
        ([(0.2, 25_000_000), (0.1, 8), (0.1, 8)], 25_000_016, 0.4),
    ],
)
def test_steps_of_a_training(step: Calls, size_bytes: float, seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Buckets of the first step are others; a pause of a minute in between changes no median."""
    calls = [(1.0, 59_000_000), *step * 15, (60.0, 4), *step * 15]
    result = reported(calls, monkeypatch)
    assert result["bytes_per_step"] == pytest.approx(size_bytes, rel=1e-6)
    assert result["step_s"] == pytest.approx(seconds)


def test_line_says_which_steps_it_is_about(monkeypatch: pytest.MonkeyPatch) -> None:
    """The network gets slower halfway: the seconds are those of the last steps, and so the line says."""
    now, counter = 0.0, StepCounter()
    monkeypatch.setattr("plink.runtime.step_report.time.perf_counter", lambda: now)
    for wait in [0.35] * 72 + [1.2] * 72:
        now += wait
        counter.add(4_000_000)
    line = "plink: the last 71 steps took 1.200000 s each (median), each 4000000 bytes of all-reduces"
    assert counter.report() == line
    assert step_of_line(line) == {"bytes_per_step": 4_000_000, "step_s": 1.2}


def test_few_all_reduces_are_no_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    assert reported([(0.1, 1000)] * 8, monkeypatch) == {}
    assert reported([(0.1, 1000 * k) for k in range(1, 100)], monkeypatch) == {}
    assert reported([], monkeypatch) == {}
    assert step_of_line("plink: 2/2 ranks placed") == {}
