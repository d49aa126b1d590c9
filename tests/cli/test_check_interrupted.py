"""``plink check --measure`` that ends early: what was run before stays. The hosts are stood in for."""

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from plink.cli import check_run
from plink.cli.acceptance import AcceptanceLimits
from plink.cli.check_run import CheckRequest, run
from plink.cli.order_benchmark import BenchmarkConfig, PlannedBenchmark
from plink.errors import PlinkError
from plink.model.benchmark_runs import BenchmarkRun, OrderTiming
from plink.model.network import Network
from solvers.checking.regression import Tolerance
from tests.cli.files import network, write


@pytest.mark.parametrize(
    ("ends", "message"), [(KeyboardInterrupt(), "it was interrupted"), (PlinkError("rank 3 died"), "rank 3 died")]
)
def test_what_the_first_algorithm_took_is_kept(
    ends: BaseException, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what it fell short of is said with it."""

    def run_orders(network: Network, planned: PlannedBenchmark, *_: Any) -> BenchmarkRun:
        if planned.algo == "tree":
            raise ends
        costs = [cost for _, cost in planned.orders]
        trials = tuple(OrderTiming(str(k), cost, (float(len(costs) - k),)) for k, cost in enumerate(costs))
        return BenchmarkRun(trials, planned.algo, 1e6, planned.model)

    monkeypatch.setattr(check_run, "run_orders", run_orders)
    cloud, left, junit = write(tmp_path / "cloud.json", network()), tmp_path / "check.json", tmp_path / "check.xml"
    trying = BenchmarkConfig(1_000_000, "auto", 4, 1, 0)
    request = CheckRequest(
        cloud, True, None, None, None, ("ring", "tree"), trying, None, AcceptanceLimits(0.9, (), Tolerance()), None,
        False, left,
        junit, False, False,
    )  # fmt: skip
    with pytest.raises(type(ends)):
        run(request)
    document = json.loads(left.read_text())
    assert [entry["algo"] for entry in document["checks"]] == ["ring"]
    assert document["ok"] is False
    assert len(document["failures"]) == 2
    assert "below --min-spearman 0.9" in document["failures"][0]
    assert document["failures"][1] == message
    top = ElementTree.parse(junit).getroot()
    assert (top.get("tests"), top.get("failures"), top.get("errors")) == ("2", "1", "1")
