"""Whether external links lead somewhere: ``make links``, which needs the internet, so it is no part of ``make test``.

Asked are the links of all Markdown pages and the addresses in docstrings, each once: HEAD, then GET where that says
anything but yes, and all of it again where that fails too. A line for each that does not answer, and exit code 1.
"""

import ast
import re
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from queue import Empty, SimpleQueue

ROOT = Path(__file__).parent.parent
_LINK = re.compile(r"\[([^\]]*)\]\((\w+://[^)]*?)(?:\s+\"[^\"]*\")?\)|<(\w+://[^>]*)>")
_CODE = re.compile(r"^ *```.*?^ *```|`[^`\n]*`", re.MULTILINE | re.DOTALL)
_IN_TEXT = re.compile(r"https://[^\s`'\"<>)\]]+")
_AT_ONCE = 8
_ANSWER_S = 10.0
_ALL_S = 120.0


@dataclass(frozen=True)
class Link:
    """``where``: ``FILE:LINE``, from the root of the repository. ``text``: what is linked, as far as there is any."""

    where: str
    text: str
    url: str


def in_page(page: Path) -> Iterator[Link]:
    """External links of a Markdown page; what is shown as code is none."""
    text = _CODE.sub(lambda code: re.sub(r"[^\n]", " ", code[0]), page.read_text())
    for found in _LINK.finditer(text):
        yield Link(_where(page, text.count("\n", 0, found.start()) + 1), found[1] or "", found[2] or found[3])


def in_source(source: Path) -> Iterator[Link]:
    """Addresses in the docstrings of a Python file."""
    text = source.read_text()
    for node in ast.walk(ast.parse(text)) if "https://" in text else ():
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            for url in _IN_TEXT.findall(ast.get_docstring(node, clean=False) or ""):
                yield Link(_where(source, node.body[0].lineno), "", url.rstrip(".,;:"))


def of_the_repository() -> list[Link]:
    """Return all links of the repository."""
    pages = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
    sources = [
        file for room in ("plink", "probes", "solvers", "runners") for file in sorted((ROOT / room).rglob("*.py"))
    ]
    return [
        *(link for page in pages for link in in_page(page)),
        *(link for file in sources for link in in_source(file)),
    ]


def _where(file: Path, line: int) -> str:
    return f"{file.relative_to(ROOT) if file.is_relative_to(ROOT) else file}:{line}"


def trouble(url: str, answer_s: float = _ANSWER_S) -> str | None:
    """Why nothing is there; None: something is. Redirections are followed."""
    why = None
    for method in ("HEAD", "GET") * 2:
        try:
            request = urllib.request.Request(url, method=method, headers={"User-Agent": "plink-links"})
            with urllib.request.urlopen(request, timeout=answer_s):
                return None
        except urllib.error.HTTPError as error:
            error.close()
            why = f"{error.code} {error.reason}"
        except urllib.error.URLError as error:
            why = str(error.reason)
        except (OSError, HTTPException, ValueError) as error:
            why = str(error) or type(error).__name__
    return why


def wrong(links: Sequence[Link], answer_s: float = _ANSWER_S, all_s: float = _ALL_S) -> list[str]:
    """Return a line for each link that leads nowhere, or of which nothing was known after ``all_s`` seconds."""
    urls = dict.fromkeys(link.url.partition("#")[0] for link in links)
    asked, told = SimpleQueue[str](), SimpleQueue[tuple[str, str | None]]()
    for url in urls:
        asked.put(url)

    def ask() -> None:
        while not asked.empty():
            try:
                url = asked.get_nowait()
            except Empty:
                return
            told.put((url, trouble(url, answer_s)))

    # Daemons: whoever drips its answer for ever is not waited for.
    for _ in range(min(_AT_ONCE, len(urls))):
        threading.Thread(target=ask, daemon=True).start()
    until = time.monotonic() + all_s
    found: dict[str, str | None] = {}
    while len(found) < len(urls):
        try:
            url, why = told.get(timeout=max(0.0, until - time.monotonic()))
        except Empty:
            break
        found[url] = why
    late = f"no answer within {all_s:g} s"
    lines = [(link, found.get(link.url.partition("#")[0], late)) for link in links]
    return [f"{link.where}: {link.url}: {why}" for link, why in lines if why is not None]


def main() -> int:
    """1 where a link leads nowhere."""
    links = of_the_repository()
    lines = wrong(links)
    for line in lines:
        print(line)
    print(f"{len(links)} external links, {len(lines)} of them lead nowhere", file=sys.stderr)
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
