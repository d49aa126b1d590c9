"""The command line accepts every command in the documentation, whether or not a test can run it."""

import re
import subprocess
from pathlib import Path

import pytest

from plink.cli.app import command
from tests.docs.pages import NEEDS, PAGES, ROOT, blocks, commands, ours
from tests.docs.parsing import refusal

_INLINE = re.compile(r"`(?:sudo )?plink ([a-z][^`]*)`")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_command_line_accepts_commands_of_page(page: Path) -> None:
    for block in blocks(page):
        for typed in block.typed:
            for words in ours(typed.line):
                error = refusal(words)
                assert not error, f"{page.name}:{block.number}: plink {' '.join(words)}: {error}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_needs_of_blocks_are_defined(page: Path) -> None:
    needs = re.findall(r"<!-- (?:all commands )?needs?: (.+?) -->", page.read_text())
    assert set(needs) <= NEEDS
    assert len(needs) == page.read_text().count("<!-- needs") + page.read_text().count("<!-- all commands")


def test_targets_of_make_exist() -> None:
    for page in PAGES:
        for block in blocks(page):
            for typed in block.typed:
                for words in commands(typed.line):
                    if words[0] == "make":
                        # Recipes that call make run even here: without the check of types, which takes minutes.
                        done = subprocess.run(
                            ["make", "--dry-run", "--always-make", "TYPES=:", "TYPES_END=:", *words[1:]],
                            cwd=ROOT, capture_output=True, text=True, check=False,
                        )  # fmt: skip
                        assert done.returncode == 0, f"{page.name}:{block.number}: {done.stderr}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_and_options_named_in_sentences_exist(page: Path) -> None:
    """These are fragments, so only names are compared with the command line."""
    top = command()
    for fragment in _INLINE.findall(page.read_text()):
        words = re.split(r"\s+#|\s*&&|\s*\|", fragment)[0].replace("...", "").split()
        subcommand = top.commands.get(words[0])
        assert subcommand is not None, f"plink {' '.join(words)}"
        if hasattr(subcommand, "commands") and len(words) > 1 and words[1][0].islower():
            subcommand = subcommand.commands.get(words[1].strip(","))
            assert subcommand is not None, f"plink {' '.join(words)}"
        options = {option for parameter in subcommand.params for option in (*parameter.opts, *parameter.secondary_opts)}
        used = words if words[0] != "launch" else words[: next((i for i, w in enumerate(words) if "." in w), None)]
        for word in used:
            if word.startswith("--") and word != "--":
                assert word.split("=")[0] in options | {"--help"}, f"plink {' '.join(words)}"


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("reorder --colour", "No such option"),
        ("reorder --algo spiral", "--algo spiral"),
        ("launch --runner carrier-pigeon x.py", "--runner"),
        ("lab shape node-03", "--rate"),
        ("lab explode", "No such command"),
        ("cost --size much", "size"),
    ],
)
def test_wrong_command_is_refused(line: str, error: str) -> None:
    assert error in refusal(line.split())
