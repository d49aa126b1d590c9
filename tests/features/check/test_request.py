"""What a request for a check refuses, by the options that it names."""

from pathlib import Path
from typing import Any

import pytest

import plink
from plink.errors import UsageError

RUNS, TRUTH = {"results": Path("check.json")}, {"truth": Path("truth")}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({}, "--measure runs orders .* --results FILE .* --truth FILE"),
        ({"measure": True, **RUNS}, "--measure .* --results"),
        ({**RUNS, "min_spearman": 2.0}, "--min-spearman 2"),
        ({**TRUTH, "min_spearman": 0.5}, "--min-spearman"),
        ({**TRUTH, "max_regression": Path("old.json")}, "--max-regression"),
        ({**RUNS, "tolerance": 0.1}, "--tolerance goes with --max-regression"),
        ({**RUNS, "min_paia": 0.9}, "--min-paia goes with --truth"),
        ({**TRUTH, "min_paia": 1.5}, "--min-paia 1.5"),
        ({**RUNS, "algorithms": ("ring",), "size_bytes": 1e3}, "--algo, --size go with --measure"),
        ({**RUNS, "seed": 1}, "--seed goes with --measure"),
        ({**TRUTH, "model": "latency"}, "--model goes with --measure"),
        ({**TRUTH, "calibrate": True}, "--calibrate goes with --measure"),
        ({"measure": True, "algorithms": ("lightgbm",)}, "--algo lightgbm: .*choose one of ring"),
        ({"measure": True, "min_spearman": 0.9, "orders": 3}, "--orders 3: 4 at least"),
        ({"measure": True, "size_bytes": 3.0}, "--size 3"),
        ({"measure": True, "orders": 1}, "--orders 1"),
    ],
)
def test_refused_requests(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        plink.CheckRequest(**changes)


def test_options_that_recorded_runs_and_truth_use() -> None:
    plink.CheckRequest(**RUNS, model="latency", calibrate=True)
    plink.CheckRequest(**TRUTH, seed=3, min_paia=0.5)


def test_network_that_a_check_needs() -> None:
    with pytest.raises(UsageError, match="NETWORK"):
        plink.check(None, plink.CheckRequest(measure=True))
