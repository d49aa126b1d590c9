"""``--model simulated``: cost, reorder, plan and advise on hosts in two racks, and what is refused."""

import json
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from plink.features.cost import run as cost_command
from solvers.simulation import cost as simulated_costs
from tests.cli.files import network, refuses, write
from tests.conftest import typed

NAMES = list("abcdefgh")
HOSTS: list[dict[str, Any]] = [{"name": name, "address": f"10.0.0.{i}"} for i, name in enumerate(NAMES, start=1)]
RTT = np.where(np.add.outer(range(8), range(8)) % 2 == 0, 20.0, 80.0) * ~np.eye(8, dtype=bool)
LINK = {"out_gbps": 1, "in_gbps": 1, "out_limited_by": "link", "in_limited_by": "link"}
LINK |= {"out_one_flow_gbps": 1, "in_one_flow_gbps": 1}
RACKS = [{"groups": [{"members": list("aceg"), **LINK}, {"members": list("bdfh"), **LINK}]}]


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """A folder with two racks of hosts in turns, with and without halves of the samples, and an unmeasured pair."""
    rng = np.random.default_rng(1)
    noise = [np.triu(rng.lognormal(0, 0.03, (8, 8)), 1) for _ in range(2)]
    halves = [(RTT * (half + half.T)).round(3).tolist() for half in noise]
    details: dict[str, Any] = {"hosts": HOSTS, "latency_us": RTT.tolist(), "shared_links": RACKS}
    holes = RTT.tolist()
    holes[0][1] = holes[1][0] = None
    write(tmp_path / "plain.json", network(**details))
    write(tmp_path / "n.json", network(**details, halves_us=halves))
    write(tmp_path / "holes.json", network(**(details | {"latency_us": holes})))
    return tmp_path


def run(here: Path, *words: str) -> Any:
    """What the command prints as JSON."""
    done = typed(*words, "--model", "simulated", "--json", cwd=here)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_random_orders_end_with_the_time(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cost_command, "_RANDOM_ORDERS_S", -1.0)
    monkeypatch.setattr(time, "monotonic", lambda: 5.0)
    done = typed("cost", "plain.json", "--model", "simulated", "--json", cwd=here)
    assert json.loads(done.stdout)["random"] is None
    assert "0 of 201 random orders were priced" in done.stderr


def test_reorder_takes_the_fastest_simulated_order(here: Path) -> None:
    """Racks kept together are four times as fast. The same seed gives the same order; its cost is that of `cost`."""
    words = ("reorder", "n.json", "--algo", "ring", "--size", "8MB", "--max-moves", "2000")
    order = run(here, *words)
    assert (order["model"], order["search_model"], order["bound_by"]) == ("simulated", "contention", "links")
    assert 0.9 * order["cost"] < order["lower_bound"] <= order["cost"]
    assert 2 <= order["simulated_orders"] <= 8
    assert not order["proven"]
    racks = [NAMES.index(name) % 2 for name in order["hosts"]]
    assert sum(a != b for a, b in pairwise([*racks, racks[0]])) == 2
    assert order["cost"] < 0.3 * order["baseline"]["given"]
    assert order["validation"]["low"] > 0
    assert run(here, *words) == order
    write(here / "order.json", order)
    costed = run(here, "cost", "n.json", "--size", "8MB", "--order", "order.json", "--random", "0")
    assert costed["cost_us"] == pytest.approx(order["cost"], rel=0.01)  # by all samples, not by half of them


@pytest.mark.parametrize("size", ["8MB", "1TB"])
def test_reorder_with_an_unmeasured_pair(here: Path, size: str) -> None:
    """Also where an order takes hours, so that one with the pair takes days by what is to avoid it."""
    order = run(here, "reorder", "holes.json", "--size", size, "--max-moves", "2000")
    assert order["model"] == "simulated"
    assert {"a", "b"} not in [{a, b} for a, b in pairwise(order["hosts"])]


@pytest.mark.parametrize("algo", ["ring", "2lha"])
def test_plan_has_simulated_costs(here: Path, algo: str) -> None:
    document = run(here, "plan", "plain.json", "--algo", algo, "--size", "8MB")
    assert document["model"] == "simulated"
    assert document["cost_us"] > 0
    assert document["baseline"]["flat"] > 0


