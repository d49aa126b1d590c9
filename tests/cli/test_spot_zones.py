"""``plink spot simulate`` of availability histories."""

import json
from pathlib import Path

import jsonschema
import pytest

from benchmarks.made_availability import KINDS, make_availability
from plink.model.storage import read_document
from tests.cli.files import refusal
from tests.conftest import typed
from tests.docs.pages import ROOT

_MARKET = """billing = "per-second"
[[types]]
name = "v100"
cores = 8
on_demand = 3.0
[reference]
type = "v100"
count = 16
[limits]
max_cores = 128
"""


@pytest.fixture
def here(tmp_path: Path) -> Path:
    zones = [
        {"zone": f"z{number}", "type": "v100", "counts": trace.counts.tolist()}
        for number, trace in enumerate(make_availability(KINDS[:3], 5, 1))
    ]
    document = {"schema": "plink.spot-availability/1", "gap_seconds": 600, "start_s": 0, "zones": zones}
    (tmp_path / "a.json").write_text(json.dumps(document))
    (tmp_path / "market.toml").write_text(_MARKET)
    return tmp_path


def test_strategies_side_by_side(here: Path) -> None:
    words = ("spot", "simulate", "market.toml", "--prices", "a.json")
    document = json.loads(typed(*words, "--json", cwd=here).stdout)
    jsonschema.validate(document, read_document(ROOT / "docs/schemas/spot-zones.schema.json"))
    assert [row["strategy"] for row in document["results"]] == ["one zone"] * 3 + ["next zone", "bidbrain"]
    assert all(row["cost"] >= 1 for row in document["results"])
    assert "next zone" in typed(*words, cwd=here).stdout


@pytest.mark.parametrize(
    "option", ["--deadline 3h", "--strategies bidbrain", "--hours 3", "--starts 5", "--picture a.svg"]
)
def test_options_that_need_prices(here: Path, option: str) -> None:
    done = typed("spot", "simulate", "market.toml", "--prices", "a.json", *option.split(), cwd=here)
    assert option.split()[0] in refusal(done)
    assert "needs price histories" in refusal(done)
