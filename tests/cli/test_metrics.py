"""The metric that `plink compare` finds in a program's output, and few hosts that it has nothing to compare of."""

import json
from pathlib import Path

import pytest

import plink
from plink.features.compare.metric import detected_metric
from plink.runtime.step_report import report_metric
from tests.conftest import typed


@pytest.mark.parametrize(
    ("lines", "name", "unit", "value"),
    [
        (['{"step": 1, "step_time": 0.3}', '{"step": 2, "step_time": 0.5}', "done"], "step_time", None, 0.4),
        (['{"step_s": [0.3, 0.2, 0.9]}'], "step_s", "s", 0.3),
        (['{"loss": 2.5, "iteration_ms": 310}'], "iteration_ms", "ms", 310.0),
        (["step 10 loss 2.1", "Step time: 0.25 s, loss 2", "Step time: 0.35 s"], "Step time", "s", 0.3),
        (["epoch=3 avg_batch_time=12.5ms"], "avg_batch_time", "ms", 12.5),
        (["step_time_s: 1e-3"], "step_time_s", "s", 0.001),
    ],
)
def test_time_of_a_step_is_found(lines: list[str], name: str, unit: str | None, value: float) -> None:
    metric = detected_metric(lines)
    assert metric is not None
    assert (metric.name, metric.unit, metric.parse(lines)) == (name, unit, pytest.approx(value))


@pytest.mark.parametrize(
    "lines",
    [
        [],
        ["step 7", "loss: 2.5"],
        ['{"step": 7, "loss": 2.5}'],
        ['{"epochs": 3}'],
        ["steps: 100"],
        ["{"],
        ["step time: ..."],
        ['{"step_time": null}'],
    ],
)
def test_counters_and_losses_are_no_metric(lines: list[str]) -> None:
    assert detected_metric(lines) is None


def test_reported_metric_comes_first(capsys: pytest.CaptureFixture[str]) -> None:
    for seconds in (0.2, 0.9, 0.3):
        report_metric(seconds)
    lines = ['{"step_time": 7}', *capsys.readouterr().out.splitlines(), '{"step_time": 8}']
    metric = detected_metric(lines)
    assert metric is not None
    assert (metric.unit, metric.parse(lines)) == ("s", 0.3)


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf")])
def test_invalid_metric_is_refused(value: float) -> None:
    with pytest.raises(plink.UsageError, match="above 0"):
        report_metric(value)


def test_few_hosts_form_one_ring(tmp_path: Path) -> None:
    """Said at once: nothing listens at these addresses."""
    hosts = "".join(f"h{k} address=127.0.0.{k + 1} port=1\n" for k in range(3))
    (tmp_path / "hosts.txt").write_text(hosts)
    done = typed("compare", "--hosts", "hosts.txt", "train.py", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "")
    assert "3 hosts form one ring" in done.stderr
    assert json.dumps(done.stderr).count("\\n") == 1
