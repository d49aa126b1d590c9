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
_MAX_THREADS = 8
_ANSWER_TIMEOUT_S = 10.0
_TOTAL_TIMEOUT_S = 120.0


@dataclass(frozen=True)
class Link:
    """A link at ``location`` (``FILE:LINE`` from the repository's root). ``text``: what is linked, if anything."""

    location: str
    text: str
    url: str


def in_page(page: Path) -> Iterator[Link]:
    """External links of a Markdown page; what is shown as code is none."""
    text = _CODE.sub(lambda code: re.sub(r"[^\n]", " ", code[0]), page.read_text())
    for match in _LINK.finditer(text):
        yield Link(_location(page, text.count("\n", 0, match.start()) + 1), match[1] or "", match[2] or match[3])


def in_source(source: Path) -> Iterator[Link]:
    """Addresses in the docstrings of a Python file."""
    text = source.read_text()
    for node in ast.walk(ast.parse(text)) if "https://" in text else ():
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            for url in _IN_TEXT.findall(ast.get_docstring(node, clean=False) or ""):
                yield Link(_location(source, node.body[0].lineno), "", url.rstrip(".,;:"))


def of_the_repository() -> list[Link]:
    """Return all links of the repository."""
    pages = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
    sources = [
        file for package in ("plink", "probes", "solvers", "runners") for file in sorted((ROOT / package).rglob("*.py"))
    ]
    return [
        *(link for page in pages for link in in_page(page)),
        *(link for file in sources for link in in_source(file)),
    ]


def _location(file: Path, line: int) -> str:
    return f"{file.relative_to(ROOT) if file.is_relative_to(ROOT) else file}:{line}"


def link_error(url: str, answer_s: float = _ANSWER_TIMEOUT_S) -> str | None:
    """Why nothing is there; None: something is. Redirections are followed."""
    reason: str | None = None
    for method in ("HEAD", "GET") * 2:
        try:
            request = urllib.request.Request(url, method=method, headers={"User-Agent": "plink-links"})
            with urllib.request.urlopen(request, timeout=answer_s):
                return None
        except urllib.error.HTTPError as error:
            error.close()
            reason = f"{error.code} {error.reason}"
        except urllib.error.URLError as error:
            reason = str(error.reason)
        except (OSError, HTTPException, ValueError) as error:
            reason = str(error) or type(error).__name__
    return reason


def broken_links(
    links: Sequence[Link], answer_s: float = _ANSWER_TIMEOUT_S, all_s: float = _TOTAL_TIMEOUT_S
) -> list[str]:
    """Return a line for each link that leads nowhere, or of which nothing was known after ``all_s`` seconds."""
    urls = dict.fromkeys(link.url.partition("#")[0] for link in links)
    requests, answers = SimpleQueue[str](), SimpleQueue[tuple[str, str | None]]()
    for url in urls:
        requests.put(url)

    def ask() -> None:
        while not requests.empty():
            try:
                url = requests.get_nowait()
            except Empty:
                return
            answers.put((url, link_error(url, answer_s)))

    # Daemons: whoever drips its answer for ever is not waited for.
    for _ in range(min(_MAX_THREADS, len(urls))):
        threading.Thread(target=ask, daemon=True).start()
    deadline = time.monotonic() + all_s
    error_by_url: dict[str, str | None] = {}
    while len(error_by_url) < len(urls):
        try:
            url, error = answers.get(timeout=max(0.0, deadline - time.monotonic()))
        except Empty:
            break
        error_by_url[url] = error
    timeout_error = f"no answer within {all_s:g} s"
    lines = [(link, error_by_url.get(link.url.partition("#")[0], timeout_error)) for link in links]
    return [f"{link.location}: {link.url}: {error}" for link, error in lines if error is not None]


def main() -> int:
    """1 where a link leads nowhere."""
    links = of_the_repository()
    lines = broken_links(links)
    for line in lines:
        print(line)
    print(f"{len(links)} external links, {len(lines)} of them lead nowhere", file=sys.stderr)
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
