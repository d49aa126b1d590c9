"""``plink pipeline simulate`` as it is typed."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.files import refusal
from tests.conftest import typed
from tests.docs.samples import write_samples


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a profile, a plan of hosts a to f for it, and networks of these hosts."""
    folder = tmp_path_factory.mktemp("simulated")
    write_samples(folder)
    return folder


def run(here: Path, *words: str) -> Any:
    return typed("pipeline", "simulate", "plan.json", "--profile", "profile.json", *words, cwd=here)


def test_simulation_for_people(here: Path) -> None:
    done = run(here, "--network", "measured.json")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("5-1, 1f1b: 67")
    assert lines[2] == "limited by: compute of a"
    assert lines[4].split() == ["0", "a", "0", "98%", "0%", "0%", "2%"]
    assert lines[-1] == "rates: measured"


def test_simulation_document(here: Path) -> None:
    done = run(here, "--gbps", "0.2", "--minibatches", "60", "--json")
    document = json.loads(done.stdout)
    assert (document["minibatches"], document["network"], document["replicas"]) == (60, None, [5, 1])
    assert [rank["host"] for rank in document["ranks"]] == list("abcdef")


def test_network_of_other_hosts(here: Path) -> None:
    done = run(here, "--network", "alike.json")
    assert done.returncode == 2
    assert refusal(done).startswith("alike.json is of other hosts: it does not have a, b, c and 3 more")


def test_plan_of_another_profile(here: Path) -> None:
    changed = json.loads((here / "profile.json").read_text())
    changed["layers"][0]["forward_s"] *= 2
    (here / "other.json").write_text(json.dumps(changed))
    done = typed("pipeline", "simulate", "plan.json", "--profile", "other.json", "--gbps", "2", cwd=here)
    assert refusal(done).startswith("plan.json: profile: the plan was made for sha256:")


def test_host_costs_of_the_network_count(here: Path) -> None:
    """A millisecond a message makes the messages of a minibatch late."""
    network = json.loads((here / "measured.json").read_text())
    costs = {"overhead_us": 1000.0, "overhead_interval_us": None, "byte_ns": 0.0, "byte_interval_ns": None}
    network["host_costs"] = costs | {"algorithms": ["ring"], "timings": 7, "error": 0.0, "measured_at": "2026-11-26"}
    (here / "costly.json").write_text(json.dumps(network))
    before, after = (
        json.loads(run(here, "--network", name, "--json").stdout) for name in ("measured.json", "costly.json")
    )
    assert after["minibatch_s"] > before["minibatch_s"] + 0.001


def test_unused_rate_is_reported(here: Path) -> None:
    assert "--gbps 1 is not used" in run(here, "--network", "measured.json", "--gbps", "1").stderr
    assert run(here, "--gbps", "inf").returncode == 2


def test_jobs_that_take_many_minutes_are_refused(tmp_path: Path) -> None:
    layer = {"forward_s": 0.01, "backward_s": 0.02, "parameter_bytes": 8}
    layers = [layer | {"name": f"l{k}", "crossing_bytes": 8 * (k < 63)} for k in range(64)]
    profile = {"schema": "plink.profile/1", "minibatch": 4, "layers": layers}
    (tmp_path / "p.json").write_text(json.dumps(profile))
    words = ("plan", "p.json", "--hosts", "64", "--gbps", "10", "--straight", "--max-moves", "1", "-o", "plan.json")
    assert typed("pipeline", *words, cwd=tmp_path).returncode == 0
    words = ("simulate", "plan.json", "--profile", "p.json", "--gbps", "10", "--minibatches", "20000")
    done = typed("pipeline", *words, cwd=tmp_path)
    assert done.returncode == 2
    assert "are 3,840,000 actions; at most 2,000,000 are simulated: --minibatches 10416" in done.stderr
