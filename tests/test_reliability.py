"""What docs/reliability.md promises has a test, and each named test exists."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ROWS = [
    line
    for line in (ROOT / "docs" / "reliability.md").read_text().splitlines()
    if line.startswith("| ") and not line.startswith("| fault |")
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.split("|")[1].strip())
def test_a_fault_names_tests_that_exist(row: str) -> None:
    named = re.findall(r"`([\w/.]+)::(\w+)`", row.rsplit("|", 2)[1])
    assert named, "no test"
    for file, test in named:
        tree = ast.parse((ROOT / "tests" / file).read_text())
        assert test in {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}, f"{file}::{test}"


def test_there_are_rows_of_every_part() -> None:
    assert len(ROWS) > 50
