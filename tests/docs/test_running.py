"""Every command of the documentation runs as it stands there, page by page and in the page's order, in a folder of its
own with the files that pages speak of; commands marked as needing a cluster or the internet are left out. What a page
shows as output must still be printed, whatever the numbers."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.pages import PAGES, ROOT, Block, Typed, blocks
from tests.docs.samples import write_samples

pytestmark = pytest.mark.slow
_LONGEST_S = 300
_BEGUN_S = 120
_CODE = re.compile(r"# exit code (\d+)")
_HERE = ("", "terminal")


def _needing(*needs: str) -> list[Path]:
    return [page for page in PAGES if any(block.typed and block.needs in needs for block in blocks(page))]


@pytest.mark.parametrize("page", _needing(*_HERE), ids=lambda page: str(page.relative_to(ROOT)))
def test_what_a_page_says_to_type_does_what_it_shows(page: Path, tmp_path: Path) -> None:
    write_samples(tmp_path)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    with _Shell(tmp_path, "") as shell:
        _follow(page, _HERE, shell, compared=True)


@pytest.mark.lab
@pytest.mark.parametrize("page", _needing("lab"), ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_about_the_lab_can_be_followed(page: Path, tmp_path: Path) -> None:
    """In a lab of another name than the page's, so that one of whoever runs the tests is left alone. Blocks without a
    mark are part of the course; what hosts print and cost there differs each time and is not compared."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    name = f"d{os.getpid()}"
    with _Shell(tmp_path, name) as shell:
        try:
            _follow(page, ("lab", *_HERE), shell, compared=False)
        finally:
            shell.run(f"plink lab down --name {name}")


def _follow(page: Path, needs: tuple[str, ...], shell: "_Shell", compared: bool) -> None:
    for block in blocks(page):
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
                until = time.monotonic() + (_BEGUN_S if " status " in typed.line else 0)
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


class _Shell:
    """Runs lines of a shell in a folder, with a ``plink`` that is this one."""

    def __init__(self, folder: Path, lab: str) -> None:
        self.folder = folder
        self._begun: list[subprocess.Popen[str]] = []
        tools = folder / ".tools"
        tools.mkdir()
        named = f'if [ "$1" = lab ]; then set -- "$1" "$2" --name {lab} "${{@:3}}"; fi\n' if lab else ""
        (tools / "plink").write_text(f'#!/bin/bash\n{named}exec {sys.executable} -m plink "$@"\n')
        (tools / "python").symlink_to(sys.executable)
        (tools / "torchrun").write_text(f'#!/bin/bash\nexec {sys.executable} -m torch.distributed.run "$@"\n')
        for tool in ("plink", "torchrun"):
            (tools / tool).chmod(0o755)
        self._environment = {
            **os.environ,
            "PATH": f"{tools}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "NO_COLOR": "1",
            "COLUMNS": "120",
            "OMP_NUM_THREADS": "1",
        }

    def __enter__(self) -> "_Shell":
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._begun:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGINT)
        for process in self._begun:
            try:
                process.communicate(timeout=60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()

    def run(self, line: str) -> "subprocess.CompletedProcess[str]":
        """One line, to its end."""
        return subprocess.run(
            ["bash", "-o", "pipefail", "-c", line],
            cwd=self.folder, env=self._environment, capture_output=True, text=True, timeout=_LONGEST_S, check=False,
        )  # fmt: skip

    def begin(self, line: str, lines: int) -> None:
        """One line that goes on until all is over; returns when it has said as many lines as the page shows."""
        said = self.folder / f".said-{len(self._begun)}"
        with said.open("w") as file:
            process = subprocess.Popen(
                ["bash", "-c", f"exec {line}"],
                cwd=self.folder, env=self._environment, stdout=file, stderr=subprocess.STDOUT, text=True,
            )  # fmt: skip
        self._begun.append(process)
        until = time.monotonic() + _BEGUN_S
        for _ in _forever():
            told = said.read_text().splitlines()
            if len(told) >= lines:
                return
            assert process.poll() is None, f"{line}: {told}"
            assert time.monotonic() < until, f"{line}: {told}"


def _forever() -> Iterator[None]:
    """A look ten times a second."""
    while True:
        yield
        time.sleep(0.1)
