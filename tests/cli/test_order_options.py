"""What an algorithm was told (``--set``) goes with its order: into the file, and to who reads it."""

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.files import network, refusal, write
from tests.conftest import typed

ORDER = {"schema": "plink.order/1", "algo": "bcube", "hosts": list("acbd")}


@pytest.fixture
def cloud(tmp_path: Path) -> Path:
    write(tmp_path / "n.json", network(hosts=[{"name": name} for name in "abcd"]))
    return tmp_path


def cost_of(cloud: Path, *words: str) -> Any:
    """What `plink cost` says of a BCube, without random orders and the same in every order."""
    words = ("--model", "latency", "--random", "0", "--json", *words)
    done = typed("cost", "n.json", "--algo", "bcube", *words, cwd=cloud)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_reorder_notes_what_was_set_and_only_that(cloud: Path) -> None:
    for words, noted in ((("--set", "base=4"), {"base": 4}), ((), None)):
        done = typed("reorder", "n.json", "--algo", "bcube", *words, "--max-moves", "10", "--json", cwd=cloud)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout).get("options") == noted


def test_a_cost_uses_the_options_of_the_order(cloud: Path) -> None:
    write(cloud / "o.json", ORDER | {"options": {"base": 4}})
    cost_with_order = cost_of(cloud, "--order", "o.json")
    assert cost_with_order["cost_us"] == cost_of(cloud, "--order", "o.json", "--set", "base=4")["cost_us"]
    assert len(cost_with_order["parts"][0]["rounds"]) < len(cost_of(cloud)["parts"][0]["rounds"])
    assert cost_of(cloud, "--order", "o.json", "--set", "base=2")["cost_us"] == cost_of(cloud)["cost_us"]  # typed last
    write(cloud / "o.json", ORDER | {"algo": "tree", "options": {"fan_out": 3}})
    assert cost_of(cloud, "--order", "o.json")["cost_us"] == cost_of(cloud)["cost_us"]  # they are a tree's


@pytest.mark.parametrize("options", [3, {"base": "x"}, {"base": 0}])
def test_options_that_are_none_are_refused(options: Any, cloud: Path) -> None:
    write(cloud / "o.json", ORDER | {"options": options})
    for command in (("cost", "--algo", "bcube"), ("report", "--terminal")):
        done = typed(command[0], "n.json", *command[1:], "--order", "o.json", cwd=cloud)
        assert refusal(done).startswith("o.json: options")


@pytest.mark.parametrize(
    "command", [("cost", "--algo", "2lha"), ("report", "-o", "-"), ("plan", "--algo", "2lha", "--json")]
)
def test_an_order_from_a_pipe_is_read_once(
    command: tuple[str, ...], cloud: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order = ORDER | {"algo": "2lha", "groups": [[0, 1], [2, 3]]}
    write(
        cloud / "three.json", network(hosts=[{"name": n} for n in "abc"], latency_us=[[0, 1, 9], [1, 0, 9], [9, 9, 0]])
    )
    if command[0] == "report":  # too few to be placed, so that the page is made at once
        order |= {"hosts": list("acb"), "groups": [[0, 1], [2]]}
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(json.dumps(order).encode())))
    which = "three.json" if command[0] == "report" else "n.json"
    done = typed(command[0], which, *command[1:], "--order", "-", cwd=cloud)
    assert done.returncode == 0, done.stderr
