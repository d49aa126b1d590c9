"""What docs/reliability.md promises has a test, and each named test exists."""

import ast
import re
from pathlib import Path

from tests.fuzz.targets import targets

ROOT = Path(__file__).parent.parent
ROWS = [
    line
    for line in (ROOT / "docs" / "reliability.md").read_text().splitlines()
    if line.startswith("| ") and not line.startswith("| fault |")
]


def test_every_fault_names_tests_that_exist() -> None:
    defined: dict[str, set[str]] = {}
    missing: list[str] = []
    for row in ROWS:
        named = re.findall(r"`([\w/.]+)::(\w+)`", row.rsplit("|", 2)[1])
        if not named:
            missing.append(f"no test: {row.split('|')[1].strip()}")
        for file, test in named:
            if file not in defined:
                path = ROOT / "tests" / file
                tree = ast.parse(path.read_text() if path.exists() else "")
                defined[file] = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
            if test not in defined[file]:
                missing.append(f"{file}::{test}")
    assert missing == []


def test_targets_are_selected_by_name() -> None:
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
