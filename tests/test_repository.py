"""The repository holds together: every part of plink has its layer."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_each_part_of_plink_has_a_layer() -> None:
    """A module added to plink/ without a place in the layering contract would escape it."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layered = set(re.findall(r"plink\.(\w+)", " ".join(contracts[0]["layers"])))
    there = {
        path.stem for path in (ROOT / "plink").iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()
    }
    assert there - {"__init__", "__main__"} == layered
