"""``plink check --measure`` that ends early: what was run before stays. The hosts are stood in for."""

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from plink.errors import PlinkError
from plink.features.check import run
from plink.features.check.benchmark import PlannedBenchmark
from plink.model.check import BenchmarkRun, OrderTiming
from tests.cli.files import network, write
from tests.conftest import typed


@pytest.mark.parametrize(
    ("ends", "code", "message"),
    [(KeyboardInterrupt(), 130, "it was interrupted"), (PlinkError("rank 3 died"), 1, "rank 3 died")],
)
def test_what_the_first_algorithm_took_is_kept(
    ends: BaseException, code: int, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what it fell short of is said with it."""

    def time_orders(planned: PlannedBenchmark, *_: object) -> BenchmarkRun:
        if planned.algo == "tree":
            raise ends
        orders = len(planned.orders)
        timings = (
            OrderTiming(order=str(k), predicted_us=100.0 * (k + 1), achieved_s=(float(orders - k),))
            for k in range(orders)
        )
        return BenchmarkRun(runs=tuple(timings), algo=planned.algo, size_bytes=1e6, model=planned.model)

    monkeypatch.setattr(run, "time_orders", time_orders)
    write(tmp_path / "cloud.json", network())
    words = ("--algo", "ring", "--algo", "tree", "--orders", "5", "--repeats", "1", "--size", "1MB")
    files = ("--min-spearman", "0.9", "-o", "check.json", "--junit", "check.xml")
    assert typed("check", "cloud.json", "--measure", *words, *files, cwd=tmp_path).returncode == code
    document = json.loads((tmp_path / "check.json").read_text())
    assert [entry["algo"] for entry in document["checks"]] == ["ring"]
    assert document["ok"] is False
    assert len(document["failures"]) == 2
    assert "below --min-spearman 0.9" in document["failures"][0]
    assert document["failures"][1] == message
    top = ElementTree.parse(tmp_path / "check.xml").getroot()
    assert (top.get("tests"), top.get("failures"), top.get("errors")) == ("2", "1", "1")


def test_what_was_measured_is_printed_where_the_disk_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """/dev/full is such a disk: the error comes last."""

    def time_orders(planned: PlannedBenchmark, *_: object) -> BenchmarkRun:
        timings = (OrderTiming(order=str(k), predicted_us=k + 1, achieved_s=(k + 1.0,)) for k in range(4))
        return BenchmarkRun(runs=tuple(timings), algo=planned.algo, size_bytes=1e6, model=planned.model)

    monkeypatch.setattr(run, "time_orders", time_orders)
    write(tmp_path / "cloud.json", network())
    words = ("--algo", "ring", "--orders", "4", "-o", "/dev/full", "--junit", "check.xml")
    done = typed("check", "cloud.json", "--measure", *words, cwd=tmp_path)
    assert (done.returncode, "Spearman's rank correlation: 1.000" in done.stdout) == (1, True)
    assert "/dev/full" in done.stderr.splitlines()[-1]
    assert ElementTree.parse(tmp_path / "check.xml").getroot().get("tests") == "1"
