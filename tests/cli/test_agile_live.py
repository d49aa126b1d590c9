"""How an elastic job is shown that runs: by `plink agile status`, in the live view of `plink launch`, and before."""

from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from plink.cli.agile_live import _lines
from plink.cli.elastic_screen import Screen, view
from tests.conftest import typed

COST = {"total": 1.10004, "per_iteration": 0.36671, "without_price": []}


def status(**more: Any) -> dict[str, Any]:
    """Of one host, as the job's hub tells it."""
    host = {"name": "h0", "number": 0, "tier": "reliable", "state": "there", "serves": [0], "backs": [], "pieces": 4,
            "sent": 0, "received": 0, "price": None}  # fmt: skip
    return {
        "stage": 1, "hosts": [host], "clock": 3, "consistent": 3, "era": 0, "controller": 1, "checkpoint": None,
        "waits": None, "iteration": 2, "iteration_s": 0.5, "objective": None, "workers": 1, "begun": 4, **more,
    }  # fmt: skip


def seen(status: dict[str, Any]) -> str:
    """The live view's lines, and those of `plink agile status`."""
    console = Console(width=200)
    with console.capture() as capture:
        console.print(view(status, []))
    return capture.get() + "\n".join(_lines(status))


@pytest.mark.parametrize(
    ("cost", "said"),
    [
        (COST, "1.1, 0.367 an iteration\n"),
        (COST | {"per_iteration": None}, "1.1\n"),
        (COST | {"without_price": ["h1", "h2"]}, "1.1, 0.367 an iteration (without the 2 hosts that have no price)\n"),
        (COST | {"without_price": ["h1"]}, "1.1, 0.367 an iteration (without the one host that has no price)\n"),
    ],
)
def test_what_the_job_has_cost_so_far(cost: dict[str, Any], said: str) -> None:
    lines = [line.rstrip() + "\n" for line in seen(status(cost=cost)).splitlines()]
    assert f"stage 1  iteration 3  clock 4  0.5 s an iteration  cost {said}" in lines
    assert f"cost so far: {said}" in lines


@pytest.mark.parametrize("more", [{}, {"cost": None}])  # of a job of an earlier plink; where no host has a price
def test_without_prices_there_is_no_word_of_it(more: dict[str, Any]) -> None:
    assert "cost" not in seen(status(**more))


@pytest.mark.parametrize(
    ("hosts", "said"),
    [
        (1, "the host is where it was asked to be; it makes the program"),
        (4, "4 hosts are where they were asked to be; they make the program"),
    ],
)
def test_one_host_is_spoken_of_as_one(hosts: int, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    Screen(1, False).began(hosts)
    assert capsys.readouterr().err == f"plink: {said}\n"


def test_a_rehearsal_says_what_it_did_not_look_at(tmp_path: Path) -> None:
    """It asks no host, not even this one."""
    words = ("--dry-run", "--runner", "local", "--slots", "2", "--backend", "agileml", "fit.py")
    done = typed("launch", *words, cwd=tmp_path)
    assert done.returncode == 0
    assert [line for line in done.stdout.splitlines() if line.startswith("#")] == [
        "# on local-0, reliable", "# on local-1, transient",
    ]  # fmt: skip
    assert done.stderr == (
        "plink: no host was asked: whether it can be reached, makes the program and has the memory shows when the job "
        "starts\n"
    )
