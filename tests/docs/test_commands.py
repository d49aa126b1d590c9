"""Every command in the documentation exists: the command line takes it, whether or not a test can run it."""

import re
import subprocess
from pathlib import Path

import pytest

from plink.cli.app import command
from tests.docs.pages import NEEDS, PAGES, ROOT, blocks, commands, ours
from tests.docs.parsing import refusal

_INLINE = re.compile(r"`(?:sudo )?plink ([a-z][^`]*)`")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_command_line_takes_what_a_page_says_to_type(page: Path) -> None:
    for block in blocks(page):
        for typed in block.typed:
            for words in ours(typed.line):
                why = refusal(words)
                assert not why, f"{page.name}:{block.number}: plink {' '.join(words)}: {why}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_what_a_block_needs_is_something_known(page: Path) -> None:
    found = re.findall(r"<!-- (?:all commands )?needs?: (.+?) -->", page.read_text())
    assert set(found) <= NEEDS
    assert len(found) == page.read_text().count("<!-- needs") + page.read_text().count("<!-- all commands")


def test_targets_of_make_exist() -> None:
    for page in PAGES:
        for block in blocks(page):
            for typed in block.typed:
                for words in commands(typed.line):
                    if words[0] == "make":
                        done = subprocess.run(
                            ["make", "--dry-run", "--always-make", *words[1:]],
                            cwd=ROOT, capture_output=True, text=True, check=False,
                        )  # fmt: skip
                        assert done.returncode == 0, f"{page.name}:{block.number}: {done.stderr}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_and_options_named_in_sentences_exist(page: Path) -> None:
    """These are fragments, so only names are held against the command line."""
    top = command()
    for fragment in _INLINE.findall(page.read_text()):
        words = re.split(r"\s+#|\s*&&|\s*\|", fragment)[0].replace("...", "").split()
        found = top.commands.get(words[0])
        assert found is not None, f"plink {' '.join(words)}"
        if hasattr(found, "commands") and len(words) > 1 and words[1][0].islower():
            found = found.commands.get(words[1].strip(","))
            assert found is not None, f"plink {' '.join(words)}"
        options = {option for parameter in found.params for option in (*parameter.opts, *parameter.secondary_opts)}
        used = words if words[0] != "launch" else words[: next((i for i, w in enumerate(words) if "." in w), None)]
        for word in used:
            if word.startswith("--") and word != "--":
                assert word.split("=")[0] in options | {"--help"}, f"plink {' '.join(words)}"


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("probe", "HOSTS"),
        ("reorder --colour", "No such option"),
        ("reorder --algo spiral", "algo: spiral"),
        ("launch --runner carrier-pigeon x.py", "--runner"),
        ("lab shape node-03", "--rate"),
        ("lab explode", "No such command"),
        ("cost --size much", "size"),
    ],
)
def test_a_wrong_command_would_be_found(line: str, why: str) -> None:
    assert why in refusal(line.split())
