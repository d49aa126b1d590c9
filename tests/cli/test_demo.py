"""What `plink demo` refuses before a lab is brought up, and what it prints."""

from pathlib import Path

import pytest

from plink.features.lab.demo import print_result
from plink.model.demo import Demo
from tests.cli.files import refusal
from tests.conftest import typed


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--size", "0"), "--size 0: an all-reduce has 4 bytes at least"),
        (("--size", "much"), "--size: 'much' is not a size"),
        (("--racks", "1000"), "--racks 1000: a lab has 1 to 64 racks"),
        (("--hosts-per-rack", "200"), "--hosts-per-rack 200: a lab has 1 to 512 hosts in all"),
        (("--racks", "1", "--hosts-per-rack", "1"), "--racks 1 --hosts-per-rack 1: one host has no order"),
    ],
)
def test_what_cannot_be_shown_is_refused(words: tuple[str, ...], message: str, tmp_path: Path) -> None:
    assert refusal(typed("demo", *words, cwd=tmp_path)).startswith(message)


def test_the_table_has_both_orders_and_the_bound(capsys: pytest.CaptureFixture[str]) -> None:
    """Made of the document that ``--json`` prints."""
    result = Demo(
        hosts=("a", "b"), baseline_s=2.5, plink_s=0.625, bound_s=0.5, speedup=4.0, racks_recovered=True,
        predicted_baseline_s=2.4, predicted_plink_s=0.6, cost_baseline_us=5000.0, cost_plink_us=1250.0,
        predicted_baseline_interval_s=(2.3, 2.7), predicted_plink_interval_s=(0.57, 0.62), baseline_samples_s=(2.5,),
        plink_samples_s=(0.625,), group_count=1, size_bytes=8, seed=1,
    )  # fmt: skip
    print_result(result, "16 hosts")
    lines = capsys.readouterr().out.splitlines()
    rows = [line.split("│") for line in lines if "│" in line]
    assert [line for line in lines if "did not hold" in line] == [
        "the prediction did not hold for plink's order: it took 4% longer"
    ]
    assert [[cell.strip() for cell in row[1:-1]] for row in rows] == [
        ["given", "5 ms", "2.400 s (2.300 to 2.700)", "2.500 s", "20%"],
        ["plink's", "1.25 ms", "0.600 s (0.570 to 0.620)", "0.625 s", "80%"],
        ["bound", "", "", "0.500 s", "100%"],
    ]
