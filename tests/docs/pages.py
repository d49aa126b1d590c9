"""Parse the documentation: blocks of code, the marks above them, the commands in them, and anchors.

A block is fenced, or indented by four columns after an empty line. Where lines of it begin with ``$ `` these are its
commands and the rest is what they print; otherwise all its lines are commands if one of them is ours. What a block
needs is above it as ``<!-- needs: WHAT -->``; ``<!-- all commands need: WHAT -->`` at the top of a page is the default
of its blocks. "As `NAME`:" above a block names a file of that content.
"""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
# `cluster`: hosts reached by SSH; README's are run in a lab, the others by no test, nor what needs the `internet`.
# `lab`: root and namespaces. `terminal`: a second one, for it goes on running. `prepared`: what other commands left
# (a run, a job under way, a lab that is up); test_prepared.py makes that first.
NEEDS = {"cluster", "internet", "lab", "prepared", "terminal"}

_MARK = re.compile(r"<!-- needs: (\w+) -->")
_ALL = re.compile(r"<!-- all commands need: (\w+) -->")
_FENCE = re.compile(r"^( *)```(\w*)")
_SHELLS = ("", "sh", "console")
_NAMED = re.compile(r"\b[Aa]s `([^`/]+)`[^\n]*:$")
_OURS = re.compile(r"^(?:sudo )?(?:plink|make|python3? -m plink)(?= [a-z-]|$)")
_HEADING = re.compile(r"^#{1,6} (.+?)\s*$", re.MULTILINE)
_ASSIGNMENT = re.compile(r"[A-Z_]+=")
_SEPARATORS = set("&|;()")


@dataclass(frozen=True)
class Typed:
    """A command line of a page, and the output that the page shows for it."""

    line: str
    shown: tuple[str, ...]


@dataclass(frozen=True)
class Block:
    """One block of code: its first line, language, lines without indentation, and what it needs (or nothing)."""

    number: int
    language: str
    lines: tuple[str, ...]
    needs: str
    name: str

    @property
    def typed(self) -> tuple[Typed, ...]:
        """Return its commands; none if it is something else."""
        if self.language not in _SHELLS:
            return ()
        prompted = any(line.startswith("$ ") for line in self.lines)
        if not prompted and not any(_OURS.match(line) for line in self.lines):
            return ()
        entries: list[list[str]] = []
        complete = True
        for line in self.lines:
            if not complete:
                entries[-1][0] = f"{entries[-1][0].removesuffix(chr(92))} {line.strip()}"
            elif line.startswith("$ ") or not prompted:
                entries.append([line.removeprefix("$ ")])
            elif entries:
                entries[-1].append(line)
            complete = not (entries and entries[-1][0].endswith("\\"))
        return tuple(Typed(first, tuple(rest)) for first, *rest in entries if first.strip())


def blocks(page: Path) -> Iterator[Block]:
    """Yield every block of a page, in order."""
    text = page.read_text()
    everywhere = _ALL.search(text)
    needs, name, lines = "", "", text.splitlines()
    number = 0
    while number < len(lines):
        line = lines[number]
        fence = _FENCE.match(line)
        indented = line.startswith("    ") and line.strip() and (number == 0 or not lines[number - 1].strip())
        if fence or indented:
            begin, edge = number, len(fence[1]) if fence else len(line) - len(line.lstrip())
            number += 1
            if fence:
                while not lines[number].startswith(f"{fence[1]}```"):
                    number += 1
                inside = lines[begin + 1 : number]
            else:
                while number < len(lines) and (lines[number].startswith("    ") or _goes_on(lines, number)):
                    number += 1
                inside = lines[begin:number]
            yield Block(
                begin + 1,
                fence[2] if fence else "",
                tuple(row[edge:] for row in inside),
                needs or (everywhere[1] if everywhere else ""),
                name,
            )
            needs = name = ""
        elif line.strip():
            mark, named = _MARK.fullmatch(line.strip()), _NAMED.search(line)
            needs, name = (mark[1] if mark else ""), (named[1] if named else "")
        number += 1


def _goes_on(lines: list[str], number: int) -> bool:
    """Return whether an empty line is inside an indented block."""
    return not lines[number].strip() and number + 1 < len(lines) and lines[number + 1].startswith("    ")


def commands(line: str) -> list[list[str]]:
    """Return the simple commands of a shell line as words, without assignments, redirections and comments."""
    shell = shlex.shlex(line, posix=True, punctuation_chars="&|;()<>")
    shell.whitespace_split = True
    words_of_commands: list[list[str]] = [[]]
    skip = False
    for word in shell:
        if set(word) <= _SEPARATORS:
            words_of_commands.append([])
        elif set(word) <= set("<>"):
            skip = True
        elif skip:
            skip = False
        elif words_of_commands[-1] or not (_ASSIGNMENT.match(word) or word == "sudo"):
            words_of_commands[-1].append(word)
    return [words for words in words_of_commands if words]


def ours(line: str) -> list[list[str]]:
    """Return the plink commands of a line, as the words after ``plink``."""
    plink_commands = []
    for words in commands(line):
        if words[0] == "plink":
            plink_commands.append(words[1:])
        elif words[1:3] == ["-m", "plink"]:
            plink_commands.append(words[3:])
    return plink_commands


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page, as GitHub makes them of headings."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    slugs: set[str] = set()
    for heading in _HEADING.findall(text):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
        counted = (slug, *(f"{slug}-{k}" for k in range(1, 99)))
        slugs.add(next(entry for entry in counted if entry not in slugs))
    return slugs
