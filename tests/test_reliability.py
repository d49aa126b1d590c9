"""What docs/reliability.md promises has a test, and each named test exists."""

import ast
import re
from pathlib import Path

import pytest

from tests.fuzz.targets import targets

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


def test_what_is_fuzzed_is_told_by_name() -> None:
    """Each target in the list of its file, and none besides."""
    section = (ROOT / "docs" / "reliability.md").read_text().partition("## Fuzzing")[2].partition("\n## ")[0]
    lists = re.findall(r"^- [^\n]*(?:\n  [^\n]*)*", section, re.MULTILINE)
    there, listed = targets(), dict[str, set[str]]()
    for text in lists:
        (file,) = re.findall(r"`tests/fuzz/(\w+)\.py`", text)
        listed.setdefault(f"tests.fuzz.{file}", set()).update(re.findall(r"`(\w+)`", text))
    assert f" {len(there)} targets:" in section
    assert listed == {
        module: {name for name, target in there.items() if target.read.__module__ == module} for module in listed
    }
    assert set().union(*listed.values()) == there.keys()


def test_there_are_rows_of_every_part() -> None:
    assert len(ROWS) > 50