def test_advice_is_interpolated_between_simulated_sizes(here: Path) -> None:
    document = run(here, "advise", "plain.json", "--size", "1KB..16MB", "--algos", "ring,recursive-doubling")
    assert document["model"] == "simulated"
    assert document["best"][0]["from_bytes"] == 1000
    assert document["best"][-1]["to_bytes"] == 16_000_000
    assert document["sizes"][0]["algo"] == "recursive-doubling"
    assert document["sizes"][-1]["algo"] == "ring"
    row = document["sizes"][-1]
    assert row["order"] != "given"
    assert row["time_us"] < 0.5 * 14 * (4 * 16_000 + 40)


def test_check_measures_orders_by_their_simulated_costs(here: Path) -> None:
    """Chosen by `contention`, costed by simulation: each as by `plink cost`, the cheapest first."""
    words = ("--measure", "--dry-run", "--algo", "ring", "--size", "8MB", "--orders", "4")
    rows = run(here, "check", "plain.json", *words)["orders"]
    costs = [row["predicted_us"] for row in rows]
    assert len(costs) == 4
    assert costs == sorted(costs)
    assert costs[0] < 0.5 * costs[-1]
    for row in rows:
        (here / "order.txt").write_text("\n".join(row["hosts"]))
        costed = run(here, "cost", "plain.json", "--size", "8MB", "--order", "order.txt", "--random", "0")
        assert costed["cost_us"] == pytest.approx(row["predicted_us"], abs=0.01)


def test_check_recomputes_the_costs_of_recorded_runs(here: Path) -> None:
    """abcdefgh leaves its rack with every hop; acegbdfh twice, and takes about a quarter of the time."""
    runs = [
        {"order": name, "hosts": list(name), "predicted_us": 1.0, "achieved_s": [seconds]}
        for name, seconds in (("acegbdfh", 0.1), ("acegbdhf", 0.11), ("aecgbfdh", 0.12), ("abcdefgh", 0.4))
    ]
    entry = {"algo": "ring", "model": "contention", "size_bytes": 8_000_000, "options": [], "runs": runs}
    write(here / "runs.json", {"schema": "plink.check/1", "network": None, "ok": True, "checks": [entry]})
    (checked,) = run(here, "check", "plain.json", "--results", "runs.json")["checks"]
    assert checked["model"] == "simulated"
    predicted = {row["order"]: row["predicted_us"] for row in checked["runs"]}
    assert predicted["abcdefgh"] == pytest.approx(14 * (4 * 8000 + 40 / 8), rel=1e-6)  # in 8 slices
    assert predicted["acegbdfh"] < 0.3 * predicted["abcdefgh"]


def test_advice_without_what_is_too_large_to_simulate(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A ring of eight has 112 transfers, recursive doubling 24."""
    words = ("advise", "plain.json", "--size", "1KB..16MB", "--algos", "ring,recursive-doubling")
    monkeypatch.setattr(simulated_costs, "MAX_SIMULATED_TRANSFERS", 50)
    document = run(here, *words)
    assert {line["algo"] for line in document["lines"]} == {"recursive-doubling"}
    assert "too large" in document["left_out"]["ring"]
    monkeypatch.setattr(simulated_costs, "MAX_SIMULATED_TRANSFERS", 10)
    refuses(here, [*words, "--model", "simulated"], "million can be simulated", code=4)


@pytest.mark.parametrize(
    ("words", "message", "code"),
    [
        ("reorder n.json --prove", "--prove: no exact method knows --model simulated", 2),
        ("reorder n.json --objective sum", "--objective sum uses round trips only; omit --model simulated", 2),
        ("reorder n.json --objective bottleneck", "--objective bottleneck uses round trips only", 2),
        ("cost holes.json", "the round trip a - b is needed and was not measured", 4),
    ],
)
def test_what_the_simulator_cannot_do_is_refused(here: Path, words: str, message: str, code: int) -> None:
    refuses(here, [*words.split(), "--model", "simulated"], message, code)
