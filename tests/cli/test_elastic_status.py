"""How an elastic job is shown that runs: by `plink elastic status`, in the live view of `plink launch`, and before."""

from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console

from plink.features.elastic.show import status_lines, view
from plink.model.elastic.fields import UpdateCounts
from plink.model.elastic.status import ElasticStatus
from tests.conftest import typed

COST = {"total": 1.10004, "per_iteration": 0.36671, "without_price": []}


def status(**more: Any) -> dict[str, Any]:
    """Of one host, as the job's hub tells it."""
    host = {"name": "h0", "number": 0, "tier": "reliable", "state": "there", "serves": [0], "replicas": [], "shards": 4,
            "sent": 0, "received": 0, "price": None}  # fmt: skip
    return {
        "stage": 1, "hosts": [host], "clock": 3, "consistent": 3, "generation": 0, "controller": 1, "checkpoint": None,
        "waits": None, "iteration": 2, "iteration_s": 0.5, "objective": None, "workers": 1, "begun": 4, "cost": None,
        **more,
    }  # fmt: skip


def seen(document: dict[str, Any]) -> str:
    """The live view's lines, and those of `plink elastic status`."""
    status, console = msgspec.convert({"run": "a", **document}, ElasticStatus), Console(width=200)
    with console.capture() as capture:
        console.print(view(status, []))
    return capture.get() + "\n".join(status_lines(status))


def test_cost_so_far_is_in_the_live_view_and_the_status() -> None:
    """Without prices there is no word of it."""
    cost_text = "1.1, 0.367 an iteration (without the one host that has no price)\n"
    lines = [line.rstrip() + "\n" for line in seen(status(cost=COST | {"without_price": ["h1"]})).splitlines()]
    assert f"stage 1  iteration 3  clock 4  last iteration 500 ms  cost {cost_text}" in lines
    assert f"cost so far: {cost_text}" in lines
    assert "stage 1, 3 iterations, the last took 500 ms\n" in lines
    assert "cost" not in seen(status())


def test_waits_are_in_the_live_view_and_the_status() -> None:
    """Once anything was measured."""
    work = {"h0": (1.0, 1.0, 1), "h1": (1.0, 1.0, 1), "h2": (2.0, 0.0, 1)}
    text = seen(status(work=work))
    assert text.count("iteration 2: waited 33%, for h2") == 2
    assert "waited 50%" in text
    steps = seen(status(work={"h0": (2.0, 0.0, 6), "h2": (2.1, 0.0, 3)}))
    assert steps.count("3 steps of h2, up to 6 of others; waited 0% (bsp would 26%)") == 2
    assert "for h2" not in seen(status())


def test_help_is_in_the_live_view_and_the_status() -> None:
    """Once anybody was helped."""
    text = seen(status(moved=0.012, help={"h2": {"h0": 0.02, "h1": 0.03}}))
    assert text.count("iteration 2: helpers did 1.2% of the work: 5.0% of h2's by h0, h1") == 2
    assert "helpers" not in seen(status(moved=0.0, help={}))


def test_updates_are_in_the_status() -> None:
    """Once there were any, also where all of them were dropped."""
    counts = UpdateCounts().with_one(0).with_one(3).with_one(None)
    assert "2 applied, 1 dropped (33.3%); delay 1.5, at most 3 (0: 50%, 2-3: 50%)" in seen(
        status(updates=counts.summary())
    )
    assert "0 applied, 1 dropped (100.0%)" in seen(status(updates=UpdateCounts(dropped=1).summary()))
    assert "dropped" not in seen(status(updates=UpdateCounts().summary()))


def test_a_dry_run_says_what_it_did_not_check(tmp_path: Path) -> None:
    """It asks no host, not even this one."""
    words = ("--dry-run", "--runner", "local", "--slots", "2", "fit.py")
    done = typed("elastic", "run", *words, cwd=tmp_path)
    assert done.returncode == 0
    assert [line for line in done.stdout.splitlines() if line.startswith("#")] == [
        "# on local-0, reliable", "# on local-1, transient",
    ]  # fmt: skip
    assert done.stderr == (
        "plink: no host was asked: whether it can be reached, makes the program and has the memory shows when the job "
        "starts\n"
    )
