"""The repository holds together: links lead somewhere, commands in the documentation exist, every word is layered."""

import re
import tomllib
from pathlib import Path

import pytest

from plink.cli.app import command

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)[^)]*\)")
CODE = re.compile(r"^ {4,}(?:sudo )?plink (\S.*)$|`(?:sudo )?plink ([a-z][^`]*)`", re.MULTILINE)
# Commands of the founding design that the pages may speak of before they exist.
PLANNED = {"check"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in LINK.findall(page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_and_options_in_the_documentation_exist(page: Path) -> None:
    top = command()
    for block, inline in CODE.findall(page.read_text()):
        words = re.split(r"\s+#|\s*&&|\s*\|", block or inline)[0].replace("...", "").split()
        found = top.commands.get(words[0])
        if found is None and words[0] in PLANNED:
            continue
        assert found is not None, f"plink {' '.join(words)}"
        if hasattr(found, "commands") and len(words) > 1 and words[1][0].islower():
            found = found.commands.get(words[1].strip(","))
            assert found is not None, f"plink {' '.join(words)}"
        options = {option for parameter in found.params for option in (*parameter.opts, *parameter.secondary_opts)}
        used = words if words[0] != "launch" else words[: next((i for i, w in enumerate(words) if "." in w), None)]
        for word in used:
            if word.startswith("--") and word != "--":
                assert word.split("=")[0] in options | {"--help"}, f"plink {' '.join(words)}"


def test_every_word_has_its_layer() -> None:
    """A module added to plink/ without a place in the layering contract would escape it."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layered = set(re.findall(r"plink\.(\w+)", " ".join(contracts[0]["layers"])))
    there = {
        path.stem for path in (ROOT / "plink").iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()
    }
    assert there - {"__init__", "__main__"} == layered
