"""Who redirects standard output instead of giving ``-o`` is told so by the command that reads the file."""

from pathlib import Path
from typing import Any

import pytest

from plink.printed import instead_of_json
from tests.cli.files import refusal, write
from tests.conftest import plink

_ROWS = [[0 if i == j else 40 + i + j for j in range(4)] for i in range(4)]


def network(**changes: Any) -> dict[str, Any]:
    return {"schema": "plink.network/1", "hosts": [{"name": f"h{i}"} for i in range(4)], "latency_us": _ROWS} | changes


@pytest.mark.parametrize(
    "words", [("--algo", "ring"), ("--algo", "flat"), ("--algo", "2lha"), ("--algo", "halving-doubling")]
)
def test_a_schedule_for_people_is_told_from_one_for_programs(words: tuple[str, ...], tmp_path: Path) -> None:
    made = plink("schedule", *words, "--ranks", "4", cwd=tmp_path)
    (tmp_path / "x.json").write_text(made.stdout)
    said = refusal(plink("schedule", "verify", "x.json", cwd=tmp_path))
    assert said.startswith("x.json:1: not JSON: this is the text for people that `plink schedule` prints")
    assert "`-o FILE` or `--json` writes the schedule" in said
    (tmp_path / "y.json").write_text(plink("schedule", *words, "--ranks", "4", "--json", cwd=tmp_path).stdout)
    assert plink("schedule", "verify", "y.json", cwd=tmp_path).returncode == 0


@pytest.mark.parametrize("algo", ["2lha", "ring"])
def test_a_plan_for_people_is_told_from_one_for_programs(algo: str, tmp_path: Path) -> None:
    write(tmp_path / "n.json", network())
    (tmp_path / "plan.json").write_text(plink("plan", "n.json", "--algo", algo, "-o", "-", cwd=tmp_path).stdout)
    for_people = plink("plan", "n.json", "--algo", algo, cwd=tmp_path).stdout
    (tmp_path / "text.json").write_text(for_people)
    said = refusal(plink("launch", "--plan", "text.json", "true", cwd=tmp_path))
    assert said.startswith("text.json:1: not JSON: this is the text for people that `plink plan`")


def test_an_order_or_a_network_that_was_redirected_is_an_empty_file(tmp_path: Path) -> None:
    write(tmp_path / "n.json", network())
    done = plink("reorder", "n.json", "--moves", "100", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "")
    (tmp_path / "order.json").write_text(done.stdout)
    said = refusal(plink("cost", "n.json", "--order", "order.json", cwd=tmp_path))
    assert said.startswith("order.json:1: not JSON: the file is empty; what plink writes is in .plink/")
    said = refusal(plink("doctor", "order.json", cwd=tmp_path))
    assert said.endswith("or goes where `-o FILE` says")


@pytest.mark.parametrize("text", ["{", "hello", "h0\nh1\n", "ring, tree and star", '{"a": 1,}', "2lha"])
def test_of_other_texts_nothing_is_supposed(text: str) -> None:
    assert instead_of_json(text) is None
