"""Every command of the documentation runs as it stands there, page by page and in the page's order, in a folder of its
own with the files that pages speak of; commands marked as needing a cluster or the internet are left out. What a page
shows as output must still be printed, whatever the numbers."""

import os
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.docs.pages import PAGES, ROOT, Block, Typed, blocks
from tests.docs.samples import write_samples
from tests.docs.shell import Shell

_JOB_READY_S = 120
_CODE = re.compile(r"# exit code (\d+)")
_HERE = ("", "terminal")
# Of the quick tier; the others take up to a minute each.
_QUICK = {"README.md", "docs/aggengine.md", "docs/launchers.md"}


def _needing(*needs: str) -> list[Path]:
    return [page for page in PAGES if any(block.typed and block.needs in needs for block in blocks(page))]


def _stretches() -> Iterator[Any]:
    """Each page with its blocks; those of the reference stand for themselves, so they are run in three parts."""
    for page in _needing(*_HERE):
        page_blocks = [block for block in blocks(page) if block.name or (block.typed and block.needs in _HERE)]
        name = str(page.relative_to(ROOT))
        if name == "docs/reference.md":
            third = -(-len(page_blocks) // 3)
            for first in range(0, len(page_blocks), third):
                part = f"{name}, part {first // third + 1}"
                yield pytest.param(page, page_blocks[first : first + third], id=part, marks=pytest.mark.extended)
        else:
            marks = [] if name in _QUICK else [pytest.mark.extended]
            yield pytest.param(page, page_blocks, id=name, marks=marks)


@pytest.mark.timeout(400)
@pytest.mark.parametrize(("page", "stretch"), list(_stretches()))
def test_commands_of_a_page_do_what_it_shows(page: Path, stretch: list[Block], tmp_path: Path) -> None:
    write_samples(tmp_path)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    with Shell(tmp_path, "") as shell:
        _follow(page, stretch, _HERE, shell, compared=True)


@pytest.mark.lab
@pytest.mark.parametrize("page", _needing("lab"), ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_about_the_lab_can_be_followed(page: Path, tmp_path: Path) -> None:
    """In a lab of another name than the page's, so that one of whoever runs the tests is left alone. Blocks without a
    mark are part of the course; what hosts print and cost there differs each time and is not compared."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    name = f"d{os.getpid()}"
    with Shell(tmp_path, name) as shell:
        try:
            _follow(page, list(blocks(page)), ("lab", *_HERE), shell, compared=False)
        finally:
            shell.run(f"plink lab down --name {name}")


def _follow(page: Path, stretch: list[Block], needs: tuple[str, ...], shell: Shell, compared: bool) -> None:
    for block in stretch:
        if block.name:
            (shell.folder / block.name).write_text("\n".join(block.lines) + "\n")
        if block.needs not in needs:
            continue
        for typed in block.typed:
            where = f"{page.name}:{block.number}: {typed.line}"
            if block.needs == "terminal":
                shell.begin(typed.line, lines=len(typed.shown))
                continue
            done = shell.run(typed.line)
            code = _CODE.search(typed.line)
            assert done.returncode == (int(code[1]) if code else 0), f"{where}\n{done.stdout}{done.stderr}"
            if compared and _prompted(block):
                until = time.monotonic() + (_JOB_READY_S if " status " in typed.line else 0)
                while missing := _missing(typed, done):
                    # How a job stands that has just begun may be something else for a while.
                    assert time.monotonic() < until, f"{where}\n{missing}\nis not in\n{done.stdout}{done.stderr}"
                    time.sleep(1)
                    done = shell.run(typed.line)


def _missing(typed: Typed, done: "subprocess.CompletedProcess[str]") -> list[str]:
    """What the page shows and was not printed, numbers aside."""
    printed = {_without_numbers(row) for row in (done.stdout + done.stderr).splitlines()}
    return [row for row in typed.shown if row.strip() and "..." not in row and _without_numbers(row) not in printed]


def _prompted(block: Block) -> bool:
    return any(line.startswith("$ ") for line in block.lines)


def _without_numbers(line: str) -> str:
    """As the same command may print it another time: numbers and the room they take do not count."""
    return re.sub(r"[\s━─]+", " ", re.sub(r"\d+(\.\d+)?(?:e[+-]\d+)?", "#", line)).strip()
